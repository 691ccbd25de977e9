//! Kafka: a topic of one's own on the run's shared broker, and brokers of one's own to break.
//!
//! Apache's own broker in a JVM, ready in about three seconds. No client library is involved: tests bring theirs.
//! Topics are made on request only.

mod broker;
pub mod jars;
mod settings;
pub(crate) mod wire;

use std::{process::Command, sync::OnceLock};

pub use broker::{Broker, Cluster, Guarded};
pub use settings::Settings;
pub(crate) use settings::{Kafka, Node};

use crate::{Server as Kind, Unavailable, find, fresh, ledger};

/// A topic's name on the shared broker; `create_topic` makes the topic.
#[derive(Clone, Debug)]
pub struct Shared {
    port: u16,
    topic: String,
}

/// The shared broker of this run: the one `servers run` started, else one started once for this process.
pub fn shared() -> Result<Shared, Unavailable> {
    static PORT: OnceLock<Result<u16, Unavailable>> = OnceLock::new();
    let port = PORT.get_or_init(shared_port).clone()?;
    ledger::used(Kind::Kafka);
    Ok(Shared { port, topic: fresh::word() })
}

/// One of Apache's own tools by the name of its class, e.g. `org.apache.kafka.tools.ProducerPerformance`.
pub fn tool(class: &str) -> Result<Command, Unavailable> {
    let kafka = Kafka::find().map_err(|reason| Unavailable::new(Kind::Kafka, reason))?;
    Ok(kafka.tool(class))
}

fn shared_port() -> Result<u16, Unavailable> {
    static OWN: OnceLock<Broker> = OnceLock::new();
    if let Some(port) = find::port_of_the_run(Kind::Kafka)? {
        return Ok(port);
    }
    let broker = Broker::launch(&Settings::default())?;
    Ok(OWN.get_or_init(|| broker).port())
}

impl Shared {
    /// For `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// New for every call of `testkit::kafka()`. Good as a prefix for further topics and for a group's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Makes `topic()` and returns when every partition has its leader.
    ///
    /// # Panics
    /// When the broker refuses, or does not get there in time.
    pub fn create_topic(&self, partitions: u16) {
        self.create_named(&self.topic, partitions);
    }

    /// Writes a record without a key and with one header, whose name may be any bytes: no client library would.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn produce(&self, partition: i32, value: &[u8], header: (&[u8], &[u8])) {
        if let Err(error) = wire::produce(self.port, &self.topic, partition, value, header) {
            panic!("the record was not written: {error}");
        }
    }

    /// Makes a topic by a name the test chose; it should start with `topic()`.
    pub fn create_named(&self, name: &str, partitions: u16) {
        broker::create_topic(self.port, name, partitions, 1);
    }
}
