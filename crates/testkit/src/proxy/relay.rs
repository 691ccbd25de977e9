//! One connection through the proxy: two directions, each a reader and a writer with a short queue between them.
//!
//! The reader stamps bytes with their time of arrival; the writer holds them for as long as the faults of the moment
//! say. A full queue stops the reader, which is how back pressure reaches the sender.

use std::{
    future, io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Direction, Faults, Weather};
use crate::fresh;

const QUEUE: usize = 64;
const CHUNK: usize = 16 << 10;
/// A thin line is fed this often, so that it is smooth.
const FEEDS_PER_SECOND: u64 = 50;

struct Chunk {
    arrived: Instant,
    /// Its share of the jitter, from 0 to 1.
    luck: f64,
    bytes: Vec<u8>,
}

pub(super) async fn connection(
    mut client: TcpStream,
    upstream: SocketAddr,
    number: u64,
    mut weather: watch::Receiver<Weather>,
) {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        reset(&client);
        return;
    };
    // Slices and small messages must leave as they are. A socket that is gone already shows in the relay.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let is_reset = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let (up, down) = (weather.clone(), weather.clone());
        let both = async {
            tokio::try_join!(
                relay(&mut from_client, &mut to_server, Direction::ToServer, up),
                relay(&mut from_server, &mut to_client, Direction::ToClient, down),
            )
        };
        tokio::select! {
            ended = both => ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset),
            is_reset = ordered_to_end(&mut weather, number) => is_reset,
        }
    };
    if is_reset {
        reset(&client);
        reset(&server);
    }
}

fn reset(stream: &TcpStream) {
    drop(stream.set_zero_linger());
}

/// True: reset. False: close.
async fn ordered_to_end(weather: &mut watch::Receiver<Weather>, number: u64) -> bool {
    let is_over = |now: &Weather| now.to_server.reset || now.to_client.reset || number < now.closed_before;
    // An error means that the proxy itself is gone.
    weather.wait_for(is_over).await.is_ok_and(|now| now.to_server.reset || now.to_client.reset)
}

async fn relay(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    direction: Direction,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let (queue, queued) = mpsc::channel(QUEUE);
    tokio::try_join!(read(from, queue), write(queued, to, Line { direction, weather, passed: 0 }))?;
    Ok(())
}

async fn read(from: &mut ReadHalf<'_>, queue: mpsc::Sender<Chunk>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let luck = f64::from(u32::try_from(fresh::random() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let chunk = Chunk { arrived: Instant::now(), luck, bytes: buffer[..count].to_vec() };
        if queue.send(chunk).await.is_err() {
            return Ok(());
        }
    }
}

async fn write(mut queued: mpsc::Receiver<Chunk>, to: &mut WriteHalf<'_>, mut line: Line) -> io::Result<()> {
    while let Some(chunk) = queued.recv().await {
        let mut rest = chunk.bytes.as_slice();
        while !rest.is_empty() {
            line.until_due(chunk.arrived, chunk.luck).await;
            let count = line.piece(rest.len())?;
            let (piece, later) = rest.split_at(count);
            to.write_all(piece).await?;
            rest = later;
            line.feed(count).await;
        }
    }
    line.until_due(Instant::now(), 0.0).await;
    to.shutdown().await
}

/// The faults of one direction, as they are at the moment.
struct Line {
    direction: Direction,
    weather: watch::Receiver<Weather>,
    passed: u64,
}

impl Line {
    fn faults(&mut self) -> Faults {
        let weather = self.weather.borrow_and_update();
        match self.direction {
            Direction::ToServer => weather.to_server.clone(),
            Direction::ToClient => weather.to_client.clone(),
        }
    }

    /// Waits out latency and black hole, and thinks again whenever the faults change.
    async fn until_due(&mut self, arrived: Instant, luck: f64) {
        loop {
            let faults = self.faults();
            let delay = faults.latency + faults.jitter.mul_f64(luck);
            let rest = delay.saturating_sub(arrived.elapsed());
            if rest.is_zero() && !faults.black_hole {
                return;
            }
            let held = async {
                match faults.black_hole {
                    true => future::pending().await,
                    false => sleep(rest).await,
                }
            };
            tokio::select! {
                () = held => (),
                changed = self.weather.changed() => if changed.is_err() { return },
            }
        }
    }

    /// How many of the waiting bytes may go in one piece. An error closes the connection: its limit is reached.
    fn piece(&mut self, waiting: usize) -> io::Result<usize> {
        let faults = self.faults();
        let mut piece = waiting;
        if let Some(slice) = faults.slice {
            piece = piece.min(slice.max(1));
        }
        if let Some(bandwidth) = faults.bandwidth {
            piece = piece.min(usize::try_from(bandwidth / FEEDS_PER_SECOND).unwrap_or(usize::MAX).max(1));
        }
        if let Some(limit) = faults.byte_limit {
            let left = limit.saturating_sub(self.passed);
            if left == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            piece = piece.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        Ok(piece)
    }

    /// After a piece: a thin line is busy with it for a while, and slices must not melt together again.
    async fn feed(&mut self, count: usize) {
        self.passed += count as u64;
        let faults = self.faults();
        match faults.bandwidth {
            Some(bandwidth) => sleep(Duration::from_secs(1).mul_f64(count as f64 / bandwidth.max(1) as f64)).await,
            None if faults.slice.is_some() => tokio::task::yield_now().await,
            None => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_as_small_as_the_smallest_limit() {
        let faults = |slice, bandwidth, byte_limit| Faults { slice, bandwidth, byte_limit, ..Faults::default() };
        for (faults, piece) in [
            (Faults::default(), Some(1000)),
            (faults(Some(3), None, None), Some(3)),
            (faults(Some(0), None, None), Some(1)),
            (faults(None, Some(5_000), None), Some(100)),
            (faults(None, Some(1), None), Some(1)),
            (faults(Some(300), Some(50_000), Some(107)), Some(7)),
            (faults(None, None, Some(100)), None),
        ] {
            let weather = Weather { to_client: faults.clone(), ..Weather::default() };
            let (_sender, weather) = watch::channel(weather);
            let mut line = Line { direction: Direction::ToClient, weather, passed: 100 };
            assert_eq!(line.piece(1000).ok(), piece, "{faults:?}");
        }
    }
}
