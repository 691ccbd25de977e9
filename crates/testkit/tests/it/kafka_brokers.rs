//! Kafka through librdkafka: one broker shared by the run, or brokers of one's own to break.

use std::{collections::BTreeSet, time::Duration};

use rdkafka::{
    ClientConfig, Message,
    consumer::{Consumer, StreamConsumer},
    error::{KafkaError, RDKafkaErrorCode::BrokerTransportFailure},
    producer::{FutureProducer, FutureRecord},
};
use testkit::{
    kafka::{Broker, Cluster},
    need,
};

const LIMIT: Duration = Duration::from_secs(60);

fn producer(brokers: &str) -> FutureProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("acks", "all").set("enable.idempotence", "true");
    config.set("linger.ms", "0").set("delivery.timeout.ms", "55000").create().unwrap()
}

/// Sends records `from..to` one after the other; returning means that the broker acknowledged every one.
async fn produce(producer: &FutureProducer, topic: &str, from: u32, to: u32) {
    for number in from..to {
        let (key, value) = (number.to_string(), format!("value {number}"));
        producer.send(FutureRecord::to(topic).key(&key).payload(&value), LIMIT).await.unwrap();
    }
}

async fn consume(brokers: &str, topic: &str, count: usize) -> BTreeSet<u32> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", topic).set("group.protocol", "consumer");
    let consumer: StreamConsumer = config.set("auto.offset.reset", "earliest").create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    let mut seen = BTreeSet::new();
    tokio::time::timeout(LIMIT, async {
        while seen.len() < count {
            let message = match consumer.recv().await {
                Ok(message) => message,
                // A broker that was killed is gone; the others still answer.
                Err(KafkaError::MessageConsumption(BrokerTransportFailure)) => continue,
                Err(error) => panic!("{error}"),
            };
            seen.insert(std::str::from_utf8(message.key().unwrap()).unwrap().parse().unwrap());
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} of {count} records read within {LIMIT:?}", seen.len()));
    seen
}

#[tokio::test]
async fn records_go_through_a_topic_of_the_shared_broker() {
    let kafka = need!(testkit::kafka());
    assert_ne!(kafka.topic(), need!(testkit::kafka()).topic());
    kafka.create_topic(3);
    produce(&producer(&kafka.brokers()), kafka.topic(), 0, 20).await;
    assert_eq!(consume(&kafka.brokers(), kafka.topic(), 20).await, (0..20).collect());
}

#[tokio::test]
async fn a_broker_killed_and_restarted_keeps_what_it_acknowledged() {
    let broker = need!(Broker::start());
    broker.create_topic("events", 2);
    let producer = producer(&broker.brokers());
    produce(&producer, "events", 0, 50).await;
    let port = broker.port();
    broker.kill();
    assert_eq!(broker.pid(), None);

    broker.restart();
    assert_eq!(broker.port(), port);
    produce(&producer, "events", 50, 60).await;
    assert_eq!(consume(&broker.brokers(), "events", 60).await, (0..60).collect());
}

#[tokio::test]
async fn three_brokers_keep_every_record_when_one_is_killed() {
    let cluster = need!(Cluster::start(3));
    cluster.create_topic("events", 3);
    let producer = producer(&cluster.brokers());
    produce(&producer, "events", 0, 30).await;
    cluster.broker(1).kill();
    produce(&producer, "events", 30, 60).await;
    assert_eq!(consume(&cluster.brokers(), "events", 60).await, (0..60).collect());
}

#[tokio::test]
async fn a_stopped_broker_acknowledges_only_once_resumed() {
    let broker = need!(Broker::start());
    broker.create_topic("events", 1);
    let producer = producer(&broker.brokers());
    produce(&producer, "events", 0, 1).await;
    broker.stop();
    let sending = produce(&producer, "events", 1, 2);
    tokio::pin!(sending);
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut sending).await.is_err());

    broker.resume();
    sending.await;
    assert_eq!(consume(&broker.brokers(), "events", 2).await, (0..2).collect());
}

#[tokio::test]
async fn apaches_own_tools_see_what_our_client_wrote() {
    let kafka = need!(testkit::kafka());
    kafka.create_topic(2);
    produce(&producer(&kafka.brokers()), kafka.topic(), 0, 5).await;
    let mut offsets = need!(testkit::kafka::tool("org.apache.kafka.tools.GetOffsetShell"));
    let output = offsets.args(["--bootstrap-server", &kafka.brokers(), "--topic", kafka.topic()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let written: u32 = text.lines().map(|line| line.rsplit(':').next().unwrap().parse::<u32>().unwrap()).sum();
    assert_eq!(written, 5, "{text}");
}
