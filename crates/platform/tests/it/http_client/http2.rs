//! HTTP/2 where it is offered: one connection for many calls, and receivers that misuse it.

use std::time::Duration;

use futures_util::future::join_all;
use http::Version;
use platform::http_client::{CallError, Phase};
use testkit::eventually;

use super::{
    DEADLINE, open_client,
    tls_server::{Authority, Server},
};

#[tokio::test]
async fn http2_carries_parallel_calls_over_one_connection() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2", "http/1.1"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    server.call(&client, "/hook", Some(&identity)).await.unwrap();
    for _ in 0..10 {
        for answer in join_all((0..50).map(|_| server.call(&client, "/hook", Some(&identity)))).await {
            let answer = answer.unwrap();
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"{\"a\":1}"[..]));
        }
    }
    assert_eq!((server.connections(), client.idle()), (1, 1));
    let seen = server.seen();
    assert_eq!(seen.len(), 501);
    let host = format!("localhost:{}", server.addr.port());
    assert!(seen.iter().all(|seen| seen.0 == Version::HTTP_2 && seen.1 == host));
}

/// Nobody knows yet that the host speaks HTTP/2, and a hundred calls come at once.
#[tokio::test]
async fn the_first_burst_to_a_host_waits_for_the_connection_it_can_share() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2", "http/1.1"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    for answer in join_all((0..100).map(|_| server.call(&client, "/hook", Some(&identity)))).await {
        answer.unwrap();
    }
    assert_eq!((server.connections(), client.idle()), (1, 1));
}

/// It says goodbye after every answer. What meets the goodbye was not taken, and goes out again.
#[tokio::test]
async fn a_receiver_that_says_goodbye_all_the_time_costs_no_attempt() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    for _ in 0..50 {
        let answer = server.call(&client, "/last", Some(&identity)).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.is_resent), (200, false));
    }
    assert_eq!(server.seen().len(), 50);
    assert!(server.connections() > 1);
}

#[tokio::test]
async fn a_connection_that_dies_with_a_call_on_it_is_a_failed_attempt() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    let error = server.call(&client, "/die", Some(&identity)).await.unwrap_err();
    assert_eq!(error.class(), "connection_closed", "{error:?}");
    assert_eq!(server.seen().len(), 1);
    // The next call finds out and opens another.
    server.call(&client, "/hook", Some(&identity)).await.unwrap();
}

#[tokio::test]
async fn a_huge_body_is_cut_and_the_connection_goes_on() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    for _ in 0..5 {
        let answer = server.call(&client, "/huge", Some(&identity)).await.unwrap();
        assert_eq!((answer.body.len(), answer.is_truncated), (16 << 10, true));
        assert_eq!(&server.call(&client, "/hook", Some(&identity)).await.unwrap().body[..], b"{\"a\":1}");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_head_without_measure_is_refused() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    let error = server.call(&client, "/head", Some(&identity)).await.unwrap_err();
    assert_eq!(error.class(), "protocol", "{error:?}");
    server.call(&client, "/hook", Some(&identity)).await.unwrap();
}

#[tokio::test]
async fn calls_that_hang_do_not_hold_up_the_others() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    server.call(&client, "/hook", Some(&identity)).await.unwrap();
    let short = Duration::from_secs(1);
    let hanging = join_all((0..20).map(|_| server.call_within(&client, "/hang", Some(&identity), short)));
    let good = join_all((0..20).map(|_| server.call(&client, "/hook", Some(&identity))));
    let (hanging, good) = tokio::join!(hanging, good);
    for result in hanging {
        assert!(matches!(result, Err(CallError::Timeout { phase: Phase::Answer, .. })), "{result:?}");
    }
    assert!(good.into_iter().all(|result| result.is_ok()));
    assert_eq!(server.connections(), 1);
}

/// A receiver allows a hundred exchanges at a time over a connection. Those behind them waited for their turn until their time was
/// over, without ever having been sent.
#[tokio::test]
async fn as_many_calls_as_a_connection_takes_may_hang_and_others_go_over_another() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    server.call(&client, "/hook", Some(&identity)).await.unwrap();
    let short = Duration::from_secs(2);
    let hanging = join_all((0..150).map(|_| server.call_within(&client, "/hang", Some(&identity), short)));
    let good = join_all((0..100).map(|_| server.call_within(&client, "/hook", Some(&identity), short)));
    let (hanging, good) = tokio::join!(hanging, good);
    assert!(hanging.into_iter().all(|result| matches!(result, Err(CallError::Timeout { .. }))));
    good.into_iter().for_each(|result| drop(result.unwrap()));
    assert_eq!(server.connections(), 3, "one opens another for all");
}

/// Its goodbye was followed by a connection for every call, until a sweeper had come.
#[tokio::test]
async fn after_a_goodbye_one_call_opens_a_connection_for_all() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    server.call(&client, "/last", Some(&identity)).await.unwrap();
    eventually(DEADLINE, "the goodbye to be heard", async || !server.is_serving()).await;
    for answer in join_all((0..50).map(|_| server.call(&client, "/hook", Some(&identity)))).await {
        answer.unwrap();
    }
    assert_eq!(server.connections(), 2);
}

/// Calls that had waited for room on a connection got it in the moment of its goodbye, and were spent though nobody had taken them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_under_load_costs_no_call() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["h2"]).await;
    let (client, identity) = (open_client(), authority.identity(None));
    for round in 0..30 {
        let path = |call| if call % 100 == 20 { "/last" } else { "/hook" };
        let calls = (0..300).map(|call| server.call(&client, path(call), Some(&identity)));
        for answer in join_all(calls).await {
            assert!(answer.is_ok(), "round {round}: {answer:?}");
        }
    }
}

/// The handshake is over for the caller when the receiver refuses it: the connection ends while the request goes out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_waits_for_a_connection_that_ends_as_it_goes_out() {
    let authority = Authority::new();
    let clients = Some(super::tls_server::Clients(&authority, true));
    let server = Server::start(&authority.issue("localhost"), clients, &["h2"]).await;
    let identity = authority.identity(None);
    for round in 0..200 {
        let client = open_client();
        for error in join_all((0..10).map(|_| server.call(&client, "/hook", Some(&identity)))).await {
            let error = error.unwrap_err();
            assert!(!matches!(error, CallError::Timeout { .. }), "round {round}: {error:?}");
        }
    }
}
