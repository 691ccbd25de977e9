//! In a network where every internal address is a canary: nothing may ever connect to one.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use platform::http_client::{CallError, Config, Dns, HttpClient, Reachable, Target};

use super::{
    allowing,
    dns::{DnsServer, Record},
    guard::{ELSEWHERE, send_all_tricks},
    own_process::{PUBLIC, inside_namespace},
    post, post_within,
    raw::{Action, OK, RawServer},
};

const EVERYWHERE: &str = "[::]:0";
/// A canary, but for who allows its network.
const INSIDE: &str = "10.0.0.1";

fn address(text: &str) -> Record {
    Record::Address(text.parse().unwrap())
}

fn guarded(dns: &DnsServer) -> HttpClient {
    HttpClient::new(Config { dns: Dns::Servers(vec![dns.addr]), ..Config::default() })
}

fn breaches(canary: &RawServer) -> Vec<IpAddr> {
    let public: IpAddr = PUBLIC.parse().unwrap();
    canary.accepted().into_iter().filter(|ip| *ip != public).collect()
}

#[tokio::test]
async fn no_trick_reaches_a_canary() {
    if !inside_namespace("http_client::namespace::no_trick_reaches_a_canary") {
        return;
    }
    let canary = RawServer::start(EVERYWHERE, |_, _| Action::Send(OK.into()));
    for reachable in [Reachable::default(), allowing(&ELSEWHERE)] {
        send_all_tricks(canary.addr.port(), reachable).await;
    }
    assert!(canary.accepted().is_empty(), "{:?}", canary.accepted());
}

