//! The outbound client against receivers that are good, bad and malicious. Everything is on loopback.

mod address;
mod answers;
mod dns;
mod guard;
mod hostile;
mod http2;
mod keep_alive;
mod namespace;
mod own_process;
mod raw;
mod reachable;
mod tls;
mod tls_server;
mod tricks;

use std::time::Duration;

use bytes::Bytes;
use platform::http_client::{Answer, Call, CallError, Config, HttpClient, Network, Reachable, Target};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(10);

/// Dev mode: loopback may be called.
fn open_client() -> HttpClient {
    HttpClient::new(Config { reachable: Reachable::loopback(), ..Config::default() })
}

/// Outside dev mode, with these networks allowed.
fn allowing(networks: &[&str]) -> Reachable {
    let networks: Vec<Network> = networks.iter().map(|text| Network::parse("key", text).unwrap()).collect();
    Reachable::default().and(&networks)
}

/// As much as can be: in dev mode, with every private network allowed.
fn all_reachable() -> Reachable {
    let networks = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
    Reachable::loopback().and(&networks.map(|text| Network::parse("key", text).unwrap()))
}

/// The URL is checked with all private networks allowed, so the connector alone decides.
async fn post_within(client: &HttpClient, url: &str, deadline: Duration) -> Result<Answer, CallError> {
    let target = Target::parse(url, &all_reachable())?;
    client.post(Call { target: &target, headers: &[], body: Bytes::from_static(b"{}"), deadline, tls: None }).await
}

async fn post(client: &HttpClient, url: &str) -> Result<Answer, CallError> {
    post_within(client, url, DEADLINE).await
}
