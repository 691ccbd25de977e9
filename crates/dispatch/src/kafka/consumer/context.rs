//! What the client calls back, on the thread that reads: partitions that come and go, commits that were answered, its own words.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use rdkafka::{
    ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::{KafkaError, KafkaResult},
};

use super::Shared;
use crate::metrics as names;

pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        self.shared.voice.log(facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.shared.voice.error(&error, reason);
    }
}

impl ConsumerContext for Context {
    fn commit_callback(&self, done: KafkaResult<()>, offsets: &TopicPartitionList) {
        if done.is_err() {
            let mut tracker = self.shared.tracker.lock();
            for element in offsets.elements() {
                if let Offset::Offset(next) = element.offset() {
                    tracker.restore(element.partition(), next);
                }
            }
        }
        self.shared.report(done, "commit");
    }

    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        metrics::counter!(names::KAFKA_REBALANCES, "kind" => "revoke").increment(1);
        let is_lost = consumer.assignment_lost();
        // Who leaves has waited already.
        if !is_lost && !self.shared.is_leaving.load(Relaxed) {
            self.shared.wait_until_idle(&partitions);
        }
        let mut ready = Vec::new();
        {
            let mut tracker = self.shared.tracker.lock();
            for partition in &partitions {
                ready.extend(tracker.revoke(*partition).map(|next| (*partition, next)));
            }
        }
        self.shared.tell_held();
        // Whoever lost a partition has no say in it any more.
        if !is_lost {
            self.shared.commit(consumer, &ready, CommitMode::Sync);
        }
        tracing::info!(?partitions, is_lost, "Partitions were handed over.");
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) if list.count() > 0 => {
                let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
                partitions.iter().for_each(|partition| self.shared.tracker.lock().assign(*partition));
                metrics::counter!(names::KAFKA_REBALANCES, "kind" => "assign").increment(1);
                self.shared.tell_held();
                self.shared.are_new.store(true, Relaxed);
                tracing::info!(?partitions, "Partitions were taken over.");
            }
            // A reader that failed had some, and others have them now.
            Rebalance::Assign(_) => self.shared.tell_held(),
            Rebalance::Error(error) => self.shared.voice.error(error, "while sharing partitions"),
            _ => (),
        }
    }
}
