//! What a call sends, what comes back, and how connections are used again.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use platform::{
    http_client::{Call, CallError, Config, HttpClient, Phase, Reachable, Target},
    shutdown::Tasks,
};
use testkit::receiver::{Answer, Receiver};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{DEADLINE, allowing, open_client, post, post_within};

#[tokio::test]
async fn a_call_arrives_as_it_was_made() {
    let receiver = Receiver::start();
    let target = Target::parse(&receiver.url("/hook?token=1"), &Reachable::loopback()).unwrap();
    let headers = [
        (HeaderName::from_static("webhook-id"), HeaderValue::from_static("evt_1")),
        (HeaderName::from_static("content-type"), HeaderValue::from_static("application/json")),
    ];
    let body = Bytes::from_static(b"{\"a\":1}");
    let call = Call { target: &target, headers: &headers, body: body.clone(), deadline: DEADLINE, tls: None };
    let answer = open_client().post(call).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..], answer.is_truncated), (200, &b"OK"[..], false));

    let request = &receiver.requests()[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str(), request.query.as_deref()),
        ("POST", "/hook", Some("token=1"))
    );
    assert_eq!(request.body, body);
    assert_eq!(request.header("host"), receiver.addr().to_string());
    assert_eq!(request.header("content-length"), "7");
    assert_eq!(request.id(), "evt_1");
}

#[tokio::test]
async fn a_name_in_the_hosts_file_works_in_dev_mode() {
    let receiver = Receiver::start();
    let url = format!("http://localhost:{}/hook", receiver.addr().port());
    assert_eq!(post(&open_client(), &url).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_thousand_calls_in_a_row_take_one_connection() {
    let (receiver, client) = (Receiver::start(), open_client());
    for _ in 0..1000 {
        post(&client, &receiver.url("/")).await.unwrap();
    }
    assert_eq!((receiver.count(), receiver.connections()), (1000, 1));
}

#[tokio::test]
async fn parallel_calls_keep_as_many_connections_as_they_were() {
    let (receiver, client) = (Receiver::start(), open_client());
    let url = receiver.url("/");
    for _ in 0..10 {
        futures_util::future::join_all((0..20).map(|_| post(&client, &url))).await.into_iter().for_each(|answer| {
            answer.unwrap();
        });
    }
    assert_eq!(receiver.count(), 200);
    assert!(receiver.connections() <= 20, "{} connections", receiver.connections());
}

#[tokio::test]
async fn redirects_are_answers_like_any_other() {
    let (receiver, client) = (Receiver::start(), open_client());
    for status in 300..=308 {
        let headers = vec![("location", receiver.url("/elsewhere"))];
        receiver.set_path("/hook", Answer::Full { status, headers, body: Vec::new() });
        assert_eq!(post(&client, &receiver.url("/hook")).await.unwrap().status.as_u16(), status);
    }
    assert!(receiver.requests().iter().all(|request| request.path == "/hook"));
}

#[tokio::test]
async fn retry_after_is_understood() {
    let (receiver, client) = (Receiver::start(), open_client());
    receiver.set(Answer::RetryAfter { status: 503, value: "120".into() });
    let answer = post(&client, &receiver.url("/")).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.retry_after), (503, Some(Duration::from_secs(120))));
}

#[tokio::test]
async fn the_deadline_names_where_the_time_went() {
    let (receiver, client) = (Receiver::start(), open_client());
    receiver.set(Answer::Hang);
    let error = post_within(&client, &receiver.url("/"), Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { phase: Phase::Answer, .. }), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_a_refused_connection() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = post(&open_client(), &format!("http://127.0.0.1:{port}/")).await.unwrap_err();
    assert_eq!((error.class(), error.to_string().as_str()), ("connect", "the receiver refused the connection"));
}

#[tokio::test]
async fn our_own_listeners_are_never_called() {
    let receiver = Receiver::start();
    let port = receiver.addr().port();
    for own in [receiver.addr(), ([0, 0, 0, 0], port).into(), (std::net::Ipv6Addr::UNSPECIFIED, port).into()] {
        for reachable in [Reachable::loopback(), allowing(&["127.0.0.0/8", "::1/128"])] {
            let client = HttpClient::new(Config { reachable, own_listeners: vec![own], ..Config::default() });
            for host in ["127.0.0.1", "localhost"] {
                let error = post(&client, &format!("http://{host}:{port}/")).await.unwrap_err();
                let is_own = matches!(&error, CallError::Refused(refused) if refused.code == "own_listener");
                assert!(is_own, "{own} {error}");
            }
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_call_without_dev_mode_reaches_nothing_on_loopback() {
    let receiver = Receiver::start();
    let client = HttpClient::new(Config::default());
    let error = post(&client, &receiver.url("/")).await.unwrap_err();
    assert!(matches!(&error, CallError::Refused(refused) if refused.code == "address_forbidden"), "{error}");
    assert_eq!(receiver.connections(), 0);
}

/// Sending and receiving at once, more than any buffer holds.
#[tokio::test]
async fn a_large_body_goes_out_whole_from_a_task_of_its_own() {
    let receiver = Receiver::start();
    let (client, url) = (open_client(), receiver.url("/"));
    let body = Bytes::from(vec![b'x'; 8 << 20]);
    let (tasks, sent) = (Tasks::new(), body.clone());
    tasks.spawn("call", async move {
        let target = Target::parse(&url, &Reachable::loopback()).unwrap();
        let call = Call { target: &target, headers: &[], body: sent, deadline: DEADLINE, tls: None };
        client.post(call).await.unwrap();
    });
    assert!(tasks.stop(DEADLINE).await);
    assert!(receiver.requests()[0].body == body);
}

/// One who has seen enough, and one who talks while it listens.
#[tokio::test]
async fn an_answer_may_come_before_the_request_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let target = Target::parse(&url, &Reachable::loopback()).unwrap();
    let body = Bytes::from(vec![b'x'; 8 << 20]);
    let (client, length) = (open_client(), body.len());
    let receivers = async {
        let (mut refusing, _) = listener.accept().await.unwrap();
        refusing.write_all(b"HTTP/1.1 413 Too Long\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let (mut talking, _) = listener.accept().await.unwrap();
        talking.write_all(b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").await.unwrap();
        let (mut heard, mut piece) = (0, vec![0; 64 << 10]);
        while heard < length {
            heard += talking.read(&mut piece).await.unwrap();
        }
        talking.write_all(b"ok").await.unwrap();
        (refusing, talking)
    };
    let calls = async {
        let call = || Call { target: &target, headers: &[], body: body.clone(), deadline: DEADLINE, tls: None };
        let refused = client.post(call()).await.unwrap();
        assert_eq!((refused.status.as_u16(), client.idle()), (413, 0), "what was left unsent is no next request");
        let heard = client.post(call()).await.unwrap();
        assert_eq!((heard.status.as_u16(), &heard.body[..]), (200, &b"ok"[..]));
    };
    tokio::join!(receivers, calls);
}
