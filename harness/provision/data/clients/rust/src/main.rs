//! Transactional producers of rdkafka, driven by lines on standard input; each line gets one line as its answer.
//!
//! docs/matrix.md describes the commands. The answer is "ok", "error NAME MESSAGE" or "unsupported MESSAGE".

use std::collections::HashMap;
use std::io::BufRead;
use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

const LIMIT: Duration = Duration::from_secs(30);

type Reports = std::sync::mpsc::Sender<Result<(), KafkaError>>;

#[derive(Clone)]
struct Context;

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Reports>;

    fn delivery(&self, result: &DeliveryResult<'_>, reports: Self::DeliveryOpaque) {
        let report = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        let _ = reports.send(report);
    }
}

enum Failure {
    Kafka(KafkaError),
    Other(String),
    Unsupported(String),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        Failure::Kafka(error)
    }
}

#[derive(Default)]
struct Program {
    producers: HashMap<String, ThreadedProducer<Context>>,
    consumers: HashMap<String, BaseConsumer>,
    metadata: HashMap<String, ConsumerGroupMetadata>,
}

impl Program {
    fn carry_out(&mut self, words: &[&str]) -> Result<(), Failure> {
        let name = words[1];
        match words[0] {
            "open" => return self.open(name, words[2], words[3], words[4], words[5]),
            "join" => return self.join(name, words[2], words[3], words[4]),
            "leave" => {
                self.consumers.remove(name);
                return Ok(());
            }
            "close" => {
                self.producers.remove(name);
                return Ok(());
            }
            _ => {}
        }
        let producer = &self.producers[name];
        match words[0] {
            "init" => producer.init_transactions(LIMIT)?,
            "begin" => producer.begin_transaction()?,
            "commit" => producer.commit_transaction(LIMIT)?,
            "abort" => producer.abort_transaction(LIMIT)?,
            "send" => send(producer, words[2], number(words[3])? as i32, &words[4..])?,
            "offset" => self.send_offset(producer, &words[2..])?,
            other => return Err(Failure::Unsupported(format!("there is no command {other}"))),
        }
        Ok(())
    }

    fn open(&mut self, name: &str, servers: &str, id: &str, client: &str, timeout: &str) -> Result<(), Failure> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("transactional.id", id)
            .set("client.id", client)
            .set("transaction.timeout.ms", timeout)
            .set_log_level(RDKafkaLogLevel::Emerg)
            .create_with_context(Context)?;
        self.producers.insert(name.to_string(), producer);
        Ok(())
    }

    fn join(&mut self, name: &str, servers: &str, group: &str, topic: &str) -> Result<(), Failure> {
        let consumer = consumer_of(servers, group)?;
        consumer.subscribe(&[topic])?;
        let deadline = Instant::now() + LIMIT;
        while consumer.assignment()?.count() == 0 {
            if Instant::now() > deadline {
                return Err(Failure::Other("no assignment".to_string()));
            }
            consumer.poll(Duration::from_millis(100));
        }
        self.metadata.insert(name.to_string(), metadata_of(&consumer)?);
        self.consumers.insert(name.to_string(), consumer);
        Ok(())
    }

    /// The arguments are GROUP TOPIC PARTITION OFFSET [MEMBER].
    fn send_offset(&self, producer: &ThreadedProducer<Context>, words: &[&str]) -> Result<(), Failure> {
        let mut positions = TopicPartitionList::new();
        positions.add_partition_offset(words[1], number(words[2])? as i32, Offset::Offset(number(words[3])?))?;
        match words.get(4) {
            Some(member) => producer.send_offsets_to_transaction(&positions, &self.metadata[*member], LIMIT)?,
            None => {
                // The metadata of a consumer that never subscribed names the group only.
                let named = metadata_of(&consumer_of("", words[0])?)?;
                producer.send_offsets_to_transaction(&positions, &named, LIMIT)?
            }
        }
        Ok(())
    }
}

fn consumer_of(servers: &str, group: &str) -> Result<BaseConsumer, Failure> {
    let mut config = ClientConfig::new();
    config.set("group.id", group).set("enable.auto.commit", "false");
    config.set_log_level(RDKafkaLogLevel::Emerg);
    if !servers.is_empty() {
        config.set("bootstrap.servers", servers);
    }
    Ok(config.create()?)
}

fn metadata_of(consumer: &BaseConsumer) -> Result<ConsumerGroupMetadata, Failure> {
    consumer.group_metadata().ok_or_else(|| Failure::Other("no group metadata".to_string()))
}

fn number(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::Other(format!("{text} is not a number")))
}

fn send(producer: &ThreadedProducer<Context>, topic: &str, partition: i32, values: &[&str]) -> Result<(), Failure> {
    let (reports, acks) = std::sync::mpsc::channel();
    for value in values {
        let record = BaseRecord::with_opaque_to(topic, Box::new(reports.clone()))
            .partition(partition)
            .key("")
            .payload(*value);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    for _ in values {
        match acks.recv_timeout(LIMIT) {
            Ok(report) => report?,
            Err(_) => return Err(Failure::Other("a record is not acknowledged".to_string())),
        }
    }
    Ok(())
}

fn answer(result: Result<(), Failure>) -> String {
    let text = match result {
        Ok(()) => "ok".to_string(),
        Err(Failure::Unsupported(message)) => format!("unsupported {message}"),
        Err(Failure::Other(message)) => format!("error error {message}"),
        Err(Failure::Kafka(error)) => match error.rdkafka_error_code() {
            Some(code) => format!("error {code:?} {error}"),
            None => format!("error error {error}"),
        },
    };
    text.replace('\n', " ")
}

fn main() {
    let mut program = Program::default();
    println!("ok");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        println!("{}", answer(program.carry_out(&words)));
    }
}
