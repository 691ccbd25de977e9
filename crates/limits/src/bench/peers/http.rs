//! Checks over HTTP/1.1, beside throttlecrab-server.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
};

use bytes::BytesMut;
use gate::bench::Row;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    BenchError, Options,
    load::{Load, Round, Side, key},
    servers::{Ours, Throttlecrab},
};

const CONNECTIONS: usize = 64;

/// What a request says of a key.
#[derive(Clone, Copy)]
enum Kind {
    Ours,
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

    /// Sends the body that was written, and answers the status and the body.
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
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, start)) = whole(&self.answer)? {
                return Ok((status, &self.answer[start..]));
            }
        }
    }
}

/// The status and where the body begins, once all of it is there.
fn whole(answer: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).map_err(io::Error::other)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let (Some(status), Some(length)) = (status, length) else { return Err(io::Error::other("not an answer")) };
    Ok((answer.len() >= end + 4 + length).then_some((status, end + 4)))
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
            Kind::Throttlecrab => {
                write!(
                    self.body,
                    r#"{{"key":"user-{key:07}","max_burst":1000000,"count_per_period":1000000,"period":1}}"#
                )?;
                "/throttle"
            }
        };
        let (_, body) = self.send(path).await?;
        let admitted = u64::from(body.windows(14).any(|window| window == b"\"allowed\":true"));
        Ok(Round { asked: 1, admitted })
    }
}

/// A rule for every key, far above any load.
pub(super) async fn make_rule(addr: SocketAddr) -> Result<(), BenchError> {
    let mut client = Client::connect(addr, Kind::Ours).await?;
    client.body.extend_from_slice(br#"{"key":"*","algorithm":"gcra","limit":1000000,"window":"1s"}"#);
    match client.send("/v1/limits/rules").await? {
        (201, _) => Ok(()),
        (status, _) => Err(io::Error::other(format!("the rule was refused with {status}")).into()),
    }
}

pub(super) async fn measure(
    options: &Options,
    ours: &Ours,
    peer: Option<&Throttlecrab>,
) -> Result<Vec<Row>, BenchError> {
    let mut our_side = Side::new(Client::many(ours.http, Kind::Ours).await?);
    let mut peer_side = match peer {
        Some(peer) => Some(Side::new(Client::many(peer.http, Kind::Throttlecrab).await?)),
        None => None,
    };
    for _ in 0..options.turns {
        if let Some(peer) = &mut peer_side {
            peer.turn(options.turn).await?;
        }
        our_side.turn(options.turn).await?;
    }
    let name = |who: &str| format!("{who} HTTP in memory, {CONNECTIONS} connections");
    let per_second = peer_side.as_ref().map(|peer| ("throttlecrab", peer.best.per_second()));
    let mut rows: Vec<Row> = peer_side.iter().map(|peer| peer.best.row(&name("throttlecrab"), None)).collect();
    rows.push(our_side.best.row(&name("tidegate"), per_second));
    Ok(rows)
}
