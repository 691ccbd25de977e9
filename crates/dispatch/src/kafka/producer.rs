//! Events into the topic: a record counts once every in-sync replica has it, and nobody waits long for that.
//!
//! While Kafka is away callers are told at once: the first ones after [`Config::delivery_timeout`], the others without
//! waiting. A keeper asks the brokers now and then, also where nothing is sent, and often until they answer again; it makes the
//! topic if it is gone, and replaces a client that librdkafka gave up.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicI64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::RwLock;
use platform::{crash::crash_point, shutdown::Tasks};
use rdkafka::{
    ClientContext, Message,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext},
};
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::{
    Outgoing,
    client::{self, Voice},
    config::{Config, WhenAway},
    record::{CATALOG_HEADER, ID_HEADER, TENANT_HEADER, TRACE_HEADER, VERSION_HEADER},
};
use crate::{error::Error, metrics as names};

/// How often a Kafka that is away is asked, and one that is not.
const PROBE: Duration = Duration::from_millis(250);
const CALM: Duration = Duration::from_secs(5);
/// For an answer that nobody waits for: a Kafka that is merely slow is not away.
const PATIENCE: Duration = Duration::from_secs(3);
/// For the metadata of our topic, at least.
const METADATA: Duration = Duration::from_millis(500);

/// How long one look for reports waits for them, and the end of a client for the last look.
const REPORTS: Duration = Duration::from_millis(500);

/// What a record's place holds until it is reported, and where Kafka did not take it. Otherwise: when it did, in ms.
const PENDING: i64 = -1;
const TOO_LARGE: i64 = -2;
const REFUSED: i64 = -3;
const BUSY: i64 = -4;

/// Records that one caller waits for.
struct Batch {
    left: AtomicUsize,
    reports: Box<[AtomicI64]>,
    done: Notify,
}

/// Which record of which batch a report is for.
struct Place {
    batch: Arc<Batch>,
    place: usize,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    max_event: usize,
    client: RwLock<Arc<Client>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_away: AtomicBool,
    /// librdkafka will not go on with this client.
    is_broken: AtomicBool,
    /// Something to look at.
    trouble: Notify,
    voice: Voice,
    /// What was said of probes.
    probes: Voice,
}

impl Producer {
    /// Makes the topic if it can; a Kafka that does not answer yet is waited for in the background.
    pub async fn start(config: Config, max_event: usize, tasks: &Tasks) -> Result<Self, Error> {
        let state = Arc::new(State::default());
        let client = Client::connect(&config, max_event, &state)?;
        let producer = Producer { inner: Arc::new(Inner { config, max_event, client: RwLock::new(client), state }) };
        metrics::gauge!(names::KAFKA_AWAY).set(0.0);
        if !producer.is_well().await {
            producer.inner.state.away();
        }
        let (keeper, stopping) = (producer.clone(), tasks.stopping().clone());
        tasks.spawn("kafka keeper", async move {
            stopping.run_until_cancelled(keeper.keep()).await;
        });
        Ok(producer)
    }

    /// Events that cannot be sent go to the database instead.
    pub fn falls_back(&self) -> bool {
        self.inner.config.when_away == WhenAway::Database
    }

    pub fn is_away(&self) -> bool {
        self.inner.state.is_away.load(Relaxed)
    }

    /// Returns once Kafka has the record, with its time.
    pub async fn send(&self, record: &Outgoing<'_>) -> Result<OffsetDateTime, Error> {
        self.send_all(std::slice::from_ref(record)).await.pop().unwrap_or(Err(Error::Closed))
    }

