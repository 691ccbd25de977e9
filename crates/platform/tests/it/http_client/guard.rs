//! No trick reaches an internal address: not when a URL is written, and not when it is called.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::Bytes;
use platform::http_client::{Call, CallError, Config, Dns, HttpClient, Reachable, Target, check_header};
use testkit::receiver::Receiver;

use super::{
    all_reachable, allowing,
    dns::{DnsServer, Record},
    tricks,
};

/// Codes are part of the API: people write programs against them.
const CODES: [&str; 8] = [
    "address_forbidden",
    "url_fragment",
    "url_host",
    "url_length",
    "url_port",
    "url_scheme",
    "url_syntax",
    "url_userinfo",
];

#[test]
fn every_trick_is_refused_with_a_stable_code_or_is_a_plain_name() {
    let urls = tricks::all(8099);
    assert!(urls.len() >= 1100, "{}", urls.len());
    let mut tally = BTreeMap::new();
    for url in &urls {
        match Target::parse(url, &Reachable::default()) {
            Err(refused) => {
                assert!(CODES.contains(&refused.code), "{url:?}: {}", refused.code);
                *tally.entry(refused.code).or_insert(0) += 1;
            }
            Ok(target) => {
                assert!(
                    target.host().parse::<IpAddr>().is_err() && !target.host().starts_with('['),
                    "{url:?}: {target}"
                );
                assert!(target.host().contains('.'), "{url:?}: {target}");
                *tally.entry("a name").or_insert(0) += 1;
            }
        }
    }
    println!("{} URLs: {tally:?}", urls.len());
}

/// Networks in which there is none of the tricks' prey.
pub(super) const ELSEWHERE: [&str; 5] =
    ["10.20.0.0/16", "172.20.0.0/16", "192.168.20.0/24", "fd12::/48", "127.20.0.0/16"];

/// An address of the inside is what its network decides; names of the inside may be looked up, and nothing else changes.
#[test]
fn no_trick_becomes_another_address_where_networks_are_allowed() {
    for url in tricks::all(8099) {
        let [without, with] =
            [Reachable::default(), allowing(&ELSEWHERE)].map(|reachable| Target::parse(&url, &reachable));
        match (without, with) {
            (without, with) if without == with => (),
            (Err(refused), Ok(target)) => {
                let is_literal = target.host().parse::<IpAddr>().is_ok() || target.host().starts_with('[');
                assert!(refused.code == "url_host" && !is_literal, "{url:?}: {target}");
            }
            (without, with) => panic!("{url:?}: {without:?} and {with:?}"),
        }
    }
}

/// The second line: whatever passed the first, under a DNS that says "loopback" to every question.
pub(super) async fn send_all_tricks(port: u16, reachable: Reachable) {
    let dns = DnsServer::start(|_, _| vec![Record::Address(Ipv4Addr::LOCALHOST.into())]);
    let client = HttpClient::new(Config { reachable, dns: Dns::Servers(vec![dns.addr]), ..Config::default() });
    let mut sent = 0;
    for url in tricks::all(port) {
        // Parsed with everything allowed, so that the connector alone stands between the URL and its prey.
        let Ok(target) = Target::parse(&url, &all_reachable()) else { continue };
        sent += 1;
        let call =
            Call { target: &target, headers: &[], body: Bytes::new(), deadline: Duration::from_secs(20), tls: None };
        let error = client.post(call).await.map(|answer| answer.status).expect_err(&url);
        assert!(
            matches!(&error, CallError::Refused(refused) if refused.code == "address_forbidden"),
            "{url:?}: {error}"
        );
    }
    assert!(sent >= 400, "{sent}");
}

#[tokio::test]
async fn no_trick_reaches_loopback_when_it_is_called() {
    let canary = Receiver::start();
    for reachable in [Reachable::default(), allowing(&ELSEWHERE)] {
        send_all_tricks(canary.addr().port(), reachable).await;
    }
    assert_eq!(canary.connections(), 0);
}

#[test]
fn urls_of_honest_users_are_taken() {
    for (url, shown) in [
        ("https://example.com", "https://example.com/"),
        ("https://hooks.example.com/a/b?token=secret", "https://hooks.example.com/a/b?***"),
        ("http://example.com:8080/x", "http://example.com:8080/x"),
        ("https://example.com:443/", "https://example.com/"),
        ("HTTPS://EXAMPLE.com/Path", "https://example.com/Path"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://1.1.1.1/", "https://1.1.1.1/"),
        ("https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]/"),
        ("https://my_app.example.co.uk/{id}|x", "https://my_app.example.co.uk/%7Bid%7D|x"),
    ] {
        let target = Target::parse(url, &Reachable::default()).unwrap_or_else(|refused| panic!("{url}: {refused}"));
        assert_eq!(target.to_string(), shown);
    }
}

#[test]
fn hosts_and_urls_have_a_longest() {
    let label = "a".repeat(63);
    let code = |url: &str| Target::parse(url, &Reachable::default()).map(|_| ()).map_err(|refused| refused.code);
    assert_eq!(code(&format!("https://{label}.com/")), Ok(()));
    assert_eq!(code(&format!("https://a{label}.com/")), Err("url_host"));
    let longest = [label.as_str(), &label, &label, &label[..57]].join(".");
    assert_eq!(code(&format!("https://{longest}.com/")), Ok(()));
    assert_eq!(code(&format!("https://{longest}a.com/")), Err("url_host"));
    assert_eq!(code(&format!("https://example.com/{}", "a".repeat(2048))), Err("url_length"));
}

#[test]
fn headers_that_move_the_frame_or_our_signature_are_refused() {
    let names = [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "expect",
        "Upgrade",
        "TE",
        "trailer",
        "Keep-Alive",
        "Proxy-Authorization",
        "proxy-anything",
        "webhook-id",
        "Webhook-Signature",
        "webhook-",
        "http2-settings",
    ];
    for name in names {
        assert_eq!(check_header(name, "x").unwrap_err().code, "header_forbidden", "{name}");
    }
    for name in ["", " ", "a b", "a:b", "a\r\nb", "a\0", "ü", "a\tb", &"a".repeat(129)] {
        assert_eq!(check_header(name, "x").unwrap_err().code, "header_name", "{name:?}");
    }
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "ü", "\u{7f}", &"a".repeat(4097)] {
        assert_eq!(check_header("x-mine", value).unwrap_err().code, "header_value", "{value:?}");
    }
    assert!(check_header("Authorization", "Bearer abc").is_ok());
    assert!(check_header("X-Custom", "").is_ok());
}
