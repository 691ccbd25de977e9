//! Hostile input: a gRPC status, never a crash, and never at another caller's expense.

use serde_json::json;
use testkit::{need, wait_until};

use super::{Client, SHOULD_RATE_LIMIT, descriptor, envoy};
use crate::support::{Call, Connection, SOON, Setup};

#[test]
fn bytes_that_are_no_message_are_refused_with_a_status() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let raw = |hex: &str| client.say(&json!({"method": SHOULD_RATE_LIMIT, "raw": hex}));
    // A domain that is not UTF-8, a length beyond the end, a field number of 0, a group that never ends, noise.
    for hex in ["0a02fffe", "0affffffff0f", "0000", "0b", "ffffffffffffffffff"] {
        let answer = raw(hex);
        assert!(answer["code"].is_string(), "{hex}: {answer}");
        assert_ne!(answer["code"], "UNKNOWN", "{hex}: {answer}");
    }
    // A message above the bound, and one nested deeper than parsers read.
    let huge = raw(&"0a80808001".chars().chain("61".repeat(2 << 20).chars()).collect::<String>());
    assert!(["OUT_OF_RANGE", "RESOURCE_EXHAUSTED"].contains(&huge["code"].as_str().unwrap()), "{}", huge["code"]);
    let nested = raw(&"12ffff03".repeat(10_000));
    assert!(nested["code"].is_string(), "{nested}");
    let unknown = client.say(&json!({"method": "/no.such.Service/Method", "raw": ""}));
    assert_eq!(unknown["code"], "UNIMPLEMENTED", "{unknown}");
    let answer = client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor("generic_key", "login")]}));
    assert_eq!(answer["overall_code"], "OK");
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

#[test]
fn nonsense_and_silence_instead_of_http2_end_that_connection_only() {
    let tidegate = envoy(Setup::serve().env("TIDEGATE__SERVER__HEADER_TIMEOUT", "1s"));
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let open = || Connection::open(tidegate.grpc_addr()).unwrap();
    let mut strangers: Vec<Connection> = (0..20).map(|_| open()).collect();
    let begun = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ];
    for (number, stranger) in strangers.iter_mut().enumerate() {
        drop(stranger.send(begun.get(number).copied().unwrap_or_default()));
    }
    wait_until(SOON, "every stranger to be hung up on", || {
        strangers.retain_mut(|stranger| !stranger.is_closed());
        strangers.is_empty()
    });
    client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor("generic_key", "login")]}));
}

/// A browser on this machine runs other people's pages, and dev mode asks for no key. A page whose own name leads here
/// may send any type, but only HTTP/1.1.
#[test]
fn a_web_pages_post_is_refused_by_its_version() {
    let tidegate = envoy(Setup::serve());
    for path in [SHOULD_RATE_LIMIT, "/tidegate.limits.v1.Gates/Enter", "/grpc.health.v1.Health/Check", "/"] {
        for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json", "application/grpc"]
        {
            let call = Call::new("POST", path).body(content_type, b"\0\0\0\0\0".to_vec());
            let answer = call.header("host", "evil.example").to(tidegate.grpc_addr());
            assert_eq!(answer.status, 505, "{path} {content_type}: {answer:?}");
            assert!(answer.body.contains("HTTP/2"), "{answer:?}");
        }
    }
}

#[test]
fn sigterm_ends_health_watches_and_drains_at_once() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    const SERVING: u64 = 1;
    const NOT_SERVING: u64 = 2;
    assert_eq!(client.say(&json!({"watch": "begin"}))["seen"], SERVING);
    let began = std::time::Instant::now();
    tidegate.stop().succeeded();
    assert!(began.elapsed().as_secs() < 10, "it waited for the watch: {:?}", began.elapsed());
    let watched = client.say(&json!({"watch": "end"}));
    assert_eq!(watched["seen"][0], NOT_SERVING, "{watched}");
    let answer = client.call(SHOULD_RATE_LIMIT, json!({"domain": "edge", "descriptors": [descriptor("a", "b")]}));
    assert_eq!(answer["code"], "UNAVAILABLE", "{answer}");
}
