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
mod tls;
mod tls_server;
mod tricks;

use std::time::Duration;

use bytes::Bytes;
use platform::http_client::{Answer, Call, CallError, Config, HttpClient, Target};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(10);

/// Dev mode: loopback may be called.
fn open_client() -> HttpClient {
    HttpClient::new(Config { allow_private: true, ..Config::default() })
}

async fn post_within(client: &HttpClient, url: &str, deadline: Duration) -> Result<Answer, CallError> {
    let target = Target::parse(url, true)?;
    client.post(Call { target: &target, headers: &[], body: Bytes::from_static(b"{}"), deadline, tls: None }).await
}

async fn post(client: &HttpClient, url: &str) -> Result<Answer, CallError> {
    post_within(client, url, DEADLINE).await
}
