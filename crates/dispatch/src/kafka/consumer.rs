//! Records out of the topic: one thread reads, a task routes batches in their order, a few tasks write them.
//!
//! A batch is whatever has arrived: alone when idle; under load it waits a moment, and is hundreds. While the database does not keep
//! up, the thread pauses its partitions and goes on polling, so that the group knows it alive and memory stays bounded. Only what is
//! written is committed, in order; a partition that is taken away is waited for a moment, committed, and forgotten. A batch
//! that ends unwritten, whatever the cause, ends its reader: the next one reads its records again.

mod context;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use platform::{crash::crash_point, shutdown::Tasks};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::{BorrowedHeaders, BorrowedMessage, Headers},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::context::Context;
use super::{
    Taking,
    client::{self, Voice},
    config::Config,
    lag,
    record::Incoming,
    tenants::Tenants,
    tracker::{Mark, Tracker},
};
use crate::{error::Error, metrics as names};

/// Of one batch.
const MOST_RECORDS: usize = 1000;
const MOST_BYTES: usize = 4 << 20;
/// After a batch of so many there are more to come ..
const BUSY: usize = 50;
/// .. and the next one waits for them so long: a statement costs the database as much as dozens of rows.
const LINGER: Duration = Duration::from_millis(100);
/// Batches that are read and not yet written.
const MOST_BATCHES: usize = 4;
/// Batches that are written at a time.
const WRITERS: u32 = 2;
/// How long the thread waits for a record, or for a batch to be written.
const WAIT: Duration = Duration::from_millis(100);
/// How long reading may wait for room before its partitions are paused. What was fetched is then fetched again.
const FULL: Duration = Duration::from_secs(1);
/// How long a batch waits for room in the lanes, while it is being made, before its deliveries are anyone's to claim. Shorter than
/// reading waits.
const PATIENCE: Duration = Duration::from_millis(800);
/// What a process that is killed had written since it last committed is read again, and known.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How long a partition that is taken away, or a process that stops, waits for what is under way.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Before a client that cannot go on is replaced.
const FRESH_START: Duration = Duration::from_secs(1);

/// The partitions of this process; while a reader that failed is replaced, those that it had.
pub(super) type Held = Arc<Mutex<Vec<i32>>>;

/// What the thread, the callbacks and the writers share.
struct Shared {
    topic: String,
    tracker: Mutex<Tracker>,
    /// Batches that are handed over and not yet written.
    under_way: Mutex<usize>,
    written: Condvar,
    is_paused: AtomicBool,
    /// Partitions came since reading was last paused or resumed.
    are_new: AtomicBool,
    /// Nothing is written any more: a batch ended unwritten, or this reader has left.
    give_up: CancellationToken,
    /// The thread leaves, or has failed: its partitions are given back, not taken away.
    is_leaving: AtomicBool,
    held: Held,
    voice: Voice,
}

struct Batch {
    records: Vec<Incoming>,
    under_way: UnderWay,
}

/// A batch's place among those under way, which it leaves however it ends.
struct UnderWay {
    shared: Arc<Shared>,
    marks: Vec<Mark>,
    is_written: bool,
}

impl UnderWay {
    fn end(mut self, is_written: bool) {
        self.is_written = is_written;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.finish(&self.marks, self.is_written);
    }
}

/// Reads until shutdown.
pub(crate) fn consume(config: Config, taking: Taking, tasks: &Tasks) -> Result<(), Error> {
    // A setting that librdkafka does not know should stop the start, not a thread later on.
    client::consumer(&config).create_native_config().map_err(Error::Kafka)?;
    let (tasks, stopping) = (tasks.clone(), tasks.stopping().clone());
    let held = Held::default();
    let watching = lag::watch(config.clone(), Arc::clone(&held), stopping.clone());
    tasks.spawn("kafka lag", async move {
        if let Err(error) = watching.await {
            tracing::error!(%error, "How many records wait in Kafka cannot be told.");
        }
    });
    tasks.clone().spawn("kafka consumer", async move {
        while !stopping.is_cancelled() {
            let reader = Reader::new(&config, &taking, &held, &tasks);
            let ended = tokio::task::spawn_blocking({
                let stopping = stopping.clone();
                move || reader?.run(&stopping)
            });
            match ended.await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::error!(%error, "Reading from Kafka failed; beginning anew."),
                Err(error) => tracing::error!(%error, "The thread that reads from Kafka panicked; beginning anew."),
            }
            metrics::counter!(names::KAFKA_RESTARTS).increment(1);
            stopping.run_until_cancelled(tokio::time::sleep(FRESH_START)).await;
        }
    });
    Ok(())
}

