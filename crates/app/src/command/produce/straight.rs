//! Straight into Kafka's topic, past the API: the same events in the records that intake would write.

use std::{ops::Range, time::Duration};

use anyhow::{Context, bail};
use dispatch::kafka::{Outgoing, Producer, VERSION};
use platform::shutdown::Tasks;

use super::load::Load;
use crate::config::{self, Layers};

/// For Kafka to take a batch. A load may queue for longer than a caller of the API would wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where records go, and for whom. Cheap to clone.
#[derive(Clone)]
pub(in crate::command) struct Straight {
    producer: Producer,
    tenant: String,
}

impl Straight {
    /// To the topic that the layers name. `size`: of the largest event's data.
    pub(in crate::command) async fn open(
        layers: &Layers,
        size: usize,
        tenant: Option<&str>,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        let mut config = config::kafka_only(layers)?;
        config.delivery_timeout = PATIENCE;
        let brokers = config.brokers.clone();
        let producer = Producer::start(config, size.max(1 << 20), tasks).await?;
        if producer.is_away() {
            bail!("Kafka at {brokers} does not answer: check its address and that it runs");
        }
        Ok(Straight { producer, tenant: tenant.unwrap_or(tenancy::door::DEFAULT_TENANT).to_owned() })
    }

    /// Returns how many records Kafka has, and the first refusal.
    pub(super) async fn send(&self, load: &Load, numbers: Range<u64>) -> anyhow::Result<(u64, Option<String>)> {
        let body = load.body(numbers.clone());
        let keys: Vec<String> = numbers.map(|number| load.id(number)).collect();
        let values = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let (tenant, mut records) = (self.tenant.as_str(), Vec::with_capacity(keys.len()));
        for (key, value) in keys.iter().zip(values) {
            // The value holds the id, and produce waited until every worker knows its subscriptions.
            let (id, catalog_version, traceparent) = (None, 0, None);
            records.push(Outgoing { version: VERSION, tenant, key, id, value, catalog_version, traceparent });
        }
        let sent = self.producer.send_all(&records).await;
        let problem = sent.iter().find_map(|sent| sent.as_ref().err()).map(ToString::to_string);
        let accepted = sent.iter().filter(|sent| sent.is_ok()).count();
        Ok((u64::try_from(accepted).context("a count of records")?, problem))
    }
}
