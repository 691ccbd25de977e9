//! How long a client may keep us waiting. The clock is the test's own: it moves on when everybody waits.

use std::time::Duration;

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::{Limits, connection};
use crate::shutdown::Tasks;

const LIMITS: Limits = Limits {
    max_connections: 1,
    header_timeout: Duration::from_secs(15),
    request_timeout: Duration::from_secs(30),
    idle_timeout: Duration::from_mins(5),
    max_body: 1024,
    drain_timeout: Duration::from_secs(30),
};
const PART: usize = 64 * 1024;
const FOR_EVER: Duration = Duration::from_hours(24);

/// `/endless` is answered with parts as fast as they are taken, `/slow` with one a minute and twenty in all, `/late`
/// after an hour.
fn routes() -> Router {
    let part = || Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; PART]));
    let slow = move || {
        stream::iter(0..20).then(move |_| async move {
            sleep(Duration::from_mins(1)).await;
            part()
        })
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/endless", get(move || async move { Body::from_stream(stream::repeat_with(part)) }))
        .route("/slow", get(move || async move { Body::from_stream(slow()) }))
        .route("/late", get(|| async { sleep(Duration::from_hours(1)).await }))
}

/// A client's end of a connection, and how long it lived once it has ended.
fn open(limits: Limits) -> (DuplexStream, oneshot::Receiver<Duration>) {
    let ((ours, theirs), (end, ended)) = (duplex(PART), oneshot::channel());
    Tasks::new().spawn_servant("connection", async move {
        let since = Instant::now();
        connection(ours, since, routes(), limits, Tasks::new()).await;
        end.send(since.elapsed()).expect("the test waits");
    });
    (theirs, ended)
}

async fn lived(ended: oneshot::Receiver<Duration>) -> Duration {
    timeout(FOR_EVER, ended).await.expect("the connection ends").unwrap()
}

async fn http2(limits: Limits) -> (SendRequest<String>, oneshot::Receiver<Duration>) {
    let (stream, ended) = open(limits);
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    Tasks::new().spawn_servant("http2 client", async move { connection.await.expect("the end is announced") });
    (client, ended)
}

async fn get_http2(client: &mut SendRequest<String>, path: &str) -> hyper::body::Incoming {
    let request = hyper::Request::get(format!("http://x{path}")).body(String::new()).unwrap();
    client.send_request(request).await.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn who_does_not_take_its_answer_is_given_up_after_the_request_timeout() {
    let (mut client, ended) = open(LIMITS);
    client.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let lived = lived(ended).await;
    assert!((LIMITS.request_timeout..LIMITS.request_timeout * 2).contains(&lived), "{lived:?}");
}

#[tokio::test(start_paused = true)]
async fn who_takes_its_answer_slowly_gets_it() {
    let (mut client, ended) = open(LIMITS);
    client.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    for _ in 0..100 {
        sleep(LIMITS.request_timeout * 9 / 10).await;
        client.read_exact(&mut [0; 1024]).await.expect("it goes on");
    }
    drop(client);
    assert!(lived(ended).await > LIMITS.request_timeout * 80);
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_that_nobody_uses_is_ended_and_its_client_told() {
    let (mut client, ended) = http2(LIMITS).await;
    get_http2(&mut client, "/").await.collect().await.unwrap();
    let lived = lived(ended).await;
    assert!((LIMITS.idle_timeout..LIMITS.idle_timeout * 3).contains(&lived), "{lived:?}");
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_that_makes_no_room_for_its_answer_is_given_up() {
    let (mut client, ended) = http2(LIMITS).await;
    let unread = get_http2(&mut client, "/endless").await;
    assert!(lived(ended).await < LIMITS.idle_timeout * 3);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_goes_on_is_no_idle_connection() {
    let (mut client, _ended) = http2(LIMITS).await;
    let whole = get_http2(&mut client, "/slow").await.collect().await.unwrap();
    assert_eq!(whole.to_bytes().len(), 20 * PART);
}

#[tokio::test(start_paused = true)]
async fn nor_is_a_request_that_is_worked_on() {
    let (mut client, _ended) = http2(Limits { request_timeout: Duration::from_hours(1), ..LIMITS }).await;
    get_http2(&mut client, "/late").await.collect().await.unwrap();
}
