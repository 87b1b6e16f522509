// npm's ali-ons as a process: `send`, `order` or `consume` NAMESRV TOPIC COUNT [expression] [kind]; prints lines of JSON.
'use strict';

const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const [what, nameSrv, topic, count, expression, kind] = process.argv.slice(2);
const logger = { info() {}, debug() {}, warn: console.error, error: console.error };
const shared = {
  httpclient, nameSrv, logger, clientIP: '127.0.0.1', accessKeyId: 'nobody', accessKeySecret: 'unused',
};

function say(facts) {
  process.stdout.write(JSON.stringify(facts) + '\n');
}

// Messages of both tags, then one with a delay level and one with a time at which it is due.
async function send(producer) {
  for (let i = 0; i < Number(count); i++) {
    const message = new Message(topic, i % 2 === 0 ? 'even' : 'odd', `body ${i}`);
    message.keys = [ `key${i}` ];
    message.properties.number = String(i);
    const { sendStatus, msgId } = await producer.send(message);
    say({ status: sendStatus, id: msgId });
  }
  const byLevel = new Message(topic, 'level', 'body 1001');
  byLevel.delayTimeLevel = 2;
  const byTime = new Message(topic, 'time', 'body 1002');
  byTime.setStartDeliverTime(Date.now() + 3000);
  for (const message of [ byLevel, byTime ]) {
    const ms = Date.now();
    const { sendStatus } = await producer.send(message);
    say({ status: sendStatus, delayed: message.tags, ms });
  }
}

// Four keys in turn: those of one key lie in one queue.
async function order(producer) {
  for (let i = 0; i < Number(count); i++) {
    const message = new Message(topic, 'ordered', `${i % 4}:${i}`);
    message.shardingKey = `key-${i % 4}`;
    const { sendStatus, messageQueue } = await producer.send(message);
    say({ status: sendStatus, key: i % 4, queue: messageQueue.queueId });
  }
}

async function consume() {
  const consumer = new Consumer({
    ...shared, consumerGroup: `CID_${topic}`, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', rebalanceInterval: 1000,
  });
  consumer.on('error', error => console.error(error));
  const chosen = kind === 'SQL92' ? { expressionType: kind, subString: expression } : expression;
  let seen = 0;
  await new Promise(resolve => {
    setTimeout(resolve, 40000);
    consumer.subscribe(topic, chosen, async message => {
      const body = message.body.toString();
      say({ body, tag: message.tags, key: message.keys, tries: message.reconsumeTimes, queue: message.queueId, ms: Date.now() });
      if (body === 'fail-once' && message.reconsumeTimes === 0) {
        return Consumer.ACTION_RETRY;
      }
      if (++seen >= Number(count)) {
        resolve();
      }
    });
  });
  await consumer.close();
}

async function main() {
  if (what === 'consume') {
    await consume();
  } else {
    const producer = new Producer({ ...shared, producerGroup: 'PID_js' });
    producer.on('error', error => console.error(error));
    await producer.ready();
    await (what === 'send' ? send : order)(producer);
    await producer.close();
  }
  say({ over: true });
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
