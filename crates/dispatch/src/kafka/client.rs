//! What producer and consumer share: settings, librdkafka's voice, and the topic.

use std::time::Duration;

use parking_lot::Mutex;
use platform::config::Invalid;
use rdkafka::{
    ClientConfig, ClientContext,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseProducer, DeliveryResult, Producer as _, ProducerContext},
};

use super::{
    config::{Compression, Config, GroupProtocol},
    ours,
};
use crate::error::Error;

/// For one question to the brokers.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of the envelope around an event's bytes, generously.
const ENVELOPE: usize = 64 << 10;

/// Has librdkafka look at every setting, as it does at the start, and connects to nobody.
pub(super) fn check(config: &Config) -> Result<(), Invalid> {
    let alone = |mut client: ClientConfig| {
        client.remove("bootstrap.servers");
        client
    };
    let made: Result<BaseProducer<Quiet>, _> = alone(producer(config, 0)).create_with_context(Quiet);
    let made = made.map(drop).and_then(|()| {
        let made: Result<BaseConsumer<Quiet>, _> = alone(consumer(config)).create_with_context(Quiet);
        made.map(drop)
    });
    made.map_err(|error| {
        let said = match error {
            KafkaError::ClientConfig(_, said, name, _) if !said.contains(&name) => format!("{name}: {said}"),
            KafkaError::ClientConfig(_, said, ..) | KafkaError::ClientCreation(said) => said,
            other => other.to_string(),
        };
        let is_theirs = config.client.keys().any(|name| ours::check(name).is_ok() && said.contains(name));
        let key = if is_theirs { "kafka.client" } else { ours::blame(&said) };
        Invalid::new(key, format!("librdkafka refuses it: {}", said.trim_end_matches('.')))
    })
}

/// Settings of every client.
fn base(config: &Config) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", &config.brokers)
        .set("client.id", "tidegate")
        // A broker that comes back is noticed at once, not after ten seconds.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "500")
        .set("socket.keepalive.enable", "true")
        .set("topic.metadata.refresh.interval.ms", "30000")
        .set_log_level(RDKafkaLogLevel::Info);
    for (name, value) in &config.client {
        client.set(name, value.expose());
    }
    client
}

/// Idempotent and acknowledged by all in-sync replicas. The operator's own settings come first, so these always hold.
pub(super) fn producer(config: &Config, max_event: usize) -> ClientConfig {
    let compression = match config.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Gzip => "gzip",
        Compression::Snappy => "snappy",
        Compression::Zstd => "zstd",
    };
    let mut client = base(config);
    let largest = (max_event + ENVELOPE).max(1_000_000).to_string();
    let usual = [
        ("batch.size", "131072"),
        ("batch.num.messages", "10000"),
        ("queue.buffering.max.messages", "200000"),
        ("queue.buffering.max.kbytes", "131072"),
        ("message.max.bytes", &largest),
        // As Kafka's own clients do it, so that theirs and ours put a key into the same partition.
        ("partitioner", "murmur2_random"),
    ];
    set_usual(&mut client, config, &usual);
    client
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", (config.linger.as_micros() as f64 / 1000.0).to_string())
        .set("compression.codec", compression)
        .set("message.timeout.ms", config.delivery_timeout.as_millis().to_string());
    client
}

/// What the operator may set otherwise.
fn set_usual(client: &mut ClientConfig, config: &Config, usual: &[(&str, &str)]) {
    for (name, value) in usual.iter().filter(|(name, _)| !config.client.contains_key(*name)) {
        client.set(*name, *value);
    }
}

/// Offsets are committed by hand, after the rows are written; a new group begins with the oldest record. Ours come last here too.
pub(super) fn consumer(config: &Config) -> ClientConfig {
    let mut client = base(config);
    let usual =
        [("fetch.wait.max.ms", "100"), ("fetch.error.backoff.ms", "100"), ("queued.max.messages.kbytes", "16384")];
    set_usual(&mut client, config, &usual);
    client
        .set("group.id", &config.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "false")
        .set("allow.auto.create.topics", "false");
    match config.group_protocol {
        GroupProtocol::Consumer => client.set("group.protocol", "consumer"),
        GroupProtocol::Classic => client
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", config.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (config.session_timeout.as_millis() / 12).clamp(100, 3000).to_string()),
    };
    if let Some(instance) = &config.instance_id {
        client.set("group.instance.id", instance);
    }
    client
}

