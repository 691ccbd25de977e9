//! Sends events in over many connections, at a rate or as fast as they are accepted.

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use indicatif::ProgressBar;
use platform::shutdown::Tasks;
use serde::Deserialize;
use tokio::{task::JoinSet, time::Instant};

use super::ID_PREFIX;
#[cfg(feature = "kafka")]
use super::straight::Straight;
use crate::{
    cli,
    command::{
        client::{Answer, Client, Refusal, Server},
        samples::{Percentiles, Samples},
    },
};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// For requests that are on their way when the run is stopped: what becomes of them belongs to the summary.
const GRACE: Duration = Duration::from_secs(2);

/// What is to be sent. Pure: an event is a function of its number.
pub(in crate::command) struct Load {
    events: u64,
    batch: u64,
    concurrency: u32,
    rate: Option<f64>,
    patience: Duration,
    run: String,
    types: Vec<String>,
    /// With subscriptions of our own each event is delivered once, so the sink may look for gaps.
    prefix: &'static str,
    /// As long as an event's data; each takes of it what it lacks.
    filler: String,
}

/// Where events go.
pub(in crate::command) enum Way<'a> {
    Api(&'a Server),
    #[cfg(feature = "kafka")]
    Topic(&'a Straight),
}

/// What one of the senders holds.
enum Sender {
    Api(Client),
    #[cfg(feature = "kafka")]
    Topic(Straight),
}

impl Way<'_> {
    fn client(&self) -> Sender {
        match self {
            Way::Api(server) => Sender::Api(server.client()),
            #[cfg(feature = "kafka")]
            Way::Topic(straight) => Sender::Topic((*straight).clone()),
        }
    }
}

/// What became of it.
#[derive(Default)]
pub(in crate::command) struct Sent {
    pub accepted: u64,
    pub rejected: u64,
    /// Requests that had to be sent again.
    pub resent: u64,
    pub problem: Option<String>,
    pub latencies: Option<Percentiles>,
    pub took: Duration,
}

#[derive(Default)]
struct Tally {
    sent: Sent,
    samples: Samples,
}

/// What the API says of a batch.
#[derive(Deserialize)]
struct Batch {
    accepted: u64,
    results: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    error: Option<Refusal>,
}

/// The type of the events for one of the run's subscriptions: nobody else is meant.
pub(in crate::command) fn event_type(arguments: &cli::Produce, run: &str, place: u64) -> String {
    format!("{}.{run}.{place}", arguments.event_type)
}

impl Load {
    pub(in crate::command) fn new(arguments: &cli::Produce, run: &str) -> Self {
        let types: Vec<String> = match arguments.subscriptions {
            0 => vec![arguments.event_type.clone()],
            many => (0..many).map(|place| event_type(arguments, run, place)).collect(),
        };
        Load {
            events: arguments.events,
            batch: arguments.batch(),
            concurrency: arguments.concurrency(),
            rate: arguments.rate,
            patience: arguments.patience,
            run: run.to_owned(),
            types,
            prefix: if arguments.subscriptions == 0 { "" } else { ID_PREFIX },
            filler: "x".repeat(arguments.size),
        }
    }

    /// Other events for the same subscriptions.
    #[cfg(feature = "bench")]
    pub(in crate::command) fn under_ids_of(self, run: String) -> Self {
        Load { run, ..self }
    }

    /// Ends early when the process is to leave, with what was sent until then.
    pub(in crate::command) async fn send(
        self,
        way: &Way<'_>,
        bar: &ProgressBar,
        tasks: &Tasks,
    ) -> anyhow::Result<Sent> {
        let started = Instant::now();
        let (load, next) = (Arc::new(self), Arc::new(AtomicU64::new(0)));
        let mut workers = JoinSet::new();
        for _ in 0..load.concurrency {
            let (load, next, bar, client) = (Arc::clone(&load), Arc::clone(&next), bar.clone(), way.client());
            let tasks = tasks.clone();
            workers.spawn(async move { load.work(client, &next, started, &bar, &tasks).await });
        }
        let mut sent = Sent::default();
        let mut samples = Vec::new();
        while let Some(tally) = workers.join_next().await {
            let tally = tally??;
            sent.accepted += tally.sent.accepted;
            sent.rejected += tally.sent.rejected;
            sent.resent += tally.sent.resent;
            sent.problem = sent.problem.or(tally.sent.problem);
            samples.push(tally.samples);
        }
        Ok(Sent { took: started.elapsed(), latencies: Samples::percentiles(&samples), ..sent })
    }

