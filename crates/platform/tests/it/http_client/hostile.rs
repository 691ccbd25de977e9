//! Receivers that want our memory and our time, a hundred at once: neither grows beyond its bound.

use std::{
    fs,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use platform::http_client::{Answer as Reply, CallError, HttpClient, Phase};
use testkit::receiver::{Answer, Receiver};

use super::{
    open_client, own_process, post_within,
    raw::{Action, OK, RawServer},
};

const DEADLINE: Duration = Duration::from_millis(1500);
/// For answers that end by a bound of ours: a machine busy with other tests may take long to read them.
const LONG_DEADLINE: Duration = Duration::from_secs(30);
const PARALLEL: usize = 100;
const KEPT: usize = 16 << 10;

async fn attack(client: &HttpClient, url: &str, deadline: Duration) -> Vec<Result<Reply, CallError>> {
    #[expect(clippy::disallowed_methods, reason = "measures what the client promises about real time")]
    let started = Instant::now();
    let results = join_all((0..PARALLEL).map(|_| post_within(client, url, deadline))).await;
    // What a busy machine adds; an answer that is waited for to its end takes minutes.
    assert!(started.elapsed() <= deadline + Duration::from_secs(10), "{url}: {:?}", started.elapsed());
    results
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// All of them one after the other, in a process of their own: the peak is theirs.
#[tokio::test]
async fn a_hundred_hostile_answers_at_once_end_in_time_and_in_little_memory() {
    if !own_process::inside("http_client::hostile::a_hundred_hostile_answers_at_once_end_in_time_and_in_little_memory")
    {
        return;
    }
    let (receiver, client) = (Receiver::start(), open_client());
    let every = Duration::from_millis(50);
    // Buffers of a hundred good connections are no part of the question.
    attack(&client, &receiver.url("/"), LONG_DEADLINE).await;
    let before = resident_kib();
    for (name, answer) in [
        ("hang", Answer::Hang),
        ("drip_head", Answer::DripHead { every }),
        ("drip_body", Answer::DripBody { every }),
        ("half_body", Answer::HalfBody),
        ("huge_body", Answer::HugeBody { bytes: 10 << 30 }),
        ("gzip_bomb", Answer::GzipBomb),
        ("endless_headers", Answer::EndlessHeaders),
        ("flood", Answer::InformationalFlood),
        ("close", Answer::Close),
        ("reset", Answer::Reset),
    ] {
        receiver.set(answer);
        let (expected, deadline) = match name {
            "hang" | "drip_head" | "drip_body" | "half_body" => ("timeout", DEADLINE),
            "huge_body" | "gzip_bomb" => ("answer", LONG_DEADLINE),
            "endless_headers" | "flood" => ("protocol", LONG_DEADLINE),
            _ => ("connection_closed", LONG_DEADLINE),
        };
        for result in attack(&client, &receiver.url(&format!("/{name}")), deadline).await {
            let class = result.as_ref().map_or_else(CallError::class, |_| "answer");
            assert_eq!(class, expected, "{name}");
            if let Ok(answer) = result {
                assert_eq!((answer.body.len(), answer.is_truncated), (KEPT, true), "{name}");
            }
        }
        let grown = resident_kib().saturating_sub(before);
        println!("{name}: {:.1} MiB more than before", grown as f64 / 1024.0);
        assert!(grown <= 32 << 10, "{name}: {grown} KiB");
    }
    assert_eq!(client.idle(), 0);
}

#[tokio::test]
async fn a_tls_handshake_without_an_answer_ends_with_the_deadline() {
    let receiver = Receiver::start();
    receiver.set_silent(true);
    let url = format!("https://{}/", receiver.addr());
    for result in attack(&open_client(), &url, DEADLINE).await {
        let error = result.unwrap_err();
        assert!(matches!(error, CallError::Timeout { phase: Phase::Tls, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_answer_cut_short() {
    let server = RawServer::start("127.0.0.1:0", |_, _| {
        Action::End("HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nhalf".into())
    });
    let answer = post_within(&open_client(), &server.url("/"), DEADLINE).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..], answer.is_truncated), (201, &b"half"[..], true));
}

#[tokio::test]
async fn a_body_of_exactly_what_is_kept_is_whole_and_one_more_is_not() {
    let (receiver, client) = (Receiver::start(), open_client());
    for (length, is_truncated) in [(KEPT, false), (KEPT + 1, true), (60 << 10, true)] {
        receiver.set(Answer::Full { status: 200, headers: Vec::new(), body: vec![b'x'; length] });
        let answer = post_within(&client, &receiver.url("/"), DEADLINE).await.unwrap();
        assert_eq!((answer.body.len(), answer.is_truncated), (KEPT, is_truncated));
    }
    // None of them was so long that the connection was given up.
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn answers_that_are_not_http_are_a_protocol_error() {
    for bytes in ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n", "\0\0\0\0\0\0", "HTTP/1.1 OK 200\r\n\r\n"] {
        let server = RawServer::start("127.0.0.1:0", move |_, _| Action::End(bytes.into()));
        let error = post_within(&open_client(), &server.url("/"), DEADLINE).await.unwrap_err();
        assert!(matches!(error.class(), "protocol" | "connection_closed"), "{bytes:?}: {error}");
    }
}

/// Two lengths make two messages out of one, or one out of two.
#[tokio::test]
async fn a_second_answer_hidden_in_the_first_is_never_read() {
    let hidden = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 60\r\n\r\n";
    let server = RawServer::start("127.0.0.1:0", move |connection, _| {
        if connection == 0 { Action::Send(format!("{hidden}{OK}")) } else { Action::Send(OK.into()) }
    });
    let client = open_client();
    drop(post_within(&client, &server.url("/1"), DEADLINE).await);
    let second = post_within(&client, &server.url("/2"), DEADLINE).await.unwrap();
    assert_eq!((server.accepted().len(), &second.body[..]), (2, &b"ok"[..]));
}