/// Makes the topic where it is missing, and looks at it. Blocks; returns how many partitions it has.
pub(super) fn prepare_topic(config: &Config, max_event: usize) -> Result<usize, KafkaError> {
    let partitions = find_topic(config)?;
    if partitions > 0 {
        if usize::try_from(config.partitions).is_ok_and(|wanted| partitions < wanted) {
            tracing::warn!(
                topic = config.topic,
                partitions,
                wanted = config.partitions,
                "The topic has fewer partitions than kafka.partitions: add some, or lower the setting."
            );
        }
        return Ok(partitions);
    }
    create_topic(config, max_event)?;
    find_topic(config)
}

/// How many partitions the topic has; 0 when there is none.
fn find_topic(config: &Config) -> Result<usize, KafkaError> {
    // Asked for by name, a topic might be made by the broker, with too few partitions: all names are asked for.
    let client: BaseProducer<Quiet> = base(config).create_with_context(Quiet)?;
    let metadata = client.client().fetch_metadata(None, PATIENCE)?;
    let topic = metadata.topics().iter().find(|topic| topic.name() == config.topic);
    Ok(topic.map_or(0, |topic| topic.partitions().len()))
}

fn create_topic(config: &Config, max_event: usize) -> Result<(), KafkaError> {
    let admin: AdminClient<Quiet> = base(config).create_with_context(Quiet)?;
    let largest = (max_event + ENVELOPE).max(1_048_588).to_string();
    let replication = TopicReplication::Fixed(config.replication.unwrap_or(-1));
    let topic = NewTopic::new(&config.topic, config.partitions, replication)
        // One clock for all replicas: the broker's.
        .set("message.timestamp.type", "LogAppendTime")
        .set("max.message.bytes", &largest);
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let made = tokio::runtime::Handle::current().block_on(admin.create_topics([&topic], &options))?;
    match made.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) | None => Ok(()),
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
        Some(Ok(_)) => {
            tracing::info!(topic = config.topic, partitions = config.partitions, "The topic was made.");
            Ok(())
        }
    }
}

/// Ends the topic and all that is in it. Where nobody reads or writes it any more: whoever does may make it anew.
pub async fn delete_topic(config: &Config) -> Result<(), Error> {
    let admin: AdminClient<Quiet> = base(config).create_with_context(Quiet)?;
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let deleted = admin.delete_topics(&[&config.topic], &options).await?;
    match deleted.into_iter().next() {
        Some(Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) | None => Ok(()),
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code).into()),
    }
}

/// Logs an error once until all is well: a broker that is away is told of once for each way in which librdkafka says it, and
/// not five times a second.
#[derive(Default)]
pub(super) struct Voice {
    said: Mutex<Vec<Option<RDKafkaErrorCode>>>,
}

impl Voice {
    pub(super) fn error(&self, error: &KafkaError, reason: &str) {
        if self.is_news(error.rdkafka_error_code()) {
            tracing::warn!(%error, reason, "Kafka reports a problem.");
        }
    }

    pub(super) fn is_news(&self, code: Option<RDKafkaErrorCode>) -> bool {
        let mut said = self.said.lock();
        let is_news = !said.contains(&code);
        if is_news {
            said.push(code);
        }
        is_news
    }

    pub(super) fn is_well(&self) {
        self.said.lock().clear();
    }

    /// librdkafka repeats itself; what matters arrives as an error as well.
    pub(super) fn log(&self, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }
}

/// For questions that no one listens to.
pub(super) struct Quiet;

impl ProducerContext for Quiet {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

impl ConsumerContext for Quiet {}

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka reports a problem.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_away_is_told_of_once_for_each_way_of_saying_it() {
        let voice = Voice::default();
        let codes = [RDKafkaErrorCode::SSL, RDKafkaErrorCode::AllBrokersDown].map(Some);
        assert_eq!(codes.map(|code| voice.is_news(code)), [true, true]);
        assert_eq!(codes.map(|code| voice.is_news(code)), [false, false], "librdkafka says both again and again");
        voice.is_well();
        assert_eq!(codes.map(|code| voice.is_news(code)), [true, true]);
    }
}
