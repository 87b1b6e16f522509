// npm's rocketmq-client-nodejs; harness/grpc_clients.py says what it is told.
'use strict';

const readline = require('node:readline');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const silent = { info() {}, debug() {}, warn: console.error, error: console.error, log() {} };
const shared = { endpoints: process.argv[2], namespace: '', logger: silent };
const open = new Map();

function say(...words) {
  process.stdout.write(words.join('\t') + '\n');
}

async function started(key, make) {
  if (!open.has(key)) {
    const client = make();
    await client.startup();
    open.set(key, client);
  }
  return open.get(key);
}

// It never starts where it is given several topics and settings come before routes.
function producer(topic) {
  const check = async message => {
    say('checked', message.body);
    return TransactionResolution.COMMIT;
  };
  return started(topic, () => new Producer({ ...shared, topics: [ topic ], checker: { check } }));
}

const commands = {
  async send(topic, kind, value, body) {
    const message = { topic, body: Buffer.from(body) };
    if (kind === 'NORMAL' && value) message.tag = value;
    if (kind === 'FIFO') message.messageGroup = value;
    if (kind === 'DELAY') message.delay = Number(value) * 1000;
    if (kind === 'PRIORITY') message.priority = Number(value);
    return [ (await (await producer(topic)).send(message)).recallHandle ];
  },

  async transact(topic, end, body) {
    const transaction = (await producer(topic)).beginTransaction();
    await (await producer(topic)).send({ topic, body: Buffer.from(body) }, transaction);
    if (end !== 'nothing') await transaction[end]();
  },

  async recall(topic, handle) {
    await (await producer(topic)).recallMessage(topic, handle);
  },

  async push(consumerGroup, topic, tag) {
    async function consume({ deliveryAttempt, body }) {
      const [ what, number ] = body.toString().split(' ');
      say('handled', consumerGroup, deliveryAttempt, body);
      if (what === 'slow') {
        await new Promise(resolve => setTimeout(resolve, Number(number) * 1000));
        say('finished', consumerGroup, deliveryAttempt, body);
      }
      return what === 'fails' && deliveryAttempt <= Number(number) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }
    const subscriptions = new Map([[ topic, tag || '*' ]]);
    const options = { ...shared, consumerGroup, subscriptions, messageListener: { consume } };
    await started(consumerGroup + topic, () => new PushConsumer(options));
  },

  async receive(consumerGroup, topic, tag, end) {
    const subscriptions = new Map([[ topic, tag || '*' ]]);
    const options = { ...shared, consumerGroup, subscriptions, awaitDuration: 5000 };
    const consumer = await started(consumerGroup + topic, () => new SimpleConsumer(options));
    const messages = await consumer.receive(32, 15000);
    for (const message of messages) {
      if (end === 'ack') await consumer.ack(message);
      if (end === 'change') await consumer.changeInvisibleDuration(message, 10000);
    }
    return messages.map(({ deliveryAttempt, body }) => `${deliveryAttempt} ${body}`);
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [ what, ...words ] = line.split('\t');
    try {
      say('answer', ...(await commands[what](...words) || []));
    } catch (error) {
      say('failed', String(error).replaceAll('\n', ' '));
    }
  }
  process.exit(0);
}

main();
