//! A receiver with a certificate of its own authority, which asks for the caller's: reached with the right certificates,
//! and with no others. The private key is in no answer, no log and no database.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};

use super::{attempts, replica, send, subscribe, wait_for_status};
use crate::support::{Backend, Call, each_backend};

each_backend! {
    a_receiver_that_asks_for_a_certificate_gets_the_right_one
}

pub(super) struct Authority(pub(super) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority for tests");
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key, as PEM.
    pub(super) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// Answers 200 to whoever shows a certificate of the authority; ends when dropped.
struct Server {
    addr: SocketAddr,
    answered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    fn start(authority: &Authority) -> Server {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
        let (chain, key) = authority.issue("localhost");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { addr: listener.local_addr().unwrap(), answered: Arc::default(), is_over: Arc::default() };
        let (config, answered, is_over) = (Arc::new(config), Arc::clone(&server.answered), Arc::clone(&server.is_over));
        thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                if answer(StreamOwned::new(connection, stream)).is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/hook", self.addr.port())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(std::net::TcpStream::connect(self.addr));
    }
}

/// One request, one answer, and the end of the connection.
fn answer(stream: impl Read + Write) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let stream = reader.get_mut();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")?;
    stream.flush()
}

fn a_receiver_that_asks_for_a_certificate_gets_the_right_one(backend: &Backend) {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = Server::start(&ours);
    let (certificate, key) = ours.issue("tidegate");
    let (wrong, wrong_key) = theirs.issue("tidegate");
    let tidegate = replica(backend).env("TIDEGATE__TELEMETRY__LOG", "trace").start();
    let addr = tidegate.addr();
    let ca = ours.0.pem();
    let tls = json!({"ca": ca, "certificate": certificate, "key": key});
    let made = subscribe(addr, &server.url(), json!({"tls": tls, "event_types": ["good"], "retry_schedule": []}));
    assert_eq!(made["tls"], json!({"ca": ca, "certificate": certificate, "key": "***"}));
    send(addr, json!({"id": "good", "type": "good", "data": {}}));
    wait_for_status(addr, "good", "delivered");
    assert_eq!(server.answered.load(Ordering::Relaxed), 1);

    for (name, tls) in [
        ("none", Value::Null),
        ("nobody", json!({"ca": ca})),
        ("stranger", json!({"ca": ca, "certificate": wrong, "key": wrong_key})),
        ("distrust", json!({"ca": theirs.0.pem(), "certificate": certificate, "key": key})),
    ] {
        subscribe(addr, &server.url(), json!({"tls": tls, "event_types": [name], "retry_schedule": []}));
        send(addr, json!({"id": name, "type": name, "data": {}}));
        let failed = wait_for_status(addr, name, "failed");
        assert_eq!(attempts(addr, &failed)[0]["response_status"], Value::Null, "{name}: {failed}");
    }
    assert_eq!(server.answered.load(Ordering::Relaxed), 1, "nobody else came in");

    // Left alone by a change of something else; taken away with null.
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let patch = |change: Value| Call::new("PATCH", &path).json(change).to(addr).expect(200);
    assert_eq!(patch(json!({"description": "x"}))["tls"], made["tls"]);
    send(addr, json!({"id": "again", "type": "good", "data": {}}));
    wait_for_status(addr, "again", "delivered");
    assert_eq!(patch(json!({"tls": null})).get("tls"), None);

    let dump = backend.dump(&tidegate);
    let output = tidegate.stop().succeeded().output;
    for line in key.lines().chain(wrong_key.lines()).filter(|line| line.len() > 40 && !line.starts_with("---")) {
        assert!(!dump.windows(line.len()).any(|window| window == line.as_bytes()), "a key is in the database");
        assert!(!output.contains(line), "a key is in the log");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let authority = Authority::new();
    let ((certificate, key), (_, other_key)) = (authority.issue("a"), authority.issue("b"));
    let https = "https://localhost:1/";
    for (url, tls, field) in [
        (https, json!({}), "tls"),
        (https, json!({"ca": "not PEM"}), "tls.ca"),
        (https, json!({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}), "tls.ca"),
        (https, json!({"certificate": certificate}), "tls.key"),
        (https, json!({"key": key}), "tls.certificate"),
        (https, json!({"certificate": certificate, "key": "not PEM"}), "tls.key"),
        (https, json!({"certificate": "not PEM", "key": key}), "tls.certificate"),
        (https, json!({"certificate": certificate, "key": other_key}), "tls.certificate"),
        (https, json!({"ca": "x".repeat(70_000)}), "tls.ca"),
        (https, json!({"cert": certificate}), "tls.cert"),
        ("http://localhost:1/", json!({"certificate": certificate, "key": key}), "tls"),
    ] {
        let new = json!({"url": url, "event_types": ["**"], "tls": tls});
        let problem = Call::post("/v1/subscriptions", new).to(addr).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert_eq!(Call::get("/v1/subscriptions").to(addr).expect(200)["data"], json!([]), "nothing was stored");
    let made = subscribe(addr, https, json!({"tls": {"certificate": certificate, "key": key}}));
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let plain = json!({"url": "http://localhost:1/"});
    Call::new("PATCH", &path).json(plain).to(addr).expect_problem(422, "invalid_field");
}
