//! The section `[kafka]`. It is read by every binary, also by one that was built without Kafka, so that a setting that
//! cannot be obeyed is refused at the start and not passed over.

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use platform::{
    config::{Invalid, Span},
    secret::Secret,
};
use serde::Deserialize;

use super::ours;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub brokers: Vec<String>,
    pub topic: String,
    pub consumer_group: String,
    pub partitions: i32,
    pub replication: i32,
    pub when_away: WhenAway,
    pub delivery_timeout: Span,
    pub linger: Span,
    pub compression: Compression,
    pub group_protocol: GroupProtocol,
    pub session_timeout: Span,
    pub instance_id: String,
    pub security_protocol: SecurityProtocol,
    pub sasl_mechanism: String,
    pub username: String,
    pub password: Secret,
    pub ca_file: String,
    pub cert_file: String,
    pub key_file: String,
    pub key_password: Secret,
    pub client: Vec<String>,
}

/// What becomes of events while Kafka does not take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenAway {
    /// 503: the caller sends them again.
    Refuse,
    /// They queue in the database, as without Kafka.
    Database,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Lz4,
    Gzip,
    Snappy,
    Zstd,
}

/// How workers share partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupProtocol {
    /// Any broker; a dead worker's partitions move after `session_timeout`.
    Classic,
    /// Kafka 4.0 and later (KIP-848): faster hand-over; the broker says when a worker counts as dead.
    Consumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    #[serde(rename = "sasl_plaintext")]
    SaslPlaintext,
    #[serde(rename = "sasl_ssl")]
    SaslSsl,
}

#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`, separated by commas.
    pub brokers: String,
    pub topic: String,
    pub group: String,
    pub partitions: i32,
    /// `None`: what the brokers do by default.
    pub replication: Option<i32>,
    pub when_away: WhenAway,
    pub delivery_timeout: Duration,
    pub linger: Duration,
    pub compression: Compression,
    pub group_protocol: GroupProtocol,
    pub session_timeout: Duration,
    /// Set: a worker that comes back under it within the session time-out gets its partitions back without a rebalance.
    pub instance_id: Option<String>,
    /// librdkafka's own settings: security, and whatever the operator passes through.
    pub client: BTreeMap<String, Secret>,
}

/// What the rest of the configuration says.
pub struct Surroundings<'a> {
    pub is_postgres: bool,
    /// Of this machine, for a derived instance id.
    pub host: &'a str,
    /// Of the API's listener: no two processes of one machine share it.
    pub port: u16,
}

impl Config {
    /// `None` where no brokers are named.
    pub fn new(file: File, around: &Surroundings<'_>) -> Result<Option<Self>, Invalid> {
        if file.brokers.is_empty() {
            return Ok(None);
        }
        for (key, value) in [("kafka.topic", &file.topic), ("kafka.consumer_group", &file.consumer_group)] {
            check_name(key, value)?;
        }
        if matches!(file.topic.as_str(), "." | "..") {
            return Err(Invalid::new("kafka.topic", format!("Kafka takes no topic {:?}: choose a name", file.topic)));
        }
        let brokers: Vec<String> = file.brokers.iter().map(|broker| remote(broker)).collect::<Result<_, _>>()?;
        if !cfg!(feature = "kafka") {
            return Err(Invalid::new(
                "kafka.brokers",
                "this binary was built without Kafka: build it with `cargo build --features kafka`, or leave it empty",
            ));
        }
        if !around.is_postgres {
            return Err(Invalid::new(
                "kafka.brokers",
                "with Kafka, events and deliveries are kept in PostgreSQL: set database.url (DATABASE_URL) to one",
            ));
        }
        let (partitions, replication) = (file.partitions, file.replication);
        in_range("kafka.partitions", partitions, 1, 10_000)?;
        in_range("kafka.replication", replication, 0, 100)?;
        let ms = Duration::from_millis;
        let config = Config {
            brokers: brokers.join(","),
            partitions,
            replication: (replication > 0).then_some(replication),
            when_away: file.when_away,
            delivery_timeout: file.delivery_timeout.within("kafka.delivery_timeout", ms(50), ms(20_000))?,
            linger: file.linger.within("kafka.linger", ms(0), ms(1000))?,
            compression: file.compression,
            group_protocol: file.group_protocol,
            session_timeout: file.session_timeout.within("kafka.session_timeout", ms(6000), ms(1_800_000))?,
            instance_id: instance_id(&file.instance_id, around)?,
            client: client_settings(&file)?,
            topic: file.topic,
            group: file.consumer_group,
        };
        #[cfg(feature = "kafka")]
        super::client::check(&config)?;
        Ok(Some(config))
    }
}

