//! A lane before the router: what it answers, what it leaves alone, and how the two share a connection.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, body::Bytes, routing::get, routing::post};
use platform::{
    http_server::{Lane, Limits, Plain, Reply, serve_with_lane, with_limits},
    shutdown::Tasks,
};
use tokio::{net::TcpListener, sync::Notify};

use crate::client::{BRIEF, Client, LIMITS, SOON};

/// Answers `/ask` with who answered it. It leaves `no` to the router, panics at `panic`, and at `wait` waits.
#[derive(Clone, Default)]
struct Asked {
    entered: Arc<Notify>,
    release: Arc<Notify>,
}

impl Lane for Asked {
    const ROUTES: &'static [&'static str] = &["/ask"];

    async fn answer(&self, request: &Plain<'_>, reply: &mut Reply) -> Option<usize> {
        match (request.target(), request.body()) {
            ("/ask", b"panic") => panic!("on purpose"),
            ("/ask", b"no") => return None,
            ("/ask", b"wait") => {
                self.entered.notify_one();
                self.release.notified().await;
            }
            ("/ask", _) => {}
            _ => return None,
        }
        reply.header_lines.extend_from_slice(b"content-type: text/plain\r\n");
        reply.body.extend_from_slice(b"lane:");
        reply.body.extend_from_slice(request.body());
        Some(0)
    }
}

struct Server {
    addr: SocketAddr,
    tasks: Tasks,
    lane: Asked,
}

async fn start(limits: Limits) -> Server {
    let route = |body: Bytes| async move { [b"route:", &*body].concat() };
    let router = Router::new().route("/ask", post(route)).route("/other", get(|| async { "other" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (tasks, lane) = (Tasks::new(), Asked::default());
    let serving = serve_with_lane("test", listener, lane.clone(), with_limits(router, &limits), limits, tasks.clone());
    tasks.spawn("listener", serving);
    Server { addr, tasks, lane }
}

fn ask(body: &str) -> String {
    format!("POST /ask HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn what_comes_whole_is_answered_in_the_lane_and_the_rest_by_the_router_on_the_same_connection() {
    let server = start(LIMITS).await;
    let mut client = Client::open(server.addr).await;
    for body in ["a", "b"] {
        client.send(ask(body)).await;
        assert!(client.answer().await.ends_with(&format!("\r\n\r\nlane:{body}")));
    }
    client.send("GET /other HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(client.answer().await.ends_with("other"));
    client.send(ask("c")).await;
    assert!(client.answer().await.ends_with("route:c"), "a connection that left the lane does not come back");
}

#[tokio::test]
async fn what_the_lane_leaves_and_what_comes_in_pieces_is_the_routers() {
    let server = start(LIMITS).await;
    let mut client = Client::open(server.addr).await;
    client.send(ask("no")).await;
    assert!(client.answer().await.ends_with("route:no"));
    let request = ask("pieces");
    for place in 1..request.len() {
        let mut client = Client::open(server.addr).await;
        client.send(ask("first")).await;
        assert!(client.answer().await.ends_with("lane:first"));
        let (start, end) = request.split_at(place);
        client.send(start).await;
        // Usually the piece is read alone; both may also be read together, and then they are one whole request.
        tokio::task::yield_now().await;
        client.send(end).await;
        let answer = client.answer().await;
        assert!(answer.ends_with("route:pieces") || answer.ends_with("lane:pieces"), "{answer}");
    }
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_their_order() {
    let server = start(LIMITS).await;
    let mut client = Client::open(server.addr).await;
    let other = "GET /other HTTP/1.1\r\nhost: x\r\n\r\n".to_owned();
    client.send([ask("1"), ask("2"), other, ask("3")].concat()).await;
    for end in ["lane:1", "lane:2", "other", "route:3"] {
        assert!(client.answer().await.ends_with(end));
    }
}

#[tokio::test]
async fn a_request_that_could_be_read_in_two_ways_never_enters_the_lane() {
    let server = start(BRIEF).await;
    for (headers, refused) in [
        ("content-length: 1\r\ncontent-length: 2", true),
        ("content-length: 1\r\ncontent-length: 1", false),
        ("content-length: 1, 2", true),
        ("content-length: +1", true),
        ("content-length: -1", true),
        ("content-length : 1", true),
        ("content-length: 1\r\nx-folded: a\r\n b", true),
        ("content length: 1", true),
        ("content-length: 1\r\nx-null: a\0b", true),
        ("content-length: 1\r\ntransfer-encoding: chunked", false),
        ("transfer-encoding: chunked\r\ncontent-length: 1", false),
        ("content-length: 1\r\ntransfer-encoding: xchunked", true),
    ] {
        let mut client = Client::open(server.addr).await;
        client.send(format!("POST /ask HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n0\r\n\r\n{}", ask("smuggled"))).await;
        let all = client.rest().await;
        assert!(!all.contains("lane:"), "{headers}: {all}");
        assert_eq!(all.starts_with("HTTP/1.1 400"), refused, "{headers}: {all}");
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_before_and_after_its_first_answer() {
    let server = start(BRIEF).await;
    let mut client = Client::open(server.addr).await;
    assert_eq!(client.rest().await, "");
    let mut client = Client::open(server.addr).await;
    client.send(ask("a")).await;
    assert!(client.answer().await.ends_with("lane:a"));
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_head_that_drips_has_no_more_time_because_it_began_in_the_lane() {
    let server = start(BRIEF).await;
    Client::open(server.addr).await.drip(ask("a").as_bytes()).await;
}

#[tokio::test]
async fn a_panic_and_a_decision_that_is_too_late_are_answered_as_everywhere() {
    let server = start(Limits { request_timeout: BRIEF.request_timeout, ..LIMITS }).await;
    let mut client = Client::open(server.addr).await;
    client.send(ask("panic")).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/problem+json"));
    assert!(answer.contains("\"code\":\"internal\"") && !answer.contains("on purpose"), "{answer}");
    client.send(ask("wait")).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
    client.send(ask("a")).await;
    assert!(client.answer().await.ends_with("lane:a"), "neither takes anybody along");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end_and_an_answer_says_that_it_is_the_last() {
    let server = start(LIMITS).await;
    let (mut idle, mut busy) = (Client::open(server.addr).await, Client::open(server.addr).await);
    idle.send(ask("a")).await;
    idle.answer().await;
    busy.send(ask("wait")).await;
    server.lane.entered.notified().await;
    let (stopping, release) = (server.tasks.stopping().clone(), Arc::clone(&server.lane.release));
    let let_go = async {
        stopping.cancelled().await;
        release.notify_one();
    };
    let (stopped, ()) = tokio::join!(server.tasks.stop(SOON), let_go);
    assert!(stopped);
    assert_eq!(idle.rest().await, "");
    let last = busy.rest().await;
    assert!(last.contains("\r\nconnection: close\r\n") && last.ends_with("lane:wait"), "{last}");
}

#[tokio::test]
async fn http2_passes_the_lane_by() {
    let server = start(LIMITS).await;
    let io = hyper_util::rt::TokioIo::new(Client::open(server.addr).await.0);
    let handshake = hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io);
    let (mut client, connection) = handshake.await.unwrap();
    let tasks = Tasks::new();
    tasks.spawn("http2 client", async move { drop(connection.await) });
    let request = axum::http::Request::get("http://x/other").body(String::new()).unwrap();
    assert_eq!(client.send_request(request).await.unwrap().status(), 200);
}
