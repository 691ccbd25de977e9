//! Arguments of the commands that talk to a running Tidegate, or stand in for a receiver of its webhooks.

use std::{net::SocketAddr, time::Duration};

use clap::{Args, builder::RangedU64ValueParser};
use dispatch::delivery::Status;
use platform::secret::Secret;
use time::OffsetDateTime;

use super::parse;

/// Straight into Kafka, as fast as possible: records of a request, their bytes, and requests at a time.
const BULK_RECORDS: u64 = 1000;
const BULK_BYTES: u64 = 1 << 20;
const BULK_SENDERS: u32 = 8;

pub(super) const SINK_HELP: &str = "\
Examples:
  tidegate sink
      Shows every delivery on a line. Point a subscription at http://127.0.0.1:9999.
  tidegate sink --secret whsec_…
      Checks signatures with the secret that creating the subscription answered.
  tidegate sink --fail-rate 0.1 --delay 200ms
      Slow, and one call in ten fails: watch the retries.
  tidegate sink --quiet
      Only counts, for load: see `tidegate produce`.

Ctrl-C prints a summary: rates, duplicates, gaps in the runs of `tidegate produce`, latencies.";

pub(super) const PRODUCE_HELP: &str = "\
Examples:
  tidegate produce --events 10000
      As fast as possible, to `tidegate sink` on its default address.
  tidegate produce --events 60000 --rate 1000/s --subscriptions 100
      For a minute, over a hundred subscriptions.
  tidegate produce --events 1000000 --batch 1000 --concurrency 4
      NDJSON, a thousand events per request.
  tidegate produce --events 1000000 --kafka localhost:9092
      Straight into Kafka's topic, in bulk. With --subscriptions 0 nothing else is needed.
  tidegate produce --url https://tidegate.example --key tgk_… --sink https://sink.example
      Against another machine. The key may also be in TIDEGATE_KEY.";

pub(super) const TAIL_HELP: &str = "\
Examples:
  tidegate tail
  tidegate tail --status failed
      Only what was given up, with the reason.
  tidegate tail --subscription sub_01k9… --type order.created
  tidegate tail --url https://tidegate.example --key tgk_…";

pub(super) const REPLAY_HELP: &str = "\
Examples:
  tidegate replay --dry-run
      Counts what has failed, and sends nothing.
  tidegate replay --subscription sub_01k9… --since 2h
      What failed for one receiver in the last two hours.
  tidegate replay dlv_01k9… dlv_01k9…
      These, also if they were delivered.
  tidegate replay --subscription sub_01k9… --since 2026-11-15T08:00:00Z --missing
      Also the events that it should have got and never did, such as those sent while it was disabled.
  tidegate replay --follow job_01k9…
  tidegate replay --cancel job_01k9…

Receivers see the same webhook-id as before.";

/// Which Tidegate a command talks to.
#[derive(Args)]
pub(crate) struct Server {
    /// Where Tidegate's API is
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// An API key, where one is needed; also read from TIDEGATE_KEY
    #[arg(long)]
    key: Option<String>,
    /// The tenant to act for, with the admin key
    #[arg(long)]
    pub tenant: Option<String>,
}

#[derive(Args)]
pub(crate) struct Sink {
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9999")]
    pub addr: SocketAddr,
    /// A signing secret to verify with; may be given several times
    #[arg(long, value_name = "WHSEC")]
    pub secret: Vec<String>,
    /// Answer with this status
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..600))]
    pub status: u16,
    /// Wait this long before every answer
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, default_value = "0s")]
    pub delay: Duration,
    /// Answer this share of the calls with 500, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse::share, default_value = "0")]
    pub fail_rate: f64,
    /// Never answer
    #[arg(long)]
    pub hang: bool,
    /// One line of counts instead of a line per delivery
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
pub(crate) struct Produce {
    #[command(flatten)]
    pub server: Server,
    /// How many events
    #[arg(long, default_value_t = 10_000)]
    pub events: u64,
    /// At most so many per second, such as 1000/s [default: as fast as possible]
    #[arg(long, value_name = "EVENTS/s", value_parser = parse::rate)]
    pub rate: Option<f64>,
    /// How many subscriptions to make for them; 0: none, and do not wait
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub subscriptions: u64,
    /// Where the subscriptions point
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9999")]
    pub sink: String,
    /// A signing secret for the subscriptions, for `tidegate sink --secret` [default: made by Tidegate]
    #[arg(long, value_name = "WHSEC")]
    pub secret: Option<String>,
    /// Bytes of an event's data
    #[arg(long, value_parser = parse::size, default_value = "1KiB")]
    pub size: usize,
    /// What the events' types begin with; the run and the subscription follow
    #[arg(long = "type", value_name = "TYPE", default_value = "order.created")]
    pub event_type: String,
    /// Requests at a time [default: 64; straight into Kafka as fast as possible 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: Option<u32>,
    /// Events of one request; more than 1 are sent as NDJSON [default: 1; straight into Kafka as fast as possible 1000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch: Option<u64>,
    /// Straight into Kafka's topic instead of the API: its brokers, as host:port,host:port
    ///
    /// Without --rate and --batch it sends 1000 records at a time, or 1 MiB of them, as a producer of bulk does; with
    /// --rate one by one, each when it is due.
    ///
    /// Everything else about Kafka is read from the environment, as `serve` does: KAFKA_TOPIC, TIDEGATE__KAFKA__….
    #[cfg(feature = "kafka")]
    #[arg(long, value_name = "BROKERS")]
    pub kafka: Option<String>,
    /// Calls per second that each subscription allows
    #[arg(long, default_value_t = 10_000)]
    pub rate_limit: u32,
    /// Calls at a time that each subscription allows
    #[arg(long, default_value_t = 1000)]
    pub max_concurrency: u32,
    /// End once the events are accepted; the subscriptions stay, as with --keep
    #[arg(long)]
    pub no_wait: bool,
    /// Leave the subscriptions in place
    #[arg(long)]
    pub keep: bool,
    /// Give up when nothing was accepted or delivered for this long
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, default_value = "60s")]
    pub patience: Duration,
}