/// One name, many liars. Names that tell the truth all along must work, or the test would prove nothing.
#[tokio::test]
async fn no_answer_of_a_lying_dns_leads_to_a_canary() {
    if !inside_namespace("http_client::namespace::no_answer_of_a_lying_dns_leads_to_a_canary") {
        return;
    }
    let canary = RawServer::start(EVERYWHERE, |_, _| Action::End(OK.into()));
    let dns = DnsServer::start(|name, nth| match name.split('.').next().unwrap() {
        "honest" => vec![address(PUBLIC)],
        "honest-alias" => vec![Record::Alias("honest.example.com"), address(PUBLIC)],
        // A and AAAA are two questions: with three answers in turn, each of the two meets each of them.
        "flips" => vec![address(["127.0.0.1", PUBLIC, "169.254.169.254"][nth as usize % 3])],
        "mixed" => vec![address(PUBLIC), address("10.0.0.1")],
        "mixed-first" => vec![address("10.0.0.1"), address(PUBLIC)],
        "both-families" => vec![address(PUBLIC), address("fd00:ec2::254")],
        "mapped" => vec![address("::ffff:127.0.0.1")],
        "compatible" => vec![address("::127.0.0.1")],
        "site-local" => vec![address("fec0::1")],
        "alias" => vec![Record::Alias("metadata.google.internal"), address("169.254.169.254")],
        "crowd" => (0..25)
            .map(|_| address(PUBLIC))
            .chain([Record::Address(Ipv4Addr::LOCALHOST.into()), Record::Address(Ipv6Addr::LOCALHOST.into())])
            .collect(),
        _ => Vec::new(),
    });
    let client = guarded(&dns);
    let port = canary.addr.port();
    let (mut answered, mut refused) = (0, 0);
    let names = [
        "honest",
        "honest-alias",
        "flips",
        "flips",
        "flips",
        "mixed",
        "mixed-first",
        "both-families",
        "mapped",
        "compatible",
        "site-local",
        "alias",
        "crowd",
    ];
    for round in 0..150 {
        for name in names {
            match post(&client, &format!("http://{name}.example.com:{port}/{round}")).await {
                Ok(answer) => {
                    assert!(name.starts_with("honest") || name == "flips", "{name}: {}", answer.status);
                    answered += 1;
                }
                Err(CallError::Refused(reason)) => {
                    assert!(!name.starts_with("honest") && reason.code == "address_forbidden", "{name}: {reason}");
                    refused += 1;
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    println!("{answered} answered, {refused} refused");
    assert!(answered >= 300 + 50 && refused >= 1500);
    assert_eq!((breaches(&canary), canary.accepted().len()), (Vec::new(), answered));
}

/// Names may lead into the network that is allowed, whatever they look like, and nowhere else inside.
#[tokio::test]
async fn names_lead_into_an_allowed_network_and_to_no_other_canary() {
    if !inside_namespace("http_client::namespace::names_lead_into_an_allowed_network_and_to_no_other_canary") {
        return;
    }
    let receiver = RawServer::start(EVERYWHERE, |_, _| Action::End(OK.into()));
    let dns = DnsServer::start(|name, _| match name.trim_end_matches('.') {
        "hook" | "hook.local" | "hook.internal" | "hook.default.svc.cluster.local" | "hook.example.com" => {
            vec![address(INSIDE)]
        }
        "both.example.com" => vec![address(PUBLIC), address(INSIDE)],
        "mixed.example.com" => vec![address(INSIDE), address("192.168.1.1")],
        "mixed-metadata.example.com" => vec![address(INSIDE), address("169.254.169.254")],
        "mixed-families.example.com" => vec![address(INSIDE), address("fd00:ec2::254")],
        "mapped.example.com" => vec![address("::ffff:10.0.0.1")],
        "alias.example.com" => vec![Record::Alias("hook.internal"), address("172.16.0.1")],
        "loopback" | "loopback.example.com" => vec![address("127.0.0.1")],
        _ => Vec::new(),
    });
    let dns = Dns::Servers(vec![dns.addr]);
    let client = HttpClient::new(Config { reachable: allowing(&["10.0.0.0/24"]), dns, ..Config::default() });
    let url = |host: &str| format!("http://{host}:{}/", receiver.addr.port());
    let inside = ["hook", "hook.local", "hook.internal", "hook.default.svc.cluster.local", "hook.example.com", INSIDE];
    for host in inside.into_iter().chain(["both.example.com", PUBLIC]) {
        assert!(Target::parse(&url(host), client.reachable()).is_ok(), "{host}");
        assert_eq!(post(&client, &url(host)).await.map(|answer| answer.status.as_u16()).ok(), Some(200), "{host}");
    }
    let met = receiver.accepted().len();
    let mixed = ["mixed", "mixed-metadata", "mixed-families", "mapped", "alias", "loopback"];
    let outside = ["loopback", "127.0.0.1", "[::1]", "192.168.1.1", "172.16.0.1"].map(str::to_owned);
    for host in mixed.into_iter().map(|name| format!("{name}.example.com")).chain(outside) {
        let error = post(&client, &url(&host)).await.expect_err(&host);
        let is_refused = matches!(&error, CallError::Refused(refused) if refused.code == "address_forbidden");
        assert!(is_refused, "{host}: {error}");
    }
    let inside: IpAddr = INSIDE.parse().unwrap();
    assert_eq!((met, receiver.accepted().len()), (8, 8));
    assert!(breaches(&receiver).iter().all(|ip| *ip == inside), "{:?}", receiver.accepted());
}

#[tokio::test]
async fn a_dns_that_is_silent_about_one_family_does_not_hide_the_other() {
    if !inside_namespace("http_client::namespace::a_dns_that_is_silent_about_one_family_does_not_hide_the_other") {
        return;
    }
    let receiver = RawServer::start(EVERYWHERE, |_, _| Action::Send(OK.into()));
    let dns = DnsServer::start(|_, _| vec![address(PUBLIC), Record::NoWordOnV6]);
    let dns_timeout = Duration::from_secs(3);
    let client = HttpClient::new(Config { dns: Dns::Servers(vec![dns.addr]), dns_timeout, ..Config::default() });
    let url = format!("http://half.example.com:{}/", receiver.addr.port());
    assert_eq!(post(&client, &url).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_name_without_an_address_says_so_and_nothing_more() {
    if !inside_namespace("http_client::namespace::a_name_without_an_address_says_so_and_nothing_more") {
        return;
    }
    let dns = DnsServer::start(|_, _| Vec::new());
    let error = post(&guarded(&dns), "https://nobody.example.com/").await.unwrap_err();
    assert_eq!((error.class(), error.to_string().as_str()), ("dns", "the host name could not be resolved"));
    // Nobody answers there.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = Dns::Servers(vec![silent.local_addr().unwrap()]);
    let client = HttpClient::new(Config { dns, dns_timeout: Duration::from_millis(300), ..Config::default() });
    let error = post_within(&client, "https://nobody.example.com/", Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(error.class(), "dns" | "timeout"), "{error}");
}

#[tokio::test]
async fn redirects_to_internal_addresses_are_not_followed() {
    if !inside_namespace("http_client::namespace::redirects_to_internal_addresses_are_not_followed") {
        return;
    }
    let canary = RawServer::start(EVERYWHERE, |_, nth| {
        let status = 300 + nth;
        Action::Send(format!(
            "HTTP/1.1 {status} Elsewhere\r\nlocation: http://169.254.169.254:3128/\r\ncontent-length: 0\r\n\r\n"
        ))
    });
    let trap = RawServer::start("[::]:3128", |_, _| Action::Send(OK.into()));
    let client = HttpClient::new(Config::default());
    for status in 300..=308_u16 {
        let answer = post(&client, &format!("http://{PUBLIC}:{}/", canary.addr.port())).await.unwrap();
        assert_eq!(answer.status.as_u16(), status);
    }
    assert_eq!((trap.accepted().len(), breaches(&canary)), (0, Vec::new()));
}

/// The environment of this process names a proxy in every way there is.
#[tokio::test]
async fn no_proxy_of_the_environment_is_asked() {
    if !inside_namespace("http_client::namespace::no_proxy_of_the_environment_is_asked") {
        return;
    }
    let trap = RawServer::start("[::]:3128", |_, _| Action::Send(OK.into()));
    let receiver = RawServer::start(EVERYWHERE, |_, _| Action::Send(OK.into()));
    // The receiver does not speak TLS; that it was called is enough.
    let client = HttpClient::new(Config { connect_timeout: Duration::from_secs(2), ..Config::default() });
    post(&client, &format!("http://{PUBLIC}:{}/", receiver.addr.port())).await.unwrap();
    drop(post(&client, &format!("https://{PUBLIC}:{}/", receiver.addr.port())).await.unwrap_err());
    assert_eq!((trap.accepted().len(), receiver.accepted().len()), (0, 2));
}

/// We listen on every address, and one of them is public: nothing but the socket knows that it leads home.
#[tokio::test]
async fn our_own_public_address_gets_no_request() {
    if !inside_namespace("http_client::namespace::our_own_public_address_gets_no_request") {
        return;
    }
    let own = RawServer::start(EVERYWHERE, |_, _| Action::Send(OK.into()));
    for listener in ["0.0.0.0", "[::]"] {
        let own_listeners = vec![format!("{listener}:{}", own.addr.port()).parse().unwrap()];
        let client = HttpClient::new(Config { own_listeners, ..Config::default() });
        let error = post(&client, &format!("http://{PUBLIC}:{}/", own.addr.port())).await.unwrap_err();
        assert!(matches!(&error, CallError::Refused(refused) if refused.code == "own_listener"), "{error}");
    }
    assert_eq!(own.requests().len(), 0);
}
