//! The callers: plain sockets that know just enough of HTTP, so that little of the machine goes into asking.

use std::{io, net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// Who asks what.
#[derive(Clone, Copy)]
pub(super) struct Load {
    connections: usize,
    /// So many keys in turn, or the hot one.
    keys: Option<usize>,
}

impl Load {
    pub(super) fn spread(connections: usize, keys: usize) -> Load {
        Load { connections, keys: Some(keys) }
    }

    pub(super) fn hot(connections: usize) -> Load {
        Load { connections, keys: None }
    }

    fn request(&self, number: usize) -> String {
        let body = match self.keys {
            Some(keys) => {
                let scattered = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                format!("{{\"key\":\"key-{}\"}}", scattered % keys as u64)
            }
            None => "{\"key\":\"hot\"}".to_owned(),
        };
        format!(
            "POST /v1/limits/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

/// What a turn came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) operations: u64,
    pub(super) admitted: u64,
    pub(super) elapsed: Duration,
    latencies: Vec<Duration>,
}

impl Turn {
    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Percent that was not admitted, where all of it should have been.
    pub(super) fn missing(&self) -> f64 {
        100.0 * (self.operations - self.admitted) as f64 / self.operations.max(1) as f64
    }

    pub(super) fn quantile(&self, part: f64) -> Option<Duration> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
        let index = ((sorted.len() as f64 - 1.0) * part).max(0.0) as usize;
        sorted.get(index).copied()
    }

    fn join(mut self, other: Turn) -> Turn {
        self.operations += other.operations;
        self.admitted += other.admitted;
        self.latencies.extend(other.latencies);
        self
    }
}

/// Every connection asks again as soon as it is answered.
pub(super) async fn closed_loop(addr: SocketAddr, load: Load, lasting: Duration) -> io::Result<Turn> {
    let connections = connect(addr, load.connections).await?;
    let began = Instant::now();
    let one = async |(caller, mut connection): (usize, Connection)| -> io::Result<Turn> {
        let mut turn = Turn::default();
        let mut number = caller;
        while began.elapsed() < lasting {
            let sent = Instant::now();
            let is_admitted = connection.ask(&load.request(number)).await?;
            turn.latencies.push(sent.elapsed());
            turn.operations += 1;
            turn.admitted += u64::from(is_admitted);
            number += load.connections;
        }
        Ok(turn)
    };
    gather(join_all(connections.into_iter().enumerate().map(one)).await, began)
}

/// Every connection asks on a schedule, and a call that starts late counts from when it was due.
pub(super) async fn open_loop(addr: SocketAddr, load: Load, per_second: f64, lasting: Duration) -> io::Result<Turn> {
    let connections = connect(addr, load.connections).await?;
    let pause = Duration::from_secs_f64(load.connections as f64 / per_second.max(1.0));
    let began = Instant::now();
    let one = async |(caller, mut connection): (usize, Connection)| -> io::Result<Turn> {
        let mut turn = Turn::default();
        let mut due = began + pause.mul_f64(caller as f64 / load.connections as f64);
        let mut number = caller;
        while due < began + lasting {
            // Timers are as coarse as a millisecond; what is left of the way is taken in small steps.
            if let Some(early) = due.checked_duration_since(Instant::now()).filter(|early| *early > COARSE) {
                tokio::time::sleep(early - COARSE).await;
            }
            while Instant::now() < due {
                tokio::task::yield_now().await;
            }
            let is_admitted = connection.ask(&load.request(number)).await?;
            turn.latencies.push(due.elapsed());
            turn.operations += 1;
            turn.admitted += u64::from(is_admitted);
            number += load.connections;
            due += pause;
        }
        Ok(turn)
    };
    gather(join_all(connections.into_iter().enumerate().map(one)).await, began)
}

const COARSE: Duration = Duration::from_millis(1);

fn gather(turns: Vec<io::Result<Turn>>, began: Instant) -> io::Result<Turn> {
    let elapsed = began.elapsed();
    let turns = turns.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok(Turn { elapsed, ..turns.into_iter().reduce(Turn::join).unwrap_or_default() })
}

async fn connect(addr: SocketAddr, count: usize) -> io::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        connections.push(Connection { stream, buffer: Vec::with_capacity(1024) });
    }
    Ok(connections)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// One question and its whole answer: an answer is one object, and its brace is the last byte.
    async fn ask(&mut self, request: &str) -> io::Result<bool> {
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.buffer.last() == Some(&b'}') {
                break;
            }
        }
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(String::from_utf8_lossy(&self.buffer).into_owned()));
        }
        let needle = b"\"allowed\":true";
        Ok(self.buffer.windows(needle.len()).any(|part| part == needle))
    }
}
