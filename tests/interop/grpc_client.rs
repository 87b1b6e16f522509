// The Rust client of RocketMQ 5, which has no push consumer; harness/grpc_clients.py says what it is told.
use std::collections::HashMap;
use std::io::{stdin, BufRead};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

fn options() -> ClientOption {
    let mut options = ClientOption::default();
    options.set_access_url(std::env::args().nth(1).unwrap());
    options.set_enable_tls(false);
    options.set_long_polling_timeout(Duration::from_secs(5));
    options
}

#[derive(Default)]
struct Clients {
    producers: HashMap<String, Producer>,
    consumers: HashMap<String, SimpleConsumer>,
}

impl Clients {
    async fn producer(&mut self, topic: &str) -> Result<&Producer, ClientError> {
        if !self.producers.contains_key(topic) {
            let mut option = ProducerOption::default();
            option.set_topics(vec![topic]);
            let check = Box::new(|_id, message: rocketmq::model::message::MessageView| {
                println!("checked\t{}", String::from_utf8_lossy(message.body()));
                TransactionResolution::COMMIT
            });
            let mut producer = Producer::new_transaction_producer(option, options(), check)?;
            producer.start().await?;
            self.producers.insert(topic.to_string(), producer);
        }
        Ok(&self.producers[topic])
    }

    async fn send(&mut self, topic: &str, kind: &str, value: &str, body: &str) -> Result<Vec<String>, ClientError> {
        let bytes = body.as_bytes().to_vec();
        let message = match kind {
            "FIFO" => MessageBuilder::fifo_message_builder(topic, bytes, value),
            "DELAY" => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
                MessageBuilder::delay_message_builder(topic, bytes, now + value.parse::<i64>().unwrap())
            }
            _ if value.is_empty() => MessageBuilder::builder().set_topic(topic).set_body(bytes),
            _ => MessageBuilder::builder().set_topic(topic).set_body(bytes).set_tag(value),
        };
        self.producer(topic).await?.send(message.build()?).await?;
        Ok(vec![])
    }

    async fn transact(&mut self, topic: &str, end: &str, body: &str) -> Result<Vec<String>, ClientError> {
        let message = MessageBuilder::transaction_message_builder(topic, body.as_bytes().to_vec()).build()?;
        let transaction = self.producer(topic).await?.send_transaction_message(message).await?;
        match end {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => (),
        }
        Ok(vec![])
    }

    async fn receive(&mut self, group: &str, topic: &str, tag: &str, end: &str) -> Result<Vec<String>, ClientError> {
        let key = format!("{group}{topic}");
        if !self.consumers.contains_key(&key) {
            let mut option = SimpleConsumerOption::default();
            option.set_consumer_group(group);
            option.set_topics(vec![topic]);
            let mut consumer = SimpleConsumer::new(option, options())?;
            consumer.start().await?;
            self.consumers.insert(key.clone(), consumer);
        }
        let consumer = &self.consumers[&key];
        let filter = FilterExpression::new(FilterType::Tag, if tag.is_empty() { "*" } else { tag });
        let mut found = vec![];
        for message in consumer.receive(topic, &filter).await? {
            if end == "ack" {
                consumer.ack(&message).await?;
            }
            found.push(format!("{} {}", message.delivery_attempt(), String::from_utf8_lossy(message.body())));
        }
        Ok(found)
    }
}

#[tokio::main]
async fn main() {
    let mut clients = Clients::default();
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split('\t').collect();
        let answer = match words[0] {
            "send" => clients.send(words[1], words[2], words[3], words[4]).await,
            "transact" => clients.transact(words[1], words[2], words[3]).await,
            _ => clients.receive(words[1], words[2], words[3], words[4]).await,
        };
        match answer {
            Ok(found) if found.is_empty() => println!("answer"),
            Ok(found) => println!("answer\t{}", found.join("\t")),
            Err(error) => println!("failed\t{}", format!("{error:?}").replace('\n', " ")),
        }
    }
    std::process::exit(0);
}
