//! HTTP/2 as a weapon (bar 44): streams that are opened only to be reset, and heads without an end. The server says why it hangs up,
//! and does; whoever is on another connection is served all the while.

use std::{cell::Cell, net::SocketAddr};

use axum::{Router, routing::get};
use platform::{
    http_server::{Limits, serve, with_limits},
    shutdown::Tasks,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::client::{BRIEF, Client, LIMITS, SOON};

/// Attackers, one after the other.
const ROUNDS: usize = 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Kinds of frames, and flags of the first.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET http://x/`: three entries of HPACK's table, and the name of a fourth with its value.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'x'];
/// `a: b`, written out.
const HEADER: &[u8] = &[0, 1, b'a', 1, b'b'];
// Reasons.
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ENHANCE_YOUR_CALM: u32 = 11;

async fn start(limits: Limits) -> (SocketAddr, Tasks) {
    let router = Router::new().route("/", get(|| async { "hello" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    tasks.spawn("listener", serve("test", listener, with_limits(router, &limits), limits, tasks.clone()));
    (addr, tasks)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection's first bytes.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()
}

/// Sends what comes next again and again, until the server hangs up, and gives what it said.
async fn until_hung_up(addr: SocketAddr, mut next: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    let (mut reader, mut writer) = Client::open(addr).await.0.into_split();
    writer.write_all(&opening()).await.unwrap();
    let mut heard = Vec::new();
    let send = async { while writer.write_all(&next()).await.is_ok() {} };
    // A connection that is reset after the last word has ended, too.
    let listen = async { drop(reader.read_to_end(&mut heard).await) };
    timeout(SOON, async { tokio::join!(send, listen) }).await.expect("the server hangs up");
    heard
}

/// The reason of the server's goodbye.
fn goodbye(mut heard: &[u8]) -> Option<u32> {
    while let Some((head, rest)) = heard.split_at_checked(9) {
        if head[3] == GOAWAY {
            return Some(u32::from_be_bytes(rest.get(4..8)?.try_into().unwrap()));
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        heard = rest.get(usize::try_from(length).unwrap()..)?;
    }
    None
}

/// Somebody asks until the attack is over, and is answered every time.
async fn while_another_is_served(addr: SocketAddr, attack: impl Future<Output = ()>) {
    let is_over = Cell::new(false);
    let attack = async {
        attack.await;
        is_over.set(true);
    };
    let another = async {
        let mut client = Client::open(addr).await;
        loop {
            let was_over = is_over.get();
            client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
            assert!(client.answer().await.ends_with("hello"));
            if was_over {
                return;
            }
        }
    };
    tokio::join!(attack, another);
}

#[tokio::test]
async fn who_opens_streams_to_reset_them_is_hung_up_on() {
    let (addr, tasks) = start(LIMITS).await;
    let pair = |stream| {
        let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
        [request, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
    };
    let attack = async {
        for _ in 0..ROUNDS {
            let mut streams = (1..).step_by(2);
            let heard = until_hung_up(addr, || streams.by_ref().take(1000).flat_map(pair).collect()).await;
            assert_eq!(goodbye(&heard), Some(ENHANCE_YOUR_CALM), "{heard:?}");
        }
    };
    while_another_is_served(addr, attack).await;
    assert!(tasks.stop(SOON).await);
}

/// With nothing in its parts, a little, and as much as a frame takes.
#[tokio::test]
async fn who_never_ends_a_head_is_hung_up_on() {
    let (addr, tasks) = start(LIMITS).await;
    let attack = async {
        for part in [Vec::new(), HEADER.to_vec(), HEADER.repeat(3000)].iter().cycle().take(ROUNDS) {
            let mut first = Some(frame(HEADERS, END_STREAM, 1, GET));
            let parts = frame(CONTINUATION, 0, 1, part).repeat(100);
            let heard = until_hung_up(addr, || first.take().unwrap_or_else(|| parts.clone())).await;
            assert_eq!(goodbye(&heard), Some(ENHANCE_YOUR_CALM), "{heard:?}");
        }
    };
    while_another_is_served(addr, attack).await;
    assert!(tasks.stop(SOON).await);
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_head_is_hung_up_on() {
    let (addr, _tasks) = start(BRIEF).await;
    let mut client = Client::open(addr).await;
    client.send([opening(), frame(HEADERS, END_STREAM, 1, GET), frame(CONTINUATION, 0, 1, HEADER)].concat()).await;
    client.rest().await;
}
