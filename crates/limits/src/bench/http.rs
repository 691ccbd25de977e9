//! Checks over HTTP/1.1: beside the bare handler, beside throttlecrab-server, and on Redis beside the bare script.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    time::Duration,
};

use bytes::BytesMut;
use gate::bench::Row;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    BenchError, Options, bare_script,
    load::{Contender, Load, Round, Side, compete, key, turn},
    servers::{Bare, Ours, Throttlecrab},
};

const CONNECTIONS: usize = 64;
const HOT_PER_SECOND: u64 = 1_000;

/// Who is asked about which key.
#[derive(Clone, Copy)]
enum Kind {
    Ours,
    OursHot,
    Throttlecrab,
}

struct Client {
    stream: TcpStream,
    kind: Kind,
    request: Vec<u8>,
    body: Vec<u8>,
    answer: BytesMut,
}

impl Client {
    async fn connect(addr: SocketAddr, kind: Kind) -> io::Result<Client> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, kind, request: Vec::new(), body: Vec::new(), answer: BytesMut::new() })
    }

    async fn many(addr: SocketAddr, kind: Kind) -> io::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            clients.push(Client::connect(addr, kind).await?);
        }
        Ok(clients)
    }

    /// Sends the body that was written, and answers the status and the body. Every answer here is one small object, so its
    /// last byte is a brace; looking at little of it leaves the machine to the servers.
    async fn send(&mut self, path: &str) -> io::Result<(u16, &[u8])> {
        self.request.clear();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.body.len()
        )?;
        self.request.extend_from_slice(&self.body);
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        while self.answer.last() != Some(&b'}') {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = self.answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        let start = self.answer.iter().rposition(|byte| *byte == b'{').unwrap_or(0);
        Ok((status.ok_or_else(|| io::Error::other("not an answer"))?, &self.answer[start..]))
    }
}

impl Load for Client {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        let key = key(number);
        self.body.clear();
        let path = match self.kind {
            Kind::Ours => {
                write!(self.body, r#"{{"key":"user-{key:07}"}}"#)?;
                "/v1/limits/check"
            }
            Kind::OursHot => {
                write!(self.body, r#"{{"key":"hot"}}"#)?;
                "/v1/limits/check"
            }
            Kind::Throttlecrab => {
                write!(
                    self.body,
                    r#"{{"key":"user-{key:07}","max_burst":1000000,"count_per_period":1000000,"period":1}}"#
                )?;
                "/throttle"
            }
        };
        match self.send(path).await? {
            (200, body) => Ok(Round { asked: 1, admitted: u64::from(body.starts_with(b"{\"allowed\":true")) }),
            (status, _) => Err(io::Error::other(format!("a check was answered with {status}")).into()),
        }
    }
}

/// A rule for every key, far above any load, and one for the hot key.
pub(super) async fn make_rules(addr: SocketAddr) -> Result<(), BenchError> {
    let mut client = Client::connect(addr, Kind::Ours).await?;
    for (key, limit) in [("*", 1_000_000), ("hot", HOT_PER_SECOND)] {
        client.body.clear();
        write!(client.body, r#"{{"key":"{key}","algorithm":"gcra","limit":{limit},"window":"1s"}}"#)?;
        match client.send("/v1/limits/rules").await? {
            (201, _) => {}
            (status, _) => return Err(io::Error::other(format!("the rule was refused with {status}")).into()),
        }
    }
    Ok(())
}

pub(super) async fn measure(
    options: &Options,
    ours: &Ours,
    bare: &Bare,
    peer: Option<&Throttlecrab>,
) -> Result<Vec<Row>, BenchError> {
    let mut our_side = Side::new(Client::many(ours.http, Kind::Ours).await?);
    let mut bare_side = Side::new(Client::many(bare.http, Kind::Ours).await?);
    let mut peer_side = match peer {
        Some(peer) => Some(Side::new(Client::many(peer.http, Kind::Throttlecrab).await?)),
        None => None,
    };
    let mut sides: Vec<&mut dyn Contender> = vec![&mut bare_side, &mut our_side];
    sides.extend(peer_side.as_mut().map(|peer| peer as &mut dyn Contender));
    compete(options, &mut sides).await?;
    let name = |who: &str| format!("{who}, HTTP in memory, {CONNECTIONS} connections");
    let bare_handler = ("bare axum handler: at least 0.7", bare_side.best.per_second());
    let mut rows = vec![
        bare_side.best.row(&name("bare axum handler, the same bytes"), None),
        our_side.best.row(&name("tidegate check"), Some(bare_handler)),
    ];
    if let Some(peer) = &peer_side {
        rows.push(peer.best.row(&name("throttlecrab"), None));
        let per_second = ("throttlecrab: at least 1", peer.best.per_second());
        rows.push(our_side.best.row(&name("tidegate check"), Some(per_second)));
    }
    rows.push(our_side.half_load(&name("tidegate check"), options.turn, options.turns).await?);
    rows.push(hot_key(options, ours.http, "in memory").await?);
    Ok(rows)
}

/// On Redis, beside what Redis does when the same script is sent bare.
pub(super) async fn measure_shared(options: &Options, ours: &Ours, url: &str) -> Result<Vec<Row>, BenchError> {
    let most = bare_script(url, CONNECTIONS, options).await?;
    let mut our_side = Side::new(Client::many(ours.http, Kind::Ours).await?);
    compete(options, &mut [&mut our_side]).await?;
    let what = format!("tidegate check, HTTP on Redis, {CONNECTIONS} connections");
    Ok(vec![
        Row { what: format!("bare script, pipelined {CONNECTIONS} deep"), figure: most, unit: "/s", ..Row::default() },
        our_side.best.row(&what, Some(("bare script, pipelined: at least 0.6", most))),
        our_side.half_load(&what, options.turn, options.turns).await?,
        hot_key(options, ours.http, "on Redis").await?,
    ])
}

async fn hot_key(options: &Options, addr: SocketAddr, place: &str) -> Result<Row, BenchError> {
    let clients = Client::many(addr, Kind::OursHot).await?;
    let (_, turn) = turn(clients, options.turn.max(Duration::from_secs(2))).await?;
    Ok(turn.hot_row(&format!("tidegate HTTP {place}, one hot key far above its limit"), HOT_PER_SECOND))
}
