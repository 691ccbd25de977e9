//! Group commit: what arrives while a write is under way shares the next one.
//!
//! An idle batcher writes a lone item at once, a busy one writes hundreds together. One that may linger waits a moment for those
//! hundreds while it is busy: a statement costs the database as much as dozens of rows, and several processes share it.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use platform::{problem::Chain, shutdown::Tasks};
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::error::Error;

/// Items that may wait; more are refused, so that memory stays bounded.
const QUEUE: usize = 16_384;
/// How long a full queue is waited for before the caller is told to come back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of a batch.
const LARGEST: usize = 1000;
/// After a batch of so many a batcher is busy ..
const BUSY: usize = 8;
/// .. for so long ..
const LULL: Duration = Duration::from_millis(200);
/// .. and with so many groups it waits for no more.
const ENOUGH: usize = 500;

/// What one caller wants written, and how it is told.
struct Group<I, O> {
    items: Vec<I>,
    /// `None`: nobody waits for it.
    reply: Option<oneshot::Sender<Result<Vec<O>, Error>>>,
}

/// A queue in front of a batched write. Cheap to clone.
pub(crate) struct Batcher<I, O> {
    sender: mpsc::Sender<Group<I, O>>,
    hurry: Arc<Hurry>,
}

/// Why a batch that lingers should wait no longer.
#[derive(Default)]
struct Hurry {
    /// Somebody waits for what was left to be written.
    is_urgent: AtomicBool,
    told: Notify,
}