    /// Returns once Kafka has each of the records, or the time is over; one wait for all of them.
    pub async fn send_all(&self, records: &[Outgoing<'_>]) -> Vec<Result<OffsetDateTime, Error>> {
        let Inner { config, state, .. } = &*self.inner;
        if records.is_empty() {
            return Vec::new();
        }
        if self.is_away() {
            metrics::counter!(names::KAFKA_PRODUCE_ERRORS, "reason" => "away").increment(records.len() as u64);
            return records.iter().map(|_| Err(Error::KafkaAway)).collect();
        }
        crash_point("publish.before");
        let batch = Arc::new(Batch::new(records.len()));
        let client = Arc::clone(&self.inner.client.read());
        for (place, record) in records.iter().enumerate() {
            let opaque = Box::new(Place { batch: Arc::clone(&batch), place });
            let base = BaseRecord::with_opaque_to(&config.topic, opaque)
                .key(record.key)
                .payload(record.value)
                .headers(headers(record));
            if let Err((error, _)) = client.producer.send(base) {
                batch.report(place, refusal(&error));
            }
        }
        drop(client);
        let is_late = tokio::time::timeout(config.delivery_timeout, batch.done.notified()).await.is_err();
        crash_point("publish.after");
        let results: Vec<_> = batch.reports.iter().map(|report| result(report.load(Acquire))).collect();
        let failed = results.iter().filter(|result| matches!(result, Err(Error::KafkaAway))).count();
        if failed > 0 {
            let reason = if is_late { "timeout" } else { "refused" };
            metrics::counter!(names::KAFKA_PRODUCE_ERRORS, "reason" => reason).increment(failed as u64);
            state.away();
        }
        results
    }

    /// Does Kafka answer, and is the topic there? Makes it if not.
    pub async fn probe(&self) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        let asked = tokio::task::spawn_blocking(move || {
            client::prepare_topic(&inner.config, inner.max_event)?;
            let client = Arc::clone(&inner.client.read());
            // Who gives Kafka longer to take a record gives it as long to say that it is there.
            let patience = inner.config.delivery_timeout.max(METADATA);
            let metadata = client.producer.client().fetch_metadata(Some(&inner.config.topic), patience)?;
            let has_leader = |topic: &rdkafka::metadata::MetadataTopic| {
                topic.partitions().iter().any(|partition| partition.leader() >= 0)
            };
            if metadata.topics().iter().any(has_leader) {
                Ok(())
            } else {
                Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable))
            }
        });
        asked.await.map_err(|_| Error::Closed)?.map_err(Error::Kafka)
    }

    async fn keep(&self) {
        let state = &self.inner.state;
        loop {
            let pause = if self.is_away() { PROBE } else { CALM };
            tokio::select! { () = state.trouble.notified() => (), () = tokio::time::sleep(pause) => () }
            if state.is_broken.swap(false, Relaxed) {
                match Client::connect(&self.inner.config, self.inner.max_event, state) {
                    Ok(fresh) => {
                        let old = std::mem::replace(&mut *self.inner.client.write(), fresh);
                        // Closing waits for records under way.
                        drop(tokio::task::spawn_blocking(move || drop(old)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Kafka's client could not be made anew; trying again.");
                        state.is_broken.store(true, Relaxed);
                    }
                }
            }
            match self.is_away() {
                true if self.is_well().await => state.back(),
                false if !self.answers().await && !self.is_well().await => state.away(),
                _ => (),
            }
        }
    }

    /// A small question, to a Kafka that was there a moment ago.
    async fn answers(&self) -> bool {
        let inner = Arc::clone(&self.inner);
        let asked = tokio::task::spawn_blocking(move || {
            let client = Arc::clone(&inner.client.read());
            client.producer.client().fetch_watermarks(&inner.config.topic, 0, PATIENCE).is_ok()
        });
        asked.await.unwrap_or(false)
    }

    /// Whether a probe succeeds. Each way in which it does not is told of once.
    async fn is_well(&self) -> bool {
        let Inner { config, state, .. } = &*self.inner;
        let Err(error) = self.probe().await else { return true };
        let code = if let Error::Kafka(error) = &error { error.rdkafka_error_code() } else { None };
        if state.probes.is_news(code) {
            let Config { brokers, topic, .. } = config;
            // The brokers' own codes are positive; librdkafka's, for brokers that it does not reach, are negative.
            if matches!(error, Error::Kafka(KafkaError::AdminOp(code)) if code as i32 > 0) {
                tracing::warn!(
                    %error, topic, replication = config.replication, partitions = config.partitions,
                    "Kafka answers, and refuses to make the topic: change kafka.topic, kafka.replication or kafka.partitions, or make it yourself."
                );
            } else {
                tracing::warn!(%error, brokers, topic, "Kafka does not answer.");
            }
        }
        false
    }
}

/// A client of librdkafka, and the thread that hands out its reports. rdkafka has one too, which asks ten times a second and spins
/// through the last millisecond of each: a hundredth of a core, also where nothing is sent.
struct Client {
    producer: Arc<BaseProducer<Context>>,
    is_over: Arc<AtomicBool>,
    reports: Option<JoinHandle<()>>,
}

impl Client {
    fn connect(config: &Config, max_event: usize, state: &Arc<State>) -> Result<Arc<Self>, Error> {
        let context = Context { state: Arc::clone(state) };
        let producer: Arc<BaseProducer<Context>> =
            Arc::new(client::producer(config, max_event).create_with_context(context)?);
        let is_over = Arc::<AtomicBool>::default();
        let (polled, is_last) = (Arc::clone(&producer), Arc::clone(&is_over));
        let hand_out = move || {
            while !is_last.load(Relaxed) {
                polled.poll(REPORTS);
            }
        };
        let thread = thread::Builder::new().name("kafka reports".to_owned()).spawn(hand_out);
        let reports = thread.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Arc::new(Client { producer, is_over, reports: Some(reports) }))
    }
}

