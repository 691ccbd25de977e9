//! SQLite: one writer thread that commits in groups, and a few readers.
//!
//! Every write that arrives while a commit is under way joins the next one, so a thousand concurrent writers cost a few
//! fsyncs, not a thousand. Nobody is told "done" before the commit (`synchronous = FULL`) is on disk.
//!
//! A write has a savepoint of its own: its failure undoes it alone. Large batches do without ([`Sqlite::write_batch`]):
//! SQLite walks the pages of an open savepoint after every statement, which costs more than the rows.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::Error;

const READERS: usize = 4;
/// Writes that may wait for the writer; more wait outside, in their callers.
const QUEUE: usize = 4096;
/// Writes in one commit at most, so that the first does not wait for ever.
const GROUP: usize = 1024;

/// Every write looks pages up in a dozen trees: 64 MiB of them, taken as they are used, save a read from the file each.
/// The same few pages change again and again, so moving them from the log to the file less often costs less.
const WRITER: &str = "PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 4000;";

/// More than an event and its deliveries take: where this fits, they do.
const FILL: &str = "CREATE TABLE IF NOT EXISTS room (filling BLOB); INSERT INTO room VALUES (zeroblob(262144));";
const EMPTY: &str = "DROP TABLE room";

/// Does the work (unless no transaction could begin) and returns what to do once the group's commit succeeded or failed.
type Job = Box<dyn FnOnce(Option<&Connection>) -> Done + Send>;
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;

struct Done {
    reply: Reply,
    /// It failed half-way and could not undo itself: the group must go.
    spoils_group: bool,
}

/// An open SQLite file. Cheap to clone; the writer thread ends with the last clone.
#[derive(Clone)]
pub struct Sqlite {
    path: Arc<Path>,
    writer: mpsc::Sender<Job>,
    readers: Arc<Readers>,
    /// A write found no room, or no disk, and none was tried since.
    takes_no_writes: Arc<AtomicBool>,
}

struct Readers {
    /// Opened when one is missing: each takes a fifth of a MiB.
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Sqlite {
    pub fn open(path: &Path) -> Result<Self, Error> {
        create_private(path).map_err(|error| Error::Open(path.to_owned(), error))?;
        let writer = connect(path)?;
        writer.execute_batch(WRITER)?;
        let (sender, jobs) = mpsc::channel(QUEUE);
        let takes_no_writes = Arc::<AtomicBool>::default();
        std::thread::Builder::new()
            .name("sqlite writer".to_owned())
            .spawn(move || write_in_groups(&writer, jobs))
            .map_err(|error| Error::Open(path.to_owned(), error))?;
        let readers = Arc::new(Readers { idle: Mutex::default(), permits: Semaphore::new(READERS) });
        Ok(Sqlite { path: path.into(), writer: sender, readers, takes_no_writes })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A connection of the caller's own, for work that wants its own transactions.
    pub fn connection(&self) -> Result<Connection, Error> {
        connect(&self.path)
    }

    /// Runs `work` on the writer, inside the next group commit. It returns once that commit is on disk.
    pub async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.run(|connection| in_savepoint(connection, work), false).await
    }

    /// The same for a batch whose statements are not expected to fail, at two thirds of the cost: if one does, every write
    /// of its group fails with it, and none of them is done.
    pub async fn write_batch<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.run(|connection| caught(connection, work)?.map_err(Error::from), true).await
    }