impl Produce {
    /// Past the API?
    pub(crate) fn is_straight(&self) -> bool {
        #[cfg(feature = "kafka")]
        return self.kafka.is_some();
        #[cfg(not(feature = "kafka"))]
        false
    }

    /// Nobody waits for a single record: as fast as possible, and past the API.
    fn is_bulk(&self) -> bool {
        self.is_straight() && self.rate.is_none() && self.batch.is_none()
    }

    /// Events of one request.
    pub(crate) fn batch(&self) -> u64 {
        let bulk = (BULK_BYTES / self.size.max(1) as u64).clamp(1, BULK_RECORDS);
        self.batch.unwrap_or(if self.is_bulk() { bulk } else { 1 })
    }

    /// Requests at a time.
    pub(crate) fn concurrency(&self) -> u32 {
        self.concurrency.unwrap_or(if self.is_bulk() { BULK_SENDERS } else { 64 })
    }
}

/// What `tail` shows at most of what happened before it.
pub(crate) const MOST_LINES: usize = 1000;

fn lines() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=MOST_LINES as u64)
}

#[derive(Args)]
pub(crate) struct Tail {
    #[command(flatten)]
    pub server: Server,
    /// Only deliveries in this status, such as failed or retrying
    #[arg(long, value_parser = parse::status)]
    pub status: Option<Status>,
    /// Only deliveries to this subscription
    #[arg(long, value_name = "ID")]
    pub subscription: Option<String>,
    /// Only deliveries of events with exactly this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse::exact_type)]
    pub event_type: Option<String>,
    /// Begin with this many that happened before, 1000 at most
    #[arg(long, short = 'n', default_value_t = 10, value_parser = lines())]
    pub lines: usize,
}

/// What a new job is told, and one that is there already cannot be.
const ORDER: [&str; 7] = ["deliveries", "subscription", "status", "event_types", "since", "until", "dry_run"];

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub server: Server,
    /// Deliveries, by their ids
    #[arg(value_name = "DELIVERY", conflicts_with = "missing")]
    pub deliveries: Vec<String>,
    /// Only deliveries to this subscription
    #[arg(long, value_name = "ID")]
    pub subscription: Option<String>,
    /// Only deliveries in this status; may be given several times [default: failed]
    #[arg(long, value_parser = parse::status)]
    pub status: Vec<Status>,
    /// Only events whose type matches this glob, such as order.*; may be given several times
    #[arg(long = "type", value_name = "GLOB")]
    pub event_types: Vec<String>,
    /// Only what was made since then: a time such as 2026-11-15T08:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    pub since: Option<OffsetDateTime>,
    /// Only what was made before then
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    pub until: Option<OffsetDateTime>,
    /// Also send events that a subscription wants now and has no delivery of
    #[arg(long, requires = "since")]
    pub missing: bool,
    /// Count, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Show the progress of a job that was started before
    #[arg(long, value_name = "JOB", conflicts_with_all = ORDER)]
    pub follow: Option<String>,
    /// Stop a job; what it has done stays done
    #[arg(long, value_name = "JOB", conflicts_with_all = ORDER, conflicts_with = "follow")]
    pub cancel: Option<String>,
}

#[cfg(any(test, feature = "bench"))]
impl Produce {
    /// What the flags' defaults say.
    #[cfg(feature = "bench")]
    pub(crate) fn plain() -> Self {
        Produce::parsed(&[])
    }

    fn parsed(flags: &[&str]) -> Self {
        use clap::Parser;
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            produce: Produce,
        }
        Alone::parse_from([&["produce"], flags].concat()).produce
    }
}

#[cfg(feature = "bench")]
impl Server {
    pub(crate) fn at(url: String) -> Self {
        Server { url, key: None, tenant: None }
    }
}

impl Server {
    /// The flag, or else the environment: there it is in no list of processes.
    pub(crate) fn key(&self) -> Option<Secret> {
        let key = self.key.clone().or_else(|| variable("TIDEGATE_KEY"));
        // One that was read from a file ends with a newline.
        key.as_deref().map(str::trim).filter(|key| !key.is_empty()).map(Secret::new)
    }
}

/// The person at the terminal asked for no colours: <https://no-color.org>.
pub(crate) fn wants_no_colour() -> bool {
    variable("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(flags: &[&str]) -> (u64, u32) {
        let produce = Produce::parsed(flags);
        (produce.batch(), produce.concurrency())
    }

    #[test]
    fn events_go_one_by_one_unless_asked_otherwise() {
        assert_eq!(requests(&[]), (1, 64));
        assert_eq!(requests(&["--batch", "500", "--concurrency", "4"]), (500, 4));
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn straight_into_kafka_is_bulk_unless_a_rate_or_a_batch_is_given() {
        let straight = |flags: &[&str]| requests(&[&["--kafka", "localhost:9092"], flags].concat());
        assert_eq!(straight(&[]), (1000, 8));
        assert_eq!(straight(&["--concurrency", "2"]), (1000, 2));
        assert_eq!(straight(&["--size", "64KiB"]), (16, 8));
        assert_eq!(straight(&["--size", "10MiB"]), (1, 8));
        assert_eq!(straight(&["--rate", "100/s"]), (1, 64));
        assert_eq!(straight(&["--batch", "1"]), (1, 64));
    }
}
