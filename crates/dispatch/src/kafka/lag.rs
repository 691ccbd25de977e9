//! How many records wait in each partition: those that Kafka has, less those that the group has committed.
//!
//! The brokers are asked. To the client that reads, a partition that is paused or not read yet looks empty. While they do not
//! answer the last figures stand; those of partitions that are another's by now are 0 when they next do. It outlives readers:
//! while one after the other fails, what waits for them must be seen.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
};
use tokio_util::sync::CancellationToken;

use super::{
    client::{self, Quiet},
    config::Config,
    consumer::Held,
};
use crate::metrics as names;

const EVERY: Duration = Duration::from_secs(5);
/// For one question to the brokers.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn watch(config: Config, held: Held, stopping: CancellationToken) -> Result<(), KafkaError> {
    // Of the same group, and no member of it.
    let client: Arc<BaseConsumer<Quiet>> = Arc::new(client::consumer(&config).create_with_context(Quiet)?);
    let mut shown = BTreeSet::new();
    while stopping.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        let (asked, topic, partitions) = (Arc::clone(&client), config.topic.clone(), held.lock().clone());
        let asking = tokio::task::spawn_blocking(move || ask(&asked, &topic, &partitions));
        match stopping.run_until_cancelled(asking).await {
            Some(Ok(Ok(lags))) => show(&lags, &held.lock(), &mut shown),
            Some(Ok(Err(error))) => tracing::debug!(%error, "Kafka did not say how many records wait."),
            Some(Err(_)) | None => (),
        }
    }
    // Closing it waits for its threads.
    drop(tokio::task::spawn_blocking(move || drop(client)));
    Ok(())
}

/// Of those that are still ours.
fn show(lags: &[(i32, i64)], ours: &[i32], shown: &mut BTreeSet<i32>) {
    let gauge = |partition: i32| metrics::gauge!(names::KAFKA_LAG, "partition" => partition.to_string());
    for (partition, lag) in lags.iter().filter(|(partition, _)| ours.contains(partition)) {
        gauge(*partition).set(*lag as f64);
        shown.insert(*partition);
    }
    for gone in shown.extract_if(.., |partition| !ours.contains(partition)) {
        gauge(gone).set(0.0);
    }
}

fn ask(client: &BaseConsumer<Quiet>, topic: &str, partitions: &[i32]) -> KafkaResult<Vec<(i32, i64)>> {
    if partitions.is_empty() {
        // Were they handed over, or is Kafka away?
        return client.fetch_watermarks(topic, 0, PATIENCE).map(|_| Vec::new());
    }
    let all = |offset: Offset| {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        partitions.iter().try_for_each(|partition| list.add_partition_offset(topic, *partition, offset))?;
        KafkaResult::Ok(list)
    };
    let committed = client.committed_offsets(all(Offset::Invalid)?, PATIENCE)?;
    let [begin, end] = [Offset::Beginning, Offset::End].map(|edge| client.offsets_for_times(all(edge)?, PATIENCE));
    let (begin, end) = (begin?, end?);
    let offset = |list: &TopicPartitionList, partition| {
        list.find_partition(topic, partition).and_then(|found| found.offset().to_raw()).unwrap_or(0).max(0)
    };
    let lag = |partition| offset(&end, partition) - offset(&committed, partition).max(offset(&begin, partition));
    Ok(partitions.iter().map(|partition| (*partition, lag(*partition).max(0))).collect())
}