    /// Does the writer take writes? While they succeed nothing is written for the answer: who asks often costs nothing.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        if !self.takes_no_writes.load(Ordering::Relaxed) {
            return self.write(|connection| connection.execute_batch("SELECT 1")).await;
        }
        // Each in a commit of its own: what is made and dropped in one is never written.
        self.write(|connection| connection.execute_batch(FILL)).await?;
        self.write(|connection| connection.execute_batch(EMPTY)).await?;
        self.takes_no_writes.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn run<T, F>(&self, work: F, spoils_group: bool) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let takes_no_writes = Arc::clone(&self.takes_no_writes);
        let job: Job = Box::new(move |connection| {
            let outcome = connection.map(work);
            let spoils_group = spoils_group && matches!(outcome, Some(Err(_)));
            let reply: Reply = Box::new(move |committed| {
                let outcome = match outcome {
                    Some(outcome) => outcome.and_then(|value| committed.map(|()| value)),
                    None => Err(committed.err().unwrap_or(Error::Closed)),
                };
                if outcome.as_ref().is_err_and(Error::is_of_the_disk) {
                    takes_no_writes.store(true, Ordering::Relaxed);
                }
                // The caller may be gone; its write stands all the same.
                drop(sender.send(outcome));
            });
            Done { reply, spoils_group }
        });
        self.writer.send(job).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Runs `query` on a reader, beside the writer.
    pub async fn read<T, F>(&self, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        let path = Arc::clone(&self.path);
        let _permit = self.readers.permits.acquire().await.map_err(|_| Error::Closed)?;
        let answer = tokio::task::spawn_blocking(move || {
            let connection = readers.idle.lock().pop().map_or_else(|| reader(&path), Ok)?;
            let answer = query(&connection);
            readers.idle.lock().push(connection);
            Ok(answer?)
        });
        answer.await.map_err(|_| Error::Closed)?
    }
}

/// Payloads are in it: where the folder or the file is missing, it is made for its owner alone. SQLite gives its log and
/// its shared memory the file's mode. What is there already keeps the mode that somebody gave it.
fn create_private(path: &Path) -> io::Result<()> {
    make_private_folder(path.parent().unwrap_or(Path::new(".")))?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

/// The folder and those above it, for their owner alone; one that is there stays as it is.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        // Of a new file only. Most of what is written is appended, and each page costs two calls and a checksum.
        "PRAGMA page_size = 8192;
         PRAGMA busy_timeout = 5000;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

fn reader(path: &Path) -> Result<Connection, Error> {
    let connection = connect(path)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

fn write_in_groups(connection: &Connection, mut jobs: mpsc::Receiver<Job>) {
    let mut group = Vec::with_capacity(GROUP);
    while jobs.blocking_recv_many(&mut group, GROUP) > 0 {
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        // Where the disk is full, SQLite may undo the whole transaction by itself, in the middle of it.
        let transaction = || (!connection.is_autocommit()).then_some(connection);
        let done: Vec<Done> = group.drain(..).map(|job| job(transaction())).collect();
        let is_undone = begun.is_ok() && transaction().is_none();
        let is_spoilt = is_undone || done.iter().any(|done| done.spoils_group);
        let end = if is_spoilt { "ROLLBACK" } else { "COMMIT" };
        let ended = begun.and_then(|()| if is_undone { Ok(()) } else { connection.execute_batch(end) });
        let ended = ended.map_err(Arc::new);
        if !connection.is_autocommit() {
            // A failed commit may leave the transaction open; the next group needs a clean start.
            drop(connection.execute_batch("ROLLBACK"));
        }
        for Done { reply, .. } in done {
            let ended = ended.clone().map_err(Error::Commit);
            reply(if is_spoilt { ended.and(Err(Error::GroupUndone)) } else { ended });
        }
    }
}

fn in_savepoint<T>(connection: &Connection, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
    connection.execute_batch("SAVEPOINT job")?;
    let outcome = caught(connection, work);
    if connection.is_autocommit() {
        // The savepoint is gone, with the transaction.
        return outcome?.map_err(Error::from);
    }
    let end = if matches!(outcome, Ok(Ok(_))) { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    connection.execute_batch(end)?;
    outcome?.map_err(Error::from)
}

/// A panic in one write must not take the writer with it.
fn caught<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<rusqlite::Result<T>, Error> {
    catch_unwind(AssertUnwindSafe(|| work(connection))).map_err(|_| Error::Closed)
}
