//! Outcomes into the database, again and again until it takes them: a lost one would be a second delivery.
//!
//! One that it never takes is told apart from those around it, and written without what was said in it: that a call was made,
//! and when the next one is due, must be known whatever the receiver's words were.

#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use platform::{crash::crash_point, problem::Chain, shutdown::TASK_PANICS};

use super::{Inner, lane::LaneKey, leases::Kept};
use crate::{
    error::Error,
    metrics as names,
    store::{NewAttempt, Record, Store},
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// In the place of words that the database does not take.
const UNSAID: &str = "what became of it could not be written; the log has the cause";

/// What became of a delivery, and what follows once that is written.
pub(super) struct Ended {
    pub(super) inner: Arc<Inner>,
    pub(super) record: Record,
    /// Of a runner: the next in its lane may go. A delivery that was put off had none.
    pub(super) runner: Option<(LaneKey, Kept)>,
    /// Something is due, or soon will be.
    pub(super) wakes_poller: bool,
}

pub(super) async fn record(store: Store, ended: Vec<Ended>) -> Result<Vec<()>, Error> {
    let count = ended.len();
    let (records, followed): (Vec<_>, Vec<_>) =
        ended.into_iter().map(|ended| (ended.record, (ended.inner, ended.runner, ended.wakes_poller))).unzip();
    // A fault of ours must not cost lanes their runners: leases that nobody renews any more end, and the deliveries are repeated.
    if AssertUnwindSafe(write(&store, records.into(), true)).catch_unwind().await.is_err() {
        metrics::counter!(TASK_PANICS, "task" => "outcomes").increment(1);
        tracing::error!(count, "Writing outcomes panicked; their deliveries will be repeated.");
    }
    for (inner, runner, wakes_poller) in followed {
        if wakes_poller {
            inner.wake.notify_one();
        }
        if let Some((key, kept)) = runner {
            drop(kept);
            inner.go_on(key);
        }
    }
    Ok(vec![(); count])
}

/// After a failure some may be written already, and by us: only at the first try is the rest fenced.
fn write(store: &Store, mut records: Arc<[Record]>, mut is_first_try: bool) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let (mut pause, mut stall) = (FIRST_PAUSE, store.stalls().watch());
        loop {
            crash_point("record.before");
            let error = match store.record(Arc::clone(&records)).await {
                Ok(written) => {
                    crash_point("record.after");
                    if is_first_try {
                        metrics::counter!(names::FENCED).increment((records.len() - written) as u64);
                    }
                    return;
                }
                Err(error) => error,
            };
            is_first_try = false;
            if error.is_transient() {
                stall.failed();
                metrics::counter!(names::OUTCOME_RETRIES).increment(1);
                tracing::warn!(
                    error = %Chain(&error), count = records.len(),
                    "Outcomes could not be written; trying again."
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            if let [lone] = &*records {
                let delivery = &lone.delivery;
                let Some(bare) = bare(lone) else {
                    return tracing::error!(
                        delivery, error = %Chain(&error),
                        "An outcome was not written; the delivery will be repeated."
                    );
                };
                tracing::error!(
                    delivery, error = %Chain(&error),
                    "An outcome could not be written; its words are left out."
                );
                records = Arc::new([bare]);
                continue;
            }
            let (first, second) = records.split_at(records.len() / 2);
            write(store, first.into(), false).await;
            return write(store, second.into(), false).await;
        }
    })
}

/// The outcome alone; `None` if there is nothing in it that could be left out.
fn bare(record: &Record) -> Option<Record> {
    let attempt = record.attempt.as_ref().filter(|_| record.last_error.as_deref() != Some(UNSAID))?;
    let error = attempt.error.as_ref().map(|_| UNSAID.to_owned());
    let attempt = NewAttempt { response_headers: None, response_body: None, error, ..attempt.clone() };
    Some(Record { last_error: Some(UNSAID.to_owned()), attempt: Some(attempt), raises: None, ..record.clone() })
}
