//! Keeping the line to Redis up: one dialling task, never more than two dials a second.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::connection::Connection;
use super::url::Topology;
use crate::tasks::Tasks;

/// The least time between two dials.
const DIAL_EVERY: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const DIAL_DEADLINE: Duration = Duration::from_secs(3);

/// Whether Redis can be reached, as last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Dialling,
    Connected,
    Down,
}

/// The line as callers see it. The generation grows with each connection.
#[derive(Clone)]
pub(super) struct Line {
    generation: u64,
    state: State,
}

#[derive(Clone)]
enum State {
    Dialling,
    Up(Connection),
    Down,
}

impl Line {
    pub(super) fn connected(&self) -> Option<(Connection, u64)> {
        match &self.state {
            State::Up(connection) => Some((connection.clone(), self.generation)),
            State::Dialling | State::Down => None,
        }
    }

    pub(super) fn is_dialling(&self) -> bool {
        matches!(self.state, State::Dialling)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn status(&self) -> Status {
        match self.state {
            State::Dialling => Status::Dialling,
            State::Up(_) => Status::Connected,
            State::Down => Status::Down,
        }
    }
}

/// Asks for a new connection in place of the one with this generation; asking twice dials once.
#[derive(Clone)]
pub(super) struct Request {
    sender: mpsc::Sender<u64>,
}

impl Request {
    pub(super) fn ask(&self, generation: u64) {
        // A full queue already holds a request for this generation.
        self.sender.try_send(generation).ok();
    }
}

pub(super) fn start(topology: Topology, root: Option<Vec<u8>>, tasks: &Tasks) -> (watch::Receiver<Line>, Request) {
    let (line, seen) = watch::channel(Line { generation: 0, state: State::Dialling });
    let (sender, requests) = mpsc::channel(16);
    tasks.spawn(keep_up(Arc::new(topology), root, line, requests));
    (seen, Request { sender })
}

async fn keep_up(
    topology: Arc<Topology>,
    root: Option<Vec<u8>>,
    line: watch::Sender<Line>,
    mut requests: mpsc::Receiver<u64>,
) {
    loop {
        dial_until_up(&topology, root.as_deref(), &line).await;
        let current = line.borrow().generation;
        loop {
            match requests.recv().await {
                Some(generation) if generation == current => break,
                Some(_) => (),
                None => return,
            }
        }
        line.send_modify(|line| line.state = State::Dialling);
    }
}

async fn dial_until_up(topology: &Topology, root: Option<&[u8]>, line: &watch::Sender<Line>) {
    let mut failures: u32 = 0;
    loop {
        let dialled = tokio::time::timeout(DIAL_DEADLINE, Connection::dial(topology, root)).await;
        let reason = match dialled {
            Ok(Ok(connection)) => {
                line.send_modify(|line| {
                    line.generation += 1;
                    line.state = State::Up(connection);
                });
                info!("Redis is connected.");
                // Also spaces the dials of a server that accepts and then hangs up.
                return sleep(DIAL_EVERY).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {DIAL_DEADLINE:?}"),
        };
        if failures == 0 {
            warn!(%reason, "Redis cannot be reached; dialling on in the background.");
        }
        line.send_modify(|line| line.state = State::Down);
        sleep(backoff(failures)).await;
        failures = failures.saturating_add(1);
    }
}

/// Full jitter over a doubling range, on top of the least spacing.
fn backoff(failures: u32) -> Duration {
    let ceiling = DIAL_EVERY.saturating_mul(1 << failures.min(8)).min(LONGEST_BACKOFF);
    DIAL_EVERY + ceiling.mul_f64(fastrand::f64()).saturating_sub(DIAL_EVERY)
}

/// A broken line, or a server that is no longer the one that may be written to.
pub(super) fn is_line_dead(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => !error.is_timeout(),
        ErrorKind::Server(kind) => {
            matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_are_never_closer_than_half_a_second_nor_further_than_the_cap() {
        for failures in 0..40 {
            let wait = backoff(failures);
            assert!(wait >= DIAL_EVERY && wait <= LONGEST_BACKOFF, "{wait:?} after {failures}");
        }
    }
}