impl Drop for Client {
    /// Waits for the thread: librdkafka must have ended before the process does.
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        drop(self.reports.take().map(JoinHandle::join));
    }
}

fn headers(record: &Outgoing<'_>) -> OwnedHeaders {
    let (version, catalog_version) = (record.version.to_string(), record.catalog_version.to_string());
    let headers = OwnedHeaders::new_with_capacity(5)
        .insert(Header { key: VERSION_HEADER, value: Some(&version) })
        .insert(Header { key: TENANT_HEADER, value: Some(record.tenant) })
        .insert(Header { key: CATALOG_HEADER, value: Some(&catalog_version) });
    let headers = match record.id {
        Some(id) => headers.insert(Header { key: ID_HEADER, value: Some(id) }),
        None => headers,
    };
    match &record.traceparent {
        Some(traceparent) => headers.insert(Header { key: TRACE_HEADER, value: Some(traceparent) }),
        None => headers,
    }
}

fn at(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

impl Batch {
    fn new(records: usize) -> Self {
        let reports = (0..records).map(|_| AtomicI64::new(PENDING)).collect();
        Batch { left: AtomicUsize::new(records), reports, done: Notify::new() }
    }

    fn report(&self, place: usize, report: i64) {
        self.reports[place].store(report, Release);
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.done.notify_one();
        }
    }
}

fn refusal(error: &KafkaError) -> i64 {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => TOO_LARGE,
        Some(RDKafkaErrorCode::QueueFull) => BUSY,
        _ => REFUSED,
    }
}

fn result(report: i64) -> Result<OffsetDateTime, Error> {
    match report {
        TOO_LARGE => Err(Error::TooLargeForKafka),
        BUSY => Err(Error::Busy),
        ..0 => Err(Error::KafkaAway),
        at_ms => Ok(at(at_ms)),
    }
}

impl State {
    fn away(&self) {
        if !self.is_away.swap(true, Relaxed) {
            tracing::warn!("Kafka is away: events are refused or queue in the database until it answers.");
            metrics::gauge!(names::KAFKA_AWAY).set(1.0);
        }
        self.trouble.notify_one();
    }

    fn back(&self) {
        self.voice.is_well();
        self.probes.is_well();
        if self.is_away.swap(false, Relaxed) {
            tracing::info!("Kafka is back.");
            metrics::gauge!(names::KAFKA_AWAY).set(0.0);
        }
    }

    fn broken(&self) {
        self.is_broken.store(true, Relaxed);
        self.away();
    }
}

struct Context {
    state: Arc<State>,
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        self.state.voice.log(facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.state.voice.error(&error, reason);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.state.broken();
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Place>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Self::DeliveryOpaque) {
        let Place { batch, place } = *opaque;
        let report = match result {
            Ok(message) => message.timestamp().to_millis().unwrap_or(0),
            Err((error, _)) => refusal(error),
        };
        batch.report(place, report);
    }
}