fn check_name(key: &str, value: &str) -> Result<(), Invalid> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if value.is_empty() || value.len() > 249 || !value.chars().all(is_name) {
        return Err(Invalid::new(key, format!("{value:?} is not a Kafka name: use letters, digits, '.', '_' and '-'")));
    }
    Ok(())
}

fn in_range(key: &str, value: i32, least: i32, most: i32) -> Result<(), Invalid> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Invalid::new(key, format!("{value} is out of range: use {least} to {most}")))
}

/// Derived on request, never by default: two workers with one name would put each other out.
fn instance_id(text: &str, around: &Surroundings<'_>) -> Result<Option<String>, Invalid> {
    match text {
        "" => Ok(None),
        "auto" => {
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' };
            let host: String = around.host.chars().map(plain).collect();
            Ok(Some(format!("tidegate-{host}-{}", around.port)))
        }
        name => check_name("kafka.instance_id", name).map(|()| Some(name.to_owned())),
    }
}

fn remote(text: &str) -> Result<String, Invalid> {
    let key = "kafka.brokers";
    let wrong = || Invalid::new(key, format!("{text:?} is not a host and port: write them as \"host:9092\""));
    let bare_v6 = text.starts_with('[') && text.ends_with(']');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !bare_v6 => (host, port.parse::<u16>().map_err(|_| wrong())?),
        _ => (text, 9092),
    };
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    if !is_host || port == 0 {
        return Err(wrong());
    }
    Ok(format!("{host}:{port}"))
}

/// What this build of librdkafka has and needs no more than a name and a password.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

fn client_settings(file: &File) -> Result<BTreeMap<String, Secret>, Invalid> {
    let mut settings = BTreeMap::new();
    let protocol = match file.security_protocol {
        SecurityProtocol::Plaintext => "plaintext",
        SecurityProtocol::Ssl => "ssl",
        SecurityProtocol::SaslPlaintext => "sasl_plaintext",
        SecurityProtocol::SaslSsl => "sasl_ssl",
    };
    let (is_tls, is_sasl) = (protocol.ends_with("ssl"), protocol.starts_with("sasl"));
    if is_sasl && (file.username.is_empty() || file.password.is_empty()) {
        return Err(Invalid::new("kafka.username", "SASL needs kafka.username and kafka.password"));
    }
    if is_sasl && !MECHANISMS.contains(&file.sasl_mechanism.as_str()) {
        let problem = format!("{:?} is not one of {}", file.sasl_mechanism, MECHANISMS.join(", "));
        return Err(Invalid::new("kafka.sasl_mechanism", problem));
    }
    let has_certificates = !file.ca_file.is_empty() || !file.cert_file.is_empty();
    if has_certificates && !is_tls {
        return Err(Invalid::new(
            "kafka.security_protocol",
            "certificates are set but TLS is off: use \"ssl\" or \"sasl_ssl\"",
        ));
    }
    let files =
        [("kafka.ca_file", &file.ca_file), ("kafka.cert_file", &file.cert_file), ("kafka.key_file", &file.key_file)];
    for (key, path) in files.into_iter().filter(|(_, path)| is_tls && !path.is_empty()) {
        std::fs::read(path).map_err(|error| Invalid::new(key, format!("{path:?} could not be read: {error}")))?;
    }
    let pairs = [
        ("security.protocol", protocol, true),
        ("sasl.mechanism", file.sasl_mechanism.as_str(), is_sasl),
        ("sasl.username", file.username.as_str(), is_sasl),
        ("sasl.password", file.password.expose(), is_sasl),
        ("ssl.ca.location", file.ca_file.as_str(), is_tls),
        ("ssl.certificate.location", file.cert_file.as_str(), is_tls),
        ("ssl.key.location", file.key_file.as_str(), is_tls),
        ("ssl.key.password", file.key_password.expose(), is_tls),
    ];
    for (name, value, _) in pairs.iter().filter(|(_, value, is_on)| *is_on && !value.is_empty()) {
        settings.insert((*name).to_owned(), Secret::new(*value));
    }
    for setting in &file.client {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Invalid::new("kafka.client", format!("{setting:?} is not a setting: write \"name=value\"")));
        };
        ours::check(name.trim())?;
        settings.insert(name.trim().to_owned(), Secret::new(value.trim()));
    }
    Ok(settings)
}
