//! Hostile input: an error in the protocol's own form, then the end of that connection only.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use testkit::wait_until;

use super::{Client, Server, command};
use crate::support::{ADMIN_KEY, Call, SOON, Setup};

#[test]
fn what_is_no_command_is_answered_with_an_error_and_hung_up_on() {
    let server = Server::start(Setup::serve());
    let deep = "*1\r\n".repeat(10_000);
    let endless = "x".repeat(100_000);
    let many_words = "a ".repeat(1000) + "\r\n";
    for nonsense in [
        "*-99999999999999999999\r\n",
        "*1000000\r\n",
        "*99999999999999999999999999\r\n",
        "*2\r\n$4\r\nECHO\r\n$-5\r\n",
        "*2\r\n$4\r\nECHO\r\n$536870912\r\n",
        "*2\r\n$4\r\nECHO\r\n$99999999999999\r\n",
        "*1\r\n$4\r\nPINGPONG\r\n",
        "*1\r\n+PING\r\n",
        "*x\r\n",
        &deep,
        &endless,
        &many_words,
        "ECHO 'half\r\n",
    ] {
        let mut client = server.client();
        client.send(&command(&["PING"])).unwrap();
        // It may hang up before it has heard all of it.
        drop(client.send(nonsense.as_bytes()));
        let answer = client.rest();
        let shown = nonsense.get(..40).unwrap_or(nonsense);
        // A reset may swallow what was said, never more than that.
        assert!(answer.is_empty() || answer.starts_with("+PONG\r\n-ERR Protocol error: "), "{shown:?}: {answer:?}");
    }
    assert_eq!(server.client().ask(&["PING"]), "PONG");
    assert!(!server.tidegate.output().contains("panicked"), "{}", server.tidegate.output());
}

#[test]
fn mistakes_inside_a_command_leave_the_connection_open_and_charge_nothing() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    let long = "k".repeat(600);
    for (words, says) in [
        (&["THROTTLE"][..], "wrong number of arguments"),
        (&["THROTTLE", "k", "1", "1"], "wrong number of arguments"),
        (&["THROTTLE", "", "1", "1", "1"], "key: a key has 1 to"),
        (&["THROTTLE", &long, "1", "1", "1"], "key: a key has 1 to"),
        (&["THROTTLE", "k", "-1", "1", "1"], "max_burst: not a whole number from 1"),
        (&["THROTTLE", "k", "1", "0", "1"], "count: not a whole number from 1"),
        (&["THROTTLE", "k", "1", "1", "0"], "period: not a whole number from 1"),
        (&["THROTTLE", "k", "1", "1", "1", "-1"], "quantity: not a whole number from 0"),
        (&["THROTTLE", "k", "1", "1", "1", "9999999999999999999999"], "quantity: not a whole number"),
        (&["THROTTLE", "k", "4294967295", "7", "31622399"], "count, period: a limit of 7"),
        (&["NO\r\nSUCH"], "unknown command 'NO??SUCH'"),
    ] {
        let answer = client.ask(words);
        assert!(answer.starts_with("-ERR ") && answer.contains(says), "{words:?}: {answer}");
    }
    client.send(b"*5\r\n$8\r\nTHROTTLE\r\n$2\r\n\xff\xfe\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n").unwrap();
    assert!(client.reply().starts_with("-ERR key: it must be UTF-8"));
    assert_eq!(client.ask(&["THROTTLE", "k", "1", "1", "1"]), "1 1 0 1 0");
}

/// Also one byte at a time: what has arrived buys no time for what has not.
#[test]
fn half_a_command_and_silence_are_waited_for_only_so_long() {
    let setup =
        Setup::serve().env("TIDEGATE__SERVER__HEADER_TIMEOUT", "2s").env("TIDEGATE__SERVER__RESP_IDLE_TIMEOUT", "3s");
    let server = Server::start(setup);
    let mut silent: Vec<Client> = (0..50).map(|_| server.client()).collect();
    let mut dripping: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for client in &mut dripping {
        client.send(b"*2\r\n$4\r\nECHO\r\n$10000\r\n").unwrap();
    }
    let mut busy = server.client();
    wait_until(SOON, "every slow connection to be closed", || {
        silent.retain_mut(|client| !client.is_closed());
        dripping.retain_mut(|client| client.send(b"y").is_ok() && !client.is_closed());
        assert_eq!(busy.ask(&["PING"]), "PONG", "a client that speaks stays");
        silent.is_empty() && dripping.is_empty()
    });
}

/// A stream of commands need not end where a read does: each command has its own time, and all of them came at once.
#[test]
fn who_streams_commands_is_never_late_with_the_rest_of_one() {
    let server = Server::start(Setup::serve().env("TIDEGATE__SERVER__HEADER_TIMEOUT", "1s"));
    let mut client = server.client();
    client.send(b"PI").unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        client.send(b"NG\r\nPI").unwrap();
        assert_eq!(client.reply(), "PONG", "after {:?}", began.elapsed());
    }
}

/// Each error is a hundred times longer than the command that it answers.
#[test]
fn a_flood_of_short_wrong_commands_is_answered_piece_by_piece() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    let mut sending = client.0.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || sending.write_all(&b"x\n".repeat(100_000)).unwrap());
        for number in 0..100_000 {
            assert!(client.reply().starts_with("-ERR unknown command 'x'"), "{number}");
        }
    });
}

#[test]
fn a_stranger_is_not_waited_for_as_long_as_a_client() {
    let server = Server::start(Setup::locked().env("TIDEGATE__SERVER__HEADER_TIMEOUT", "2s"));
    let mut stranger = server.client();
    let mut client = server.client();
    assert_eq!(client.ask(&["AUTH", ADMIN_KEY]), "OK");
    wait_until(SOON, "the stranger to be closed", || stranger.is_closed());
    assert_eq!(client.ask(&["PING"]), "PONG");
}

/// A web page can post to any port of the machine; its body must not count.
#[test]
fn a_browsers_post_is_hung_up_on_before_its_body_is_read() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    client.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nCL.THROTTLE k 0 1 3600\r\n").unwrap();
    assert_eq!(client.rest(), "");
    assert_eq!(server.client().ask(&["CL.THROTTLE", "k", "0", "1", "3600"]), "0 1 0 -1 3600");
}

#[test]
fn connections_over_the_limit_are_closed_at_once_and_counted() {
    let server = Server::start(Setup::serve().env("TIDEGATE__SERVER__MAX_CONNECTIONS", "4"));
    let mut held: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.ask(&["PING"]), "PONG");
    }
    let mut fifth = server.client();
    wait_until(SOON, "the fifth to be closed", || fifth.is_closed());
    let metrics = Call::get("/metrics").to(server.tidegate.ops_addr()).body;
    assert!(metrics.contains("tidegate_http_connections_refused_total{listener=\"resp\"}"), "{metrics}");
}

#[test]
fn sigterm_answers_what_was_asked_and_closes_the_rest() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    assert_eq!(client.ask(&["PING"]), "PONG");
    client.send(b"*2\r\n$4\r\nECHO\r\n").unwrap();
    server.tidegate.stop().succeeded();
    assert_eq!(client.rest(), "");
}
