//! Group commit: what arrives while a write is under way shares the next one.
//!
//! Nothing waits for a timer: an idle batcher writes a lone item at once, a busy one writes hundreds together.

use std::{future::Future, sync::Arc, time::Duration};

use platform::{problem::Chain, shutdown::Tasks};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::Error;

/// Items that may wait; more are refused, so that memory stays bounded.
const QUEUE: usize = 16_384;
/// How long a full queue is waited for before the caller is told to come back.
const PATIENCE: Duration = Duration::from_secs(1);

/// What one caller wants written, and how it is told.
struct Group<I, O> {
    items: Vec<I>,
    /// `None`: nobody waits for it.
    reply: Option<oneshot::Sender<Result<Vec<O>, Error>>>,
}

/// A queue in front of a batched write. Cheap to clone.
pub(crate) struct Batcher<I, O> {
    sender: mpsc::Sender<Group<I, O>>,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Batcher { sender: self.sender.clone() }
    }
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `write` gets a batch and answers for each item, in order; at most `writers` of them run at a time.
    pub(crate) fn start<W, F>(tasks: &Tasks, name: &'static str, largest: usize, writers: usize, write: W) -> Self
    where
        W: Fn(Vec<I>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<O>, Error>> + Send + 'static,
    {
        let (sender, mut waiting) = mpsc::channel::<Group<I, O>>(QUEUE);
        let writers = Arc::new(Semaphore::new(writers));
        let spawner = tasks.clone();
        tasks.spawn_servant(name, async move {
            loop {
                let Ok(writer) = Arc::clone(&writers).acquire_owned().await else { return };
                let Some(first) = waiting.recv().await else { return };
                let (mut batch, mut replies) = (first.items, Vec::new());
                replies.push((first.reply, batch.len()));
                while batch.len() < largest
                    && let Ok(Group { items, reply }) = waiting.try_recv()
                {
                    replies.push((reply, items.len()));
                    batch.extend(items);
                }
                let written = write(batch);
                spawner.spawn(name, async move {
                    answer(name, written.await, replies);
                    drop(writer);
                });
            }
        });
        Batcher { sender }
    }

    /// Waits until the item is written.
    pub(crate) async fn write(&self, item: I) -> Result<O, Error> {
        self.write_all(vec![item]).await?.pop().ok_or(Error::Closed)
    }

    /// Leaves the item to be written, and waits for no more than a place in the queue.
    pub(crate) async fn leave(&self, item: I) -> Result<(), Error> {
        self.sender.send(Group { items: vec![item], reply: None }).await.map_err(|_| Error::Closed)
    }

    /// Waits until all of them are written; the answers are in their order.
    pub(crate) async fn write_all(&self, items: Vec<I>) -> Result<Vec<O>, Error> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let queued = tokio::time::timeout(PATIENCE, self.sender.send(Group { items, reply: Some(reply) })).await;
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