    async fn work(
        &self,
        mut client: Sender,
        next: &AtomicU64,
        started: Instant,
        bar: &ProgressBar,
        tasks: &Tasks,
    ) -> anyhow::Result<Tally> {
        let (mut tally, stopping) = (Tally::default(), tasks.leaving());
        while !stopping.is_cancelled() {
            let first = next.fetch_add(self.batch, Ordering::Relaxed);
            if first >= self.events {
                break;
            }
            let last = (first + self.batch).min(self.events);
            if let Some(rate) = self.rate {
                let turn = tokio::time::sleep_until(started + Duration::from_secs_f64(first as f64 / rate));
                if stopping.run_until_cancelled(turn).await.is_none() {
                    break;
                }
            }
            let sending = async {
                match &mut client {
                    Sender::Api(client) => self.send_batch(client, first..last, &mut tally).await,
                    #[cfg(feature = "kafka")]
                    Sender::Topic(straight) => self.send_straight(straight, first..last, &mut tally).await,
                }
            };
            tokio::select! {
                sent = sending => sent?,
                () = async { stopping.cancelled().await; tokio::time::sleep(GRACE).await } => break,
            }
            bar.set_position(bar.position().max(last));
        }
        Ok(tally)
    }

    /// Sends until the events are accepted, refused for good, or the patience is over.
    async fn send_batch(
        &self,
        client: &mut Client,
        numbers: std::ops::Range<u64>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let body = self.body(numbers.clone());
        let content_type = if self.batch == 1 { "application/json" } else { "application/x-ndjson" };
        let begun = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            let sent_at = Instant::now();
            let answer = client.post("/v1/events", content_type, body.clone()).await;
            let left = self.patience.saturating_sub(begun.elapsed());
            let asked = match answer {
                Ok(answer) => {
                    let outcome = Outcome::of(&answer, self.batch == 1)?;
                    if left.is_zero() || !outcome.is_transient {
                        tally.samples.add(sent_at.elapsed());
                        tally.sent.accepted += outcome.accepted;
                        tally.sent.rejected += numbers.end - numbers.start - outcome.accepted;
                        tally.sent.problem = tally.sent.problem.take().or(outcome.problem);
                        return Ok(());
                    }
                    answer.retry_after()
                }
                Err(error) if left.is_zero() => return Err(error),
                // It was there a moment ago, so it may be again: servers restart.
                Err(_) => None,
            };
            tally.sent.resent += 1;
            tokio::time::sleep(pause(asked.unwrap_or(wait), left)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    #[cfg(feature = "kafka")]
    async fn send_straight(
        &self,
        straight: &Straight,
        numbers: std::ops::Range<u64>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let sent_at = Instant::now();
        let (accepted, problem) = straight.send(self, numbers.clone()).await?;
        tally.samples.add(sent_at.elapsed());
        tally.sent.accepted += accepted;
        tally.sent.rejected += numbers.end - numbers.start - accepted;
        tally.sent.problem = tally.sent.problem.take().or(problem);
        Ok(())
    }

    #[cfg(feature = "kafka")]
    pub(in crate::command) fn id(&self, number: u64) -> String {
        format!("{}{}_{number}", self.prefix, self.run)
    }

    pub(in crate::command) fn body(&self, numbers: std::ops::Range<u64>) -> Bytes {
        let count = usize::try_from(numbers.end - numbers.start).unwrap_or_default();
        let mut body = String::with_capacity(count * (self.filler.len() + 200));
        for number in numbers {
            self.write_event(&mut body, number);
            body.push('\n');
        }
        body.into()
    }

    fn write_event(&self, body: &mut String, number: u64) {
        let Load { prefix, run, types, .. } = self;
        let place = usize::try_from(number % types.len() as u64).unwrap_or_default();
        let data = format!(r#"{{"run":"{run}","number":{number},"filler":""#);
        let filler = &self.filler[..self.filler.len().saturating_sub(data.len() + 2)];
        let event_type = &types[place];
        let written =
            write!(body, r#"{{"id":"{prefix}{run}_{number}","type":"{event_type}","data":{data}{filler}"}}}}"#);
        written.expect("a string takes what is written to it");
    }
}

/// Before the next request. Servers ask for a day, and for nothing at all, which would be a storm.
fn pause(wait: Duration, left: Duration) -> Duration {
    wait.max(FIRST_WAIT).min(left)
}

struct Outcome {
    accepted: u64,
    is_transient: bool,
    problem: Option<String>,
}

impl Outcome {
    /// A refusal that no resending can change, such as a wrong key, is an error.
    fn of(answer: &Answer, is_single: bool) -> anyhow::Result<Self> {
        if answer.status.is_success() && is_single {
            return Ok(Outcome { accepted: 1, is_transient: false, problem: None });
        }
        if answer.is_transient() {
            return Ok(Outcome { accepted: 0, is_transient: true, problem: Some(answer.refusal()) });
        }
        let Ok(Batch { accepted, results }) = serde_json::from_slice(&answer.body) else {
            return Err(anyhow::anyhow!(answer.refusal()));
        };
        let refusals: Vec<Refusal> = results.into_iter().filter_map(|item| item.error).collect();
        let is_transient = refusals.iter().any(|refusal| refusal.status == 429 || refusal.status >= 500);
        let problem = refusals.first().map(|refusal| format!("{} ({})", refusal.detail, refusal.code));
        Ok(Outcome { accepted, is_transient, problem })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn load(size: usize) -> Load {
        Load {
            events: 10,
            batch: 3,
            concurrency: 1,
            rate: None,
            patience: Duration::ZERO,
            run: "run".to_owned(),
            types: vec!["a.run.0".to_owned(), "a.run.1".to_owned()],
            prefix: ID_PREFIX,
            filler: "x".repeat(size),
        }
    }

    #[test]
    fn events_are_json_of_the_size_that_was_asked_for_spread_over_the_types() {
        for size in [64, 1024, 100_000] {
            let body = load(size).body(4..7);
            let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
            let events: Vec<Value> = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
            assert_eq!(events.len(), 3);
            assert_eq!((&events[0]["id"], &events[0]["type"]), (&"prd_run_4".into(), &"a.run.0".into()));
            assert_eq!((&events[1]["id"], &events[1]["type"]), (&"prd_run_5".into(), &"a.run.1".into()));
            assert_eq!(events[2]["data"].to_string().len(), size);
        }
    }

    #[test]
    fn what_a_server_asks_to_wait_has_bounds() {
        let [left, last] = [Duration::from_secs(10), FIRST_WAIT / 2];
        for (asked, left, expected) in [
            (Duration::ZERO, left, FIRST_WAIT),
            (Duration::from_secs(3), left, Duration::from_secs(3)),
            (Duration::from_secs(86_400), left, left),
            (Duration::ZERO, last, last),
        ] {
            assert_eq!(pause(asked, left), expected, "{asked:?} with {left:?} left");
        }
    }

    #[test]
    fn a_batch_is_sent_again_only_if_that_can_help() {
        let answer = |status: u16, body: &str| Answer {
            status: hyper::StatusCode::from_u16(status).unwrap(),
            headers: hyper::HeaderMap::new(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let full = r#"{"accepted": 1, "results": [{}, {"error": {"status": 503, "detail": "busy", "code": "full"}}]}"#;
        let outcome = Outcome::of(&answer(202, full), false).unwrap();
        assert_eq!((outcome.accepted, outcome.is_transient), (1, true));
        let wrong = full.replace("503", "422");
        let outcome = Outcome::of(&answer(202, &wrong), false).unwrap();
        assert_eq!((outcome.is_transient, outcome.problem.as_deref()), (false, Some("busy (full)")));
        assert!(Outcome::of(&answer(503, "{}"), true).unwrap().is_transient);
        assert!(Outcome::of(&answer(401, r#"{"detail": "no key"}"#), true).is_err());
    }
}
