//! Connections used again: what happens when the receiver closes one at the wrong moment.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use platform::http_client::{Call, Config, HttpClient, Reachable, Target};
use testkit::{eventually, receiver::Receiver};
use tokio::time::MissedTickBehavior;

use super::{
    DEADLINE, open_client, post,
    raw::{Action, OK, RawServer},
    tls_server::{Authority, Server},
};

const BIND: &str = "127.0.0.1:0";

#[tokio::test]
async fn an_idle_connection_that_dies_under_a_call_costs_no_attempt() {
    let server = RawServer::start(BIND, |connection, nth| match (connection, nth) {
        (0, 1) => Action::End(String::new()),
        _ => Action::Send(OK.into()),
    });
    let client = open_client();
    assert!(!post(&client, &server.url("/1")).await.unwrap().is_resent);
    let answer = post(&client, &server.url("/2")).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.is_resent), (200, true));
    let paths: Vec<String> = server.requests().iter().map(|request| request[..7].to_owned()).collect();
    assert_eq!(paths, ["POST /1", "POST /2", "POST /2"]);
    assert_eq!(server.accepted().len(), 2);
}

/// TLS says that it closes, and that was taken for the beginning of an answer.
#[tokio::test]
async fn an_idle_https_connection_that_is_closed_under_a_call_costs_no_attempt() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["http/1.1"]).await;
    server.close_politely();
    let (client, identity) = (open_client(), authority.identity(None));
    assert!(!server.call(&client, "/1", Some(&identity)).await.unwrap().is_resent);
    let answer = server.call(&client, "/2", Some(&identity)).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.is_resent, server.connections()), (200, true, 2));
}

#[tokio::test]
async fn a_call_is_sent_again_once_and_not_more() {
    let server = RawServer::start(BIND, |connection, nth| match (connection, nth) {
        (0, 0) => Action::Send(OK.into()),
        _ => Action::End(String::new()),
    });
    let client = open_client();
    post(&client, &server.url("/1")).await.unwrap();
    assert_eq!(post(&client, &server.url("/2")).await.unwrap_err().class(), "connection_closed");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_a_failed_attempt() {
    let server = RawServer::start(BIND, |_, _| Action::End(String::new()));
    assert_eq!(post(&open_client(), &server.url("/")).await.unwrap_err().class(), "connection_closed");
    assert_eq!(server.requests().len(), 1);
}

/// The receiver had begun to answer, so it has seen the request.
#[tokio::test]
async fn one_byte_of_an_answer_forbids_sending_again() {
    let server = RawServer::start(BIND, |_, nth| match nth {
        0 => Action::Send(OK.into()),
        _ => Action::End("H".into()),
    });
    let client = open_client();
    post(&client, &server.url("/")).await.unwrap();
    assert_eq!(post(&client, &server.url("/")).await.unwrap_err().class(), "connection_closed");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn connection_close_is_obeyed() {
    let server = RawServer::start(BIND, |_, _| {
        Action::Send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".into())
    });
    let client = open_client();
    for _ in 0..5 {
        assert!(!post(&client, &server.url("/")).await.unwrap().is_resent);
    }
    assert_eq!((client.idle(), server.accepted().len()), (0, 5));
}

#[tokio::test]
async fn words_nobody_asked_for_end_the_connection() {
    let server =
        RawServer::start(BIND, |_, _| Action::Send(format!("{OK}HTTP/1.1 500 Gotcha\r\ncontent-length: 0\r\n\r\n")));
    let client = open_client();
    for _ in 0..5 {
        assert_eq!(post(&client, &server.url("/")).await.unwrap().status, 200);
    }
}

/// The receiver closes idle connections at about the moment the next call goes out, again and again.
#[tokio::test]
async fn a_thousand_calls_race_a_receiver_that_closes_idle_connections() {
    let server = RawServer::start_impatient(BIND, Some(Duration::from_millis(2)), |_, _| Action::Send(OK.into()));
    let client = open_client();
    let target = Target::parse(&server.url("/"), &Reachable::loopback()).unwrap();
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut failed, mut resent) = (Vec::new(), 0);
    for number in 0..1000 {
        for _ in 0..1 + number % 4 {
            pace.tick().await;
        }
        let id = HeaderValue::from_str(&format!("evt_{number}")).unwrap();
        let headers = [(HeaderName::from_static("webhook-id"), id)];
        let call = Call { target: &target, headers: &headers, body: Bytes::new(), deadline: DEADLINE, tls: None };
        match client.post(call).await {
            Ok(answer) => resent += usize::from(answer.is_resent),
            Err(error) => failed.push(error.to_string()),
        }
    }
    let seen = server.requests();
    println!("{} connections, {} requests, {resent} calls sent again", server.accepted().len(), seen.len());
    assert_eq!(failed, Vec::<String>::new());
    // Every double is one that the client has told of.
    let distinct: BTreeSet<&str> =
        seen.iter().filter_map(|request| request.lines().find(|line| line.starts_with("webhook-id"))).collect();
    assert_eq!(distinct.len(), 1000);
    assert!(seen.len() <= 1000 + resent);
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let receiver = Receiver::start();
    let config = Config { reachable: Reachable::loopback(), idle_timeout: Duration::from_secs(1), ..Config::default() };
    let client = HttpClient::new(config);
    post(&client, &receiver.url("/")).await.unwrap();
    assert_eq!(client.idle(), 1);
    eventually(DEADLINE, "the idle connection to be closed", async || client.idle() == 0).await;
    post(&client, &receiver.url("/")).await.unwrap();
    assert_eq!(receiver.connections(), 2);
}

/// Every address of 127.0.0.0/8 is a host of its own.
#[tokio::test]
async fn a_thousand_hosts_share_a_bounded_pool() {
    let server = RawServer::start("0.0.0.0:0", |_, _| Action::Send(OK.into()));
    let client = HttpClient::new(Config {
        reachable: Reachable::loopback(),
        max_idle: 300,
        idle_timeout: Duration::from_secs(60),
        ..Config::default()
    });
    let url = |host: u16| {
        let [high, low] = host.to_be_bytes();
        format!("http://{}:{}/", Ipv4Addr::new(127, 9, high, low), server.addr.port())
    };
    for host in 0..1000 {
        post(&client, &url(host)).await.unwrap();
        assert!(client.idle() <= 300, "{}", client.idle());
    }
    // The last ones used are still there.
    let before = server.accepted().len();
    for host in (900..1000).rev() {
        post(&client, &url(host)).await.unwrap();
    }
    assert_eq!(server.accepted().len(), before);
}
