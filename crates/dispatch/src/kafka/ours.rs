//! The settings of librdkafka that are not the operator's: those that have a key of their own in `[kafka]`, and those that
//! nothing accepted is lost by.

use platform::config::Invalid;

/// Each by its name in librdkafka, aliases included, and the key that stands for it; none: it has one right value.
const OURS: &[(&str, Option<&str>)] = &[
    ("bootstrap.servers", Some("kafka.brokers")),
    ("metadata.broker.list", Some("kafka.brokers")),
    ("security.protocol", Some("kafka.security_protocol")),
    ("sasl.mechanism", Some("kafka.sasl_mechanism")),
    ("sasl.mechanisms", Some("kafka.sasl_mechanism")),
    ("sasl.username", Some("kafka.username")),
    ("sasl.password", Some("kafka.password")),
    ("ssl.ca.location", Some("kafka.ca_file")),
    ("ssl.certificate.location", Some("kafka.cert_file")),
    ("ssl.key.location", Some("kafka.key_file")),
    ("ssl.key.password", Some("kafka.key_password")),
    ("group.id", Some("kafka.consumer_group")),
    ("group.instance.id", Some("kafka.instance_id")),
    ("group.protocol", Some("kafka.group_protocol")),
    ("partition.assignment.strategy", Some("kafka.group_protocol")),
    ("session.timeout.ms", Some("kafka.session_timeout")),
    ("heartbeat.interval.ms", Some("kafka.session_timeout")),
    ("linger.ms", Some("kafka.linger")),
    ("queue.buffering.max.ms", Some("kafka.linger")),
    ("compression.codec", Some("kafka.compression")),
    ("compression.type", Some("kafka.compression")),
    ("message.timeout.ms", Some("kafka.delivery_timeout")),
    ("delivery.timeout.ms", Some("kafka.delivery_timeout")),
    ("acks", None),
    ("request.required.acks", None),
    ("enable.idempotence", None),
    ("transactional.id", None),
    ("delivery.report.only.error", None),
    ("enable.auto.commit", None),
    ("auto.commit.enable", None),
    ("enable.auto.offset.store", None),
    ("offset.store.method", None),
    ("auto.offset.reset", None),
    ("enable.partition.eof", None),
    ("allow.auto.create.topics", None),
    ("test.mock.num.brokers", None),
];

/// Refuses a setting that is not the operator's.
pub(super) fn check(name: &str) -> Result<(), Invalid> {
    let Some((_, key)) = OURS.iter().find(|(ours, _)| *ours == name) else { return Ok(()) };
    let problem = match key {
        Some(key) => format!("{name:?} has a key of its own: set {key}, and take it out here"),
        None => format!("{name:?} is set by Tidegate, so that nothing accepted is lost: take it out here"),
    };
    Err(Invalid::new("kafka.client", problem))
}

/// The key to look at when librdkafka says this.
#[cfg(feature = "kafka")]
pub(super) fn blame(text: &str) -> &'static str {
    let named = OURS.iter().find(|(ours, key)| key.is_some() && text.contains(ours));
    named.and_then(|(_, key)| *key).unwrap_or("kafka.client")
}
