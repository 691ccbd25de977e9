//! The doors of a Redis that is not open to everybody: TLS, and a login with few rights.

use std::fs;
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::limiter::{Algorithm, Limiter, Policy};
use gate::redis::{Config, Status};
use gate::{Backend, Clock, fallback};
use testkit::redis::Server;

use crate::backends::key;

const PATIENCE: Duration = Duration::from_secs(10);

fn open(config: Config) -> Backend {
    let patient = fallback::Config { deadline: PATIENCE, ..fallback::Config::default() };
    Backend::redis_with(config, patient, Clock::System).expect("the URL is valid")
}

async fn is_decided_by_redis(backend: &Backend) -> bool {
    let policy = Policy::new(Algorithm::Gcra, 5, Duration::from_secs(1)).expect("a plain limit is valid");
    let decision = Limiter::new(backend).check(&key("door"), &policy, NonZeroU64::MIN).await;
    assert!(decision.is_allowed());
    !decision.degraded
}

async fn settled(backend: &Backend, status: Status) {
    eventually(PATIENCE, "the line to settle", async || backend.connection() == Some(status)).await;
}

#[tokio::test]
async fn tls_is_spoken_with_a_known_authority_and_refused_with_an_unknown_one() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder for the certificate");
    let (certificate, secret) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, certified.cert.pem()).expect("the certificate is written");
    fs::write(&secret, certified.signing_key.serialize_pem()).expect("the key is written");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let (certificate, secret) = (certificate.to_string_lossy(), secret.to_string_lossy());
    let server = testkit::need!(Server::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &secret,
        "--tls-ca-cert-file",
        &certificate,
        "--tls-auth-clients",
        "no",
    ]));
    let url = format!("rediss://localhost:{port}/");
    let known = Config { root_certificate: Some(certified.cert.pem().into_bytes()), ..Config::new(&url) };
    let backend = open(known);
    settled(&backend, Status::Connected).await;
    assert!(is_decided_by_redis(&backend).await);

    let stranger = open(Config::new(&url));
    settled(&stranger, Status::Down).await;
    assert!(!is_decided_by_redis(&stranger).await, "an unknown authority must not be trusted");
    drop(server);
}

#[tokio::test]
async fn a_login_that_may_only_touch_its_prefix_is_enough_and_a_wrong_password_is_not() {
    let server = testkit::need!(Server::start());
    let rights = ["ACL", "SETUSER", "gate", "on", ">p@ss", "~app:*", "+@all", "-@admin", "-@dangerous"];
    server.cli(&rights);
    let url = |password: &str| format!("redis://gate:{password}@127.0.0.1:{}/", server.port());
    let backend = open(Config { prefix: "app:".to_owned(), ..Config::new(url("p%40ss")) });
    settled(&backend, Status::Connected).await;
    assert!(is_decided_by_redis(&backend).await);

    let stranger = open(Config { prefix: "app:".to_owned(), ..Config::new(url("guess")) });
    settled(&stranger, Status::Down).await;
    assert!(!is_decided_by_redis(&stranger).await);
}
