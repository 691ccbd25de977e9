//! The listener under clients that drip, hang, flood and leave.

use std::net::SocketAddr;

use axum::{Router, extract::Request, routing::get, routing::post};
use http_body_util::BodyExt;
use platform::{
    http_server::{Limits, serve, with_limits},
    shutdown::Tasks,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

use crate::client::{BRIEF, Client, LIMITS, SOON};

/// A server whose `/slow` tells when it was entered and answers when it is let go.
struct Server {
    addr: SocketAddr,
    tasks: Tasks,
    entered: mpsc::UnboundedReceiver<()>,
    release: tokio::sync::watch::Sender<bool>,
}

async fn start(limits: Limits) -> Server {
    let (enter, entered) = mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let slow = move || {
        let (enter, mut released) = (enter.clone(), released.clone());
        async move {
            enter.send(()).unwrap();
            released.wait_for(|is_released| *is_released).await.unwrap();
            "done"
        }
    };
    let echo = |request: Request| async {
        axum::body::to_bytes(request.into_body(), usize::MAX)
            .await
            .map(|body| body.len().to_string())
            .unwrap_or_default()
    };
    let length = |body: axum::body::Bytes| async move { body.len().to_string() };
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/slow", get(slow))
        .route("/length", post(length))
        .route("/echo", post(echo))
        .route(
            "/panic",
            get(|| async {
                if true {
                    panic!("on purpose")
                }
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    tasks.spawn("listener", serve("test", listener, with_limits(router, &limits), limits, tasks.clone()));
    Server { addr, tasks, entered, release }
}

/// Sends the bytes and reads until the server closes.
async fn exchange(server: &Server, request: &[u8]) -> String {
    let mut client = Client::open(server.addr).await;
    client.send(request).await;
    client.rest().await
}

fn get_request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
}

fn post_request(path: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let server = start(BRIEF).await;
    assert_eq!(Client::open(server.addr).await.rest().await, "");
}

#[tokio::test]
async fn a_connection_that_might_become_http2_but_stalls_is_closed() {
    let server = start(BRIEF).await;
    assert_eq!(exchange(&server, b"PRI * HT").await, "");
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off() {
    let server = start(BRIEF).await;
    let mut dripping = Client::open(server.addr).await;
    dripping.send(b"GET / HTTP/1.1\r\nhost: x\r\n").await;
    dripping.drip(b"x").await;
}

#[tokio::test]
async fn a_body_that_drips_is_answered_with_a_timeout() {
    let server = start(BRIEF).await;
    let begun = b"POST /length HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100\r\n\r\nabc";
    let answer = exchange(&server, begun).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"code\":\"request_timeout\""), "{answer}");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_and_without_a_length() {
    let server = start(LIMITS).await;
    let answer = exchange(&server, &post_request("/length", &[b'x'; 1025])).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let mut chunked =
        b"POST /length HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20 {
        chunked.extend_from_slice(b"64\r\n");
        chunked.extend_from_slice(&[b'x'; 100]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let answer = exchange(&server, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let answer = exchange(&server, &post_request("/length", &[b'x'; 1024])).await;
    assert!(answer.ends_with("1024"), "{answer}");
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_problems() {
    let server = start(LIMITS).await;
    let answer = exchange(&server, &get_request("/nowhere")).await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("application/problem+json"), "{answer}");
    let answer = exchange(&server, &get_request("/length")).await;
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("method_not_allowed"), "{answer}");
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_takes_nobody_along() {
    let server = start(LIMITS).await;
    let answer = exchange(&server, &get_request("/panic")).await;
    assert!(answer.starts_with("HTTP/1.1 500") && !answer.contains("on purpose"), "{answer}");
    assert!(exchange(&server, &get_request("/")).await.ends_with("hello"));
}

#[tokio::test]
async fn connections_over_the_cap_are_closed_and_the_others_served() {
    let mut server = start(Limits { max_connections: 1, ..LIMITS }).await;
    let mut first = Client::open(server.addr).await;
    first.send(get_request("/slow")).await;
    server.entered.recv().await.unwrap();
    assert_eq!(Client::open(server.addr).await.rest().await, "");
    server.release.send(true).unwrap();
    assert!(first.rest().await.ends_with("done"));
}

#[tokio::test]
async fn a_request_in_flight_ends_before_the_server_does() {
    let mut server = start(LIMITS).await;
    let mut client = Client::open(server.addr).await;
    client.send(get_request("/slow")).await;
    server.entered.recv().await.unwrap();
    let (release, stopping) = (server.release.clone(), server.tasks.stopping().clone());
    let let_go = async {
        stopping.cancelled().await;
        release.send(true).unwrap();
    };
    let (stopped, ()) = tokio::join!(server.tasks.stop(SOON), let_go);
    assert!(stopped);
    assert!(client.rest().await.ends_with("done"));
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_at_the_drain_timeout() {
    let mut server = start(Limits { drain_timeout: BRIEF.drain_timeout, ..LIMITS }).await;
    let mut client = Client::open(server.addr).await;
    client.send(get_request("/slow")).await;
    server.entered.recv().await.unwrap();
    assert!(server.tasks.stop(SOON).await);
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let server = start(LIMITS).await;
    let mut client = Client::open(server.addr).await;
    client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.answer().await;
    assert!(server.tasks.stop(SOON).await);
}

type Http2 = hyper::client::conn::http2::SendRequest<String>;

async fn http2(server: &Server) -> Http2 {
    let io = hyper_util::rt::TokioIo::new(Client::open(server.addr).await.0);
    let handshake = hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io);
    let (client, connection) = handshake.await.unwrap();
    server.tasks.spawn_servant("http2 client", async move { drop(connection.await) });
    client
}

async fn http2_get(client: &mut Http2, path: &str) -> (u16, String) {
    let request = axum::http::Request::get(format!("http://x{path}")).body(String::new()).unwrap();
    let answer = timeout(SOON, client.send_request(request)).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn http2_is_spoken_without_an_upgrade() {
    let server = start(LIMITS).await;
    let mut client = http2(&server).await;
    for _ in 0..10 {
        assert_eq!(http2_get(&mut client, "/").await, (200, "hello".to_owned()));
    }
}

#[tokio::test]
async fn on_an_http2_connection_nobody_waits_for_a_slow_answer_nor_falls_with_a_broken_one() {
    let mut server = start(LIMITS).await;
    let mut client = http2(&server).await;
    let mut slow = client.clone();
    let slow = async { http2_get(&mut slow, "/slow").await };
    let others = async {
        server.entered.recv().await.unwrap();
        assert_eq!(http2_get(&mut client, "/panic").await.0, 500);
        for _ in 0..10 {
            assert_eq!(http2_get(&mut client, "/").await.1, "hello");
        }
        server.release.send(true).unwrap();
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert_eq!(slow, (200, "done".to_owned()));
}

#[tokio::test]
async fn an_http2_request_in_flight_ends_before_the_server_does() {
    let mut server = start(LIMITS).await;
    let mut client = http2(&server).await;
    let slow = async { http2_get(&mut client, "/slow").await };
    let stop = async {
        server.entered.recv().await.unwrap();
        let (release, stopping) = (server.release.clone(), server.tasks.stopping().clone());
        let let_go = async {
            stopping.cancelled().await;
            release.send(true).unwrap();
        };
        tokio::join!(server.tasks.stop(SOON), let_go).0
    };
    let (slow, stopped) = tokio::join!(slow, stop);
    assert_eq!((slow.1.as_str(), stopped), ("done", true));
}