impl Hurry {
    /// Until there is a reason to hurry, and no longer than `linger`. Who sends wakes nobody meanwhile.
    async fn linger(&self, linger: Duration, is_enough: impl FnOnce() -> bool) {
        let mut told = pin!(self.told.notified());
        // Heard from here on: a reason that came before is seen, one that comes now is told.
        told.as_mut().enable();
        if !self.is_urgent.load(Relaxed) && !is_enough() {
            timeout(linger, told).await.ok();
        }
    }
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Batcher { sender: self.sender.clone(), hurry: Arc::clone(&self.hurry) }
    }
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `write` gets a batch and answers for each item, in order; at most `writers` of them run at a time. While it is busy a batch
    /// waits for others up to `linger`, unless an urgent one is left.
    pub(crate) fn start<W, F>(tasks: &Tasks, name: &'static str, writers: usize, linger: Duration, write: W) -> Self
    where
        W: Fn(Vec<I>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<O>, Error>> + Send + 'static,
    {
        let (sender, mut waiting) = mpsc::channel::<Group<I, O>>(QUEUE);
        let writers = Arc::new(Semaphore::new(writers));
        let (spawner, hurry) = (tasks.clone(), Arc::<Hurry>::default());
        let hurries = Arc::clone(&hurry);
        tasks.spawn_servant(name, async move {
            let mut last_busy: Option<Instant> = None;
            loop {
                let Ok(writer) = Arc::clone(&writers).acquire_owned().await else { return };
                let Some(first) = waiting.recv().await else { return };
                if !linger.is_zero() && last_busy.is_some_and(|at| at.elapsed() < LULL) {
                    hurries.linger(linger, || waiting.len() >= ENOUGH).await;
                }
                hurries.is_urgent.store(false, Relaxed);
                let (mut batch, mut replies) = (first.items, Vec::new());
                replies.push((first.reply, batch.len()));
                while batch.len() < LARGEST
                    && let Ok(Group { items, reply }) = waiting.try_recv()
                {
                    replies.push((reply, items.len()));
                    batch.extend(items);
                }
                last_busy = (batch.len() >= BUSY).then(Instant::now);
                let written = write(batch);
                spawner.spawn(name, async move {
                    answer(name, written.await, replies);
                    drop(writer);
                });
            }
        });
        Batcher { sender, hurry }
    }

    /// Waits until the item is written.
    pub(crate) async fn write(&self, item: I) -> Result<O, Error> {
        self.write_all(vec![item]).await?.pop().ok_or(Error::Closed)
    }

    /// Leaves the item to be written, and waits for no more than a place in the queue. An urgent one lets nobody linger.
    pub(crate) async fn leave(&self, item: I, is_urgent: bool) -> Result<(), Error> {
        self.sender.send(Group { items: vec![item], reply: None }).await.map_err(|_| Error::Closed)?;
        if is_urgent {
            self.hurry.is_urgent.store(true, Relaxed);
        }
        if is_urgent || self.sender.max_capacity() - self.sender.capacity() >= ENOUGH {
            self.hurry.told.notify_waiters();
        }
        Ok(())
    }

    /// Waits until all of them are written; the answers are in their order.
    pub(crate) async fn write_all(&self, items: Vec<I>) -> Result<Vec<O>, Error> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let queued = timeout(PATIENCE, self.sender.send(Group { items, reply: Some(reply) })).await;
        queued.map_err(|_| Error::Busy)?.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

type Reply<O> = (Option<oneshot::Sender<Result<Vec<O>, Error>>>, usize);

fn answer<O>(name: &str, written: Result<Vec<O>, Error>, replies: Vec<Reply<O>>) {
    match written {
        Ok(outputs) => {
            let mut outputs = outputs.into_iter();
            for (reply, count) in replies {
                let outputs = outputs.by_ref().take(count).collect();
                if let Some(reply) = reply {
                    // The caller may be gone; what was written stands.
                    drop(reply.send(Ok(outputs)));
                }
            }
        }
        Err(error) => {
            // Here and not where they are answered: hundreds may share it.
            tracing::warn!(batch = name, count = replies.len(), error = %Chain(&error), "A batch failed.");
            let error = Arc::new(error);
            for reply in replies.into_iter().filter_map(|(reply, _)| reply) {
                drop(reply.send(Err(Error::Batch(Arc::clone(&error)))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batcher that lingers for a second, and the sizes of what it wrote with the times of it.
    fn lingering() -> (Batcher<u32, ()>, mpsc::UnboundedReceiver<(usize, Instant)>) {
        let (written, sizes) = mpsc::unbounded_channel();
        let write = move |batch: Vec<u32>| {
            written.send((batch.len(), Instant::now())).unwrap();
            async move { Ok(vec![(); batch.len()]) }
        };
        (Batcher::start(&Tasks::new(), "test", 1, Duration::from_secs(1), write), sizes)
    }

    async fn leave(batcher: &Batcher<u32, ()>, count: u32, is_urgent: bool) {
        for item in 0..count {
            batcher.leave(item, is_urgent).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_busy_batcher_waits_for_more_and_not_if_somebody_waits_for_it() {
        let (batcher, mut sizes) = lingering();
        let began = Instant::now();
        leave(&batcher, 3, false).await;
        assert_eq!(sizes.recv().await, Some((3, began)), "it was idle");
        leave(&batcher, 10, false).await;
        assert_eq!(sizes.recv().await, Some((10, began)), "it had little to do");
        leave(&batcher, 1, false).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        leave(&batcher, 9, false).await;
        let (size, at) = sizes.recv().await.unwrap();
        assert_eq!(size, 10);
        assert_eq!(at - began, Duration::from_secs(1));
        leave(&batcher, 9, false).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        leave(&batcher, 1, true).await;
        let (size, soon) = sizes.recv().await.unwrap();
        assert_eq!(size, 10);
        assert_eq!(soon - at, Duration::from_millis(10));
        leave(&batcher, 2 * u32::try_from(ENOUGH).unwrap(), false).await;
        let (size, at) = sizes.recv().await.unwrap();
        assert!(size > ENOUGH && at == soon, "{size} are enough, after {:?}", at - soon);
    }

    #[tokio::test]
    async fn a_write_that_panics_fails_its_own_batch_and_those_behind_it_are_written() {
        let (began, mut begun) = mpsc::unbounded_channel();
        let go_on = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&go_on);
        let write = move |batch: Vec<u32>| {
            began.send(batch.clone()).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                drop(gate.acquire().await);
                assert!(!batch.contains(&0), "on purpose");
                Ok(batch)
            }
        };
        let batcher = Batcher::start(&Tasks::new(), "test", 1, Duration::ZERO, write);
        let behind = async {
            assert_eq!(begun.recv().await, Some(vec![0, 1]));
            go_on.add_permits(1);
            batcher.write_all(vec![2, 3]).await
        };
        let (doomed, behind) = tokio::join!(batcher.write_all(vec![0, 1]), behind);
        assert!(matches!(doomed, Err(Error::Closed)), "{doomed:?}");
        assert_eq!(behind.unwrap(), [2, 3]);
        assert_eq!(batcher.write(4).await.unwrap(), 4, "it goes on");
    }
}
