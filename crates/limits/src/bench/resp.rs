//! `THROTTLE` over RESP, pipelined and not, beside throttlecrab-server; and one hot key.

use std::{io, io::Write as _, net::SocketAddr, time::Duration};

use bytes::BytesMut;
use gate::bench::Row;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    BenchError, Options, bare_script,
    load::{Contender, Load, Round, Side, compete, key, turn},
    servers::{Ours, Throttlecrab},
};

const CONNECTIONS: usize = 50;
const PIPELINED: u64 = 16;
const HOT_PER_SECOND: u64 = 1_000;
const WANTED_PIPELINED: f64 = 300_000.0;

pub(super) struct Client {
    stream: TcpStream,
    pipelined: u64,
    hot: bool,
    request: Vec<u8>,
    answers: BytesMut,
}

impl Client {
    async fn connect(addr: SocketAddr, pipelined: u64, hot: bool) -> io::Result<Client> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, pipelined, hot, request: Vec::new(), answers: BytesMut::new() })
    }

    async fn many(addr: SocketAddr, pipelined: u64) -> io::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            clients.push(Client::connect(addr, pipelined, false).await?);
        }
        Ok(clients)
    }

    fn write(&mut self, number: u64) -> io::Result<()> {
        self.request.clear();
        for n in 0..self.pipelined {
            if self.hot {
                let per_second = HOT_PER_SECOND.to_string();
                let length = per_second.len();
                write!(
                    self.request,
                    "*5\r\n$8\r\nTHROTTLE\r\n$3\r\nhot\r\n${length}\r\n{per_second}\r\n${length}\r\n{per_second}\r\n$1\r\n1\r\n",
                )?;
                continue;
            }
            let key = key(number + n);
            write!(
                self.request,
                "*5\r\n$8\r\nTHROTTLE\r\n$12\r\nuser-{key:07}\r\n$7\r\n1000000\r\n$7\r\n1000000\r\n$1\r\n1\r\n"
            )?;
        }
        Ok(())
    }
}

impl Load for Client {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        self.write(number)?;
        self.stream.write_all(&self.request).await?;
        self.answers.clear();
        // An answer is an array of five integers: six lines, the second of which says whether it is allowed.
        let (mut lines, mut read, mut admitted) = (0, 0, 0);
        while lines < self.pipelined * 6 {
            if self.stream.read_buf(&mut self.answers).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            while let Some(end) = self.answers[read..].iter().position(|byte| *byte == b'\n') {
                admitted += u64::from(lines % 6 == 1 && self.answers[read..].starts_with(b":1"));
                lines += 1;
                read += end + 1;
            }
        }
        Ok(Round { asked: self.pipelined, admitted })
    }
}

pub(super) async fn measure(
    options: &Options,
    ours: &Ours,
    peer: Option<&Throttlecrab>,
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for pipelined in [PIPELINED, 1] {
        let mut our_side = Side::new(Client::many(ours.resp, pipelined).await?);
        let mut peer_side = match peer {
            Some(peer) => Some(Side::new(Client::many(peer.resp, pipelined).await?)),
            None => None,
        };
        let mut sides: Vec<&mut dyn Contender> = vec![&mut our_side];
        sides.extend(peer_side.as_mut().map(|peer| peer as &mut dyn Contender));
        compete(options, &mut sides).await?;
        let how = if pipelined == 1 { "one at a time".to_owned() } else { format!("{pipelined} pipelined") };
        let name = |who: &str| format!("{who} RESP in memory, {how}, {CONNECTIONS} connections");
        let per_second = peer_side.as_ref().map(|peer| ("throttlecrab", peer.best.per_second()));
        rows.extend(peer_side.as_ref().map(|peer| peer.best.row(&name("throttlecrab"), None)));
        rows.push(our_side.best.row(&name("tidegate"), per_second));
        if pipelined == PIPELINED {
            rows.push(our_side.best.row(&name("tidegate"), Some(("300,000 /s: at least 1", WANTED_PIPELINED))));
        }
    }
    rows.push(hot_key(options, ours.resp, "in memory").await?);
    Ok(rows)
}

/// On Redis, beside what Redis does when the same script is sent bare.
pub(super) async fn measure_shared(options: &Options, ours: &Ours, url: &str) -> Result<Vec<Row>, BenchError> {
    let most = bare_script(url, 128, options).await?;
    let mut our_side = Side::new(Client::many(ours.resp, PIPELINED).await?);
    compete(options, &mut [&mut our_side]).await?;
    let what = format!("tidegate RESP on Redis, {PIPELINED} pipelined, {CONNECTIONS} connections");
    Ok(vec![
        our_side.best.row(&what, Some(("bare script, pipelined", most))),
        hot_key(options, ours.resp, "on Redis").await?,
    ])
}

/// One key, far above its limit: what passes is what the limit says.
async fn hot_key(options: &Options, addr: SocketAddr, place: &str) -> Result<Row, BenchError> {
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::connect(addr, PIPELINED, true).await?);
    }
    let (_, turn) = turn(clients, options.turn.max(Duration::from_secs(2))).await?;
    Ok(turn.hot_row(&format!("tidegate RESP {place}, one hot key far above its limit"), HOT_PER_SECOND))
}