/// Routes batches in their order, and has them written, a few at a time.
async fn route(taking: Taking, mut batches: mpsc::Receiver<Batch>, give_up: CancellationToken, tasks: Tasks) {
    let writers = Arc::new(Semaphore::new(WRITERS as usize));
    let mut tenants = Tenants::new(taking.tenants.clone());
    while let Some(Batch { records, under_way }) = batches.recv().await {
        crash_point("route.before");
        if !taking.freshen(&records, &give_up).await || !tenants.learn(&records, &give_up).await {
            return;
        }
        let room = async {
            taking.workers.wait_for_lull().await;
            taking.workers.wait_for_room(records.len(), PATIENCE).await;
        };
        give_up.run_until_cancelled(room).await;
        metrics::histogram!(names::KAFKA_BATCH).record(records.len() as f64);
        let routed = taking.route(records, &tenants);
        // A batch with a line to keep is written after all before it and before all behind it.
        let permits = if routed.is_ordered { WRITERS } else { 1 };
        let Ok(writer) = Arc::clone(&writers).acquire_many_owned(permits).await else { return };
        let (taking, give_up) = (taking.clone(), give_up.clone());
        tasks.spawn("kafka batch", async move {
            // Let go in the reverse order, also by a panic: who writes next must find that this one ended unwritten.
            let (_writer, under_way) = (writer, under_way);
            let is_written = taking.write(routed, &give_up).await;
            crash_point("batch.after");
            under_way.end(is_written);
        });
    }
}

/// The thread's own things.
struct Reader {
    consumer: BaseConsumer<Context>,
    shared: Arc<Shared>,
    batches: mpsc::Sender<Batch>,
    /// Read and not yet handed over, each under an assignment of its partition.
    strays: Vec<(u64, Incoming)>,
    /// The last batch was large.
    is_busy: bool,
    committed_at: Instant,
    /// Ever.
    has_paused: bool,
}

impl Reader {
    fn new(config: &Config, taking: &Taking, held: &Held, tasks: &Tasks) -> Result<Self, KafkaError> {
        let shared = Arc::new(Shared {
            topic: config.topic.clone(),
            tracker: Mutex::default(),
            under_way: Mutex::new(0),
            written: Condvar::new(),
            is_paused: AtomicBool::new(false),
            are_new: AtomicBool::new(false),
            give_up: CancellationToken::new(),
            is_leaving: AtomicBool::new(false),
            held: Arc::clone(held),
            voice: Voice::default(),
        });
        let context = Context { shared: Arc::clone(&shared) };
        let consumer: BaseConsumer<Context> = client::consumer(config).create_with_context(context)?;
        consumer.subscribe(&[&config.topic])?;
        let (batches, received) = mpsc::channel(MOST_BATCHES);
        let routing = route(taking.clone(), received, shared.give_up.clone(), tasks.clone());
        tasks.spawn("kafka router", routing);
        Ok(Reader {
            consumer,
            shared,
            batches,
            strays: Vec::new(),
            is_busy: false,
            committed_at: Instant::now(),
            has_paused: false,
        })
    }

    fn run(mut self, stopping: &CancellationToken) -> Result<(), Error> {
        let mut ended = Ok(());
        while !stopping.is_cancelled() {
            self.commit_when_due();
            ended = self.step();
            if ended.is_err() {
                break;
            }
        }
        self.leave();
        ended
    }

    fn step(&mut self) -> Result<(), Error> {
        if self.shared.give_up.is_cancelled() {
            return Err(Error::Panicked);
        }
        if !self.shared.wait_for_room() {
            // Long enough without room: the group must hear from us, and memory must not fill.
            self.pause();
            self.poll(WAIT)?;
            return Ok(());
        }
        self.resume();
        let mut bytes = 0;
        let mut wait = if self.strays.is_empty() { WAIT } else { Duration::ZERO };
        let linger = if self.is_busy { LINGER } else { Duration::ZERO };
        let mut until = None;
        while self.strays.len() < MOST_RECORDS && bytes < MOST_BYTES {
            match self.poll(wait)? {
                Some(size) => bytes += size,
                None => break,
            }
            wait = until.get_or_insert_with(|| Instant::now() + linger).saturating_duration_since(Instant::now());
        }
        self.is_busy = self.strays.len() >= BUSY;
        self.hand_over();
        Ok(())
    }

    /// Reads one record, if there is one; returns its size.
    fn poll(&mut self, wait: Duration) -> Result<Option<usize>, KafkaError> {
        match self.consumer.poll(wait) {
            None => Ok(None),
            Some(Ok(message)) => {
                self.shared.voice.is_well();
                let record = incoming(&message);
                let size = record.size();
                let assignment = self.shared.tracker.lock().assignment(record.partition);
                self.strays.extend(assignment.map(|assignment| (assignment, record)));
                Ok(Some(size))
            }
            Some(Err(error)) => {
                self.shared.voice.error(&error, "while reading");
                let code = error.rdkafka_error_code();
                if code == Some(RDKafkaErrorCode::Fatal) || self.consumer.client().fatal_error().is_some() {
                    return Err(error);
                }
                Ok(None)
            }
        }
    }

    fn hand_over(&mut self) {
        let mut strays = std::mem::take(&mut self.strays);
        let mut ends = BTreeMap::new();
        let marks: Vec<Mark> = {
            let mut tracker = self.shared.tracker.lock();
            // Of a partition that has left since: whoever has it now, and be it us again, reads it again.
            strays.retain(|(assignment, record)| tracker.assignment(record.partition) == Some(*assignment));
            for (assignment, record) in &strays {
                ends.insert(record.partition, (*assignment, record.offset + 1));
            }
            let begin = |(partition, (assignment, end))| tracker.begin(partition, assignment, end);
            ends.into_iter().filter_map(begin).collect()
        };
        if marks.is_empty() {
            return;
        }
        let records = strays.into_iter().map(|(_, record)| record).collect();
        *self.shared.under_way.lock() += 1;
        let under_way = UnderWay { shared: Arc::clone(&self.shared), marks, is_written: false };
        // Where nobody receives any more, what comes back is dropped, and says that it ended unwritten.
        self.batches.blocking_send(Batch { records, under_way }).ok();
    }

    fn pause(&mut self) {
        self.has_paused = true;
        let was_paused = self.shared.is_paused.swap(true, Relaxed);
        if !was_paused {
            metrics::counter!(names::KAFKA_PAUSES).increment(1);
        }
        if self.shared.are_new.swap(false, Relaxed) || !was_paused {
            self.shared.report(self.consumer.assignment().and_then(|all| self.consumer.pause(&all)), "pause");
        }
    }

    /// librdkafka remembers that a partition was paused, also while it was another's: without a word it would never be read when
    /// it comes back. Not said in the callback that takes it over: one worker in hundreds never returned from there.
    fn resume(&self) {
        let was_paused = self.shared.is_paused.swap(false, Relaxed);
        if self.shared.are_new.swap(false, Relaxed) && self.has_paused || was_paused {
            self.shared.report(self.consumer.assignment().and_then(|all| self.consumer.resume(&all)), "resume");
        }
    }

    fn commit_when_due(&mut self) {
        if self.committed_at.elapsed() < COMMIT_EVERY {
            return;
        }
        self.committed_at = Instant::now();
        let ready = self.shared.tracker.lock().take_ready();
        self.shared.commit(&self.consumer, &ready, CommitMode::Async);
    }

    /// Waits for what is under way and commits it. The group is left with the end of the client, so that others take over at
    /// once.
    fn leave(&self) {
        let partitions = self.shared.tracker.lock().partitions();
        self.shared.wait_until_idle(&partitions);
        self.shared.give_up.cancel();
        let ready = self.shared.tracker.lock().take_ready();
        self.shared.commit(&self.consumer, &ready, CommitMode::Sync);
    }
}

impl Drop for Reader {
    /// Also when it panics: the client is closed next, and what writes for it must not go on for ever.
    fn drop(&mut self) {
        self.shared.is_leaving.store(true, Relaxed);
        self.shared.give_up.cancel();
    }
}

impl Shared {
    /// Says which partitions are ours now.
    fn tell_held(&self) {
        let partitions = self.tracker.lock().partitions();
        metrics::gauge!(names::KAFKA_PARTITIONS).set(partitions.len() as f64);
        if !self.is_leaving.load(Relaxed) {
            *self.held.lock() = partitions;
        }
    }

    /// False if a moment was not enough.
    fn wait_for_room(&self) -> bool {
        let mut under_way = self.under_way.lock();
        if *under_way >= MOST_BATCHES && !self.is_paused.load(Relaxed) {
            self.written.wait_for(&mut under_way, FULL);
        }
        *under_way < MOST_BATCHES
    }

    fn finish(&self, marks: &[Mark], is_written: bool) {
        if is_written {
            let mut tracker = self.tracker.lock();
            marks.iter().for_each(|mark| tracker.finish(*mark));
        } else {
            self.give_up.cancel();
        }
        *self.under_way.lock() -= 1;
        self.written.notify_all();
    }

    fn wait_until_idle(&self, partitions: &[i32]) {
        let deadline = Instant::now() + LAST_WAIT;
        let mut under_way = self.under_way.lock();
        // What ended unwritten leaves its line open for ever: nobody waits for it.
        while *under_way > 0 && !self.tracker.lock().is_idle(partitions) && Instant::now() < deadline {
            self.written.wait_for(&mut under_way, WAIT);
        }
    }

    fn commit(&self, consumer: &BaseConsumer<Context>, ready: &[(i32, i64)], mode: CommitMode) {
        if ready.is_empty() {
            return;
        }
        let mut offsets = TopicPartitionList::with_capacity(ready.len());
        for (partition, next) in ready {
            let added = offsets.add_partition_offset(&self.topic, *partition, Offset::Offset(*next));
            self.report(added, "commit");
        }
        crash_point("commit.before");
        self.report(consumer.commit(&offsets, mode), "commit");
        crash_point("commit.after");
    }

    /// A commit that fails costs nothing but records that are read again, and known.
    fn report(&self, done: KafkaResult<()>, what: &'static str) {
        if let Err(error) = done {
            tracing::debug!(%error, what, "Kafka did not do what it was asked to.");
        }
    }
}

fn incoming(message: &BorrowedMessage<'_>) -> Incoming {
    let (mut headers, mut is_cut) = (Vec::new(), false);
    for header in message.headers().into_iter().flat_map(named) {
        // A record may have hundreds of thousands, and it will be rejected.
        let Some(header) = header else {
            is_cut = true;
            break;
        };
        headers.push(header);
    }
    Incoming {
        partition: message.partition(),
        offset: message.offset(),
        at_ms: message.timestamp().to_millis().unwrap_or(0),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().unwrap_or_default().to_vec(),
        headers,
        is_cut,
    }
}

/// The headers of a record; `None` for one whose name is not UTF-8. The client has no way to ask for its bytes, and panics.
fn named(headers: &BorrowedHeaders) -> impl Iterator<Item = Option<(String, Vec<u8>)>> {
    (0..headers.count()).map(|place| {
        let header = catch_unwind(AssertUnwindSafe(|| headers.get(place))).ok()?;
        Some((header.key.to_owned(), header.value.unwrap_or_default().to_vec()))
    })
}
