//! No secret in the clear: neither in what the database holds, nor in the metrics, nor in what the process prints at its most
//! talkative, also where calls fail and leave words behind.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use testkit::{
    receiver::{Answer, Receiver},
    wait_until,
};

use crate::support::{ADMIN_KEY, Backend, Call, MASTER_KEY, SOON, Setup, Tidegate, each_backend};

each_backend! {
    no_secret_is_in_the_database_or_the_log
    no_secret_of_a_call_that_fails_is_left_behind
}

/// What nobody but a receiver is told: the database holds them, and neither the log nor the metrics.
const PRIVATE: [&str; 2] = ["canary-token", "canary-payload"];

fn no_secret_is_in_the_database_or_the_log(backend: &Backend) {
    let tidegate = backend.locked().env("TIDEGATE__TELEMETRY__LOG", "trace").start();
    let addr = tidegate.addr();
    let mut secrets: Vec<String> = (0..20)
        .map(|number| {
            let call = Call::post("/admin/tenants/default/keys", json!({"name": format!("canary {number}")}));
            text(&call.admin().to(addr).expect(201), "key")
        })
        .collect();
    for key in &secrets {
        Call::get("/v1/me").key(key).to(addr).expect(200);
        Call::get("/v1/me").header("x-api-key", key).to(addr).expect(200);
        // A caller's mistakes must not put the key into a log line either.
        drop(Call::get(&format!("/v1/{key}")).key(key).to(addr));
        drop(Call::post("/admin/tenants", json!({"name": "x"})).key(key).to(addr));
    }
    // Behind a locked door only public addresses are called, and this name has none.
    let settings = json!({
        "url": "https://receiver.invalid/?token=canary-token", "event_types": ["a.b"],
        "headers": {"x-auth": "canary-header"}, "timeout": "1s", "retry_schedule": [],
    });
    let subscription = Call::post("/v1/subscriptions", settings).admin().to(addr).expect(201);
    let event = json!({"type": "a.b", "data": "canary-payload"});
    Call::post("/v1/events", event).admin().to(addr).expect(202);
    let failed = || Call::get("/v1/deliveries?status=failed").admin().to(addr).expect(200);
    wait_until(SOON, "the call to fail", || failed()["data"].as_array().unwrap().len() == 1);

    let of_subscription = [text(&subscription, "secret"), "canary-header".to_owned()];
    secrets.extend([ADMIN_KEY, MASTER_KEY].map(str::to_owned).into_iter().chain(of_subscription));
    assert_left_nowhere(&secrets, backend, tidegate, "canary 19");
}

/// Real calls, with a real signature and header: one is answered with an error, one gets no answer in time, one is cut off and
/// one is not taken.
fn no_secret_of_a_call_that_fails_is_left_behind(backend: &Backend) {
    let receiver = Receiver::start();
    let mut urls = vec!["http://127.0.0.1:9/".to_owned()];
    for (path, answer) in [("/error", Answer::Status(500)), ("/silence", Answer::Hang), ("/cut", Answer::Reset)] {
        receiver.set_path(path, answer);
        urls.push(receiver.url(path));
    }
    // In dev mode, a receiver on loopback may be called.
    let setup = backend.under(Setup::serve()).env("TIDEGATE_MASTER_KEY", MASTER_KEY).env("RETRY_POLL_INTERVAL", "1s");
    let tidegate = setup.env("TIDEGATE__TELEMETRY__LOG", "trace").start();
    let addr = tidegate.addr();
    let mut secrets = vec![MASTER_KEY.to_owned()];
    for (number, url) in urls.iter().enumerate() {
        let header = format!("canary-header-{number}");
        let settings = json!({
            "url": format!("{url}?token=canary-token"), "event_types": ["a.b"], "headers": {"x-auth": header},
            "signatures": "v1+v1a", "timeout": "500ms", "retry_schedule": ["100ms"],
        });
        let subscription = Call::post("/v1/subscriptions", settings).to(addr).expect(201);
        let rotate = format!("/v1/subscriptions/{}/rotate-secret", text(&subscription, "id"));
        let rotated = Call::new("POST", &rotate).to(addr).expect(200);
        secrets.extend([header, text(&subscription, "secret"), text(&rotated, "secret")]);
    }
    Call::post("/v1/events", json!({"type": "a.b", "data": "canary-payload"})).to(addr).expect(202);
    let failed = || Call::get("/v1/deliveries?status=failed").to(addr).expect(200);
    wait_until(SOON, "every call to fail twice", || failed()["data"].as_array().unwrap().len() == urls.len());

    let arrived = receiver.requests();
    let is_whole = |header: &str, signature: &str| header.starts_with("canary-header") && signature.starts_with("v1");
    let all_whole =
        arrived.iter().all(|request| is_whole(request.header("x-auth"), request.header("webhook-signature")));
    assert!(arrived.len() >= 6 && all_whole, "{arrived:?}");
    let attempts = Call::get("/v1/attempts").to(addr).expect(200);
    assert_eq!(attempts["data"].as_array().unwrap().len(), 2 * urls.len(), "{attempts}");
    // Nor in the words that are kept of them.
    let words = format!("{attempts}{}", failed());
    for secret in secrets.iter().map(String::as_str).chain(PRIVATE) {
        assert!(!words.contains(secret), "{secret} is told: {words}");
    }
    assert_left_nowhere(&secrets, backend, tidegate, "/silence");
}

/// Looks for `secrets` in everything that a process leaves behind, of which the database holds `known`.
fn assert_left_nowhere(secrets: &[String], backend: &Backend, tidegate: Tidegate, known: &str) {
    let dump = letters(&backend.dump(&tidegate));
    assert!(dump.contains(known), "the dump misses what it must hold");
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    assert!(metrics.contains("tidegate_deliveries"), "{metrics}");
    let output = tidegate.stop().succeeded().output;
    assert!(output.contains("Tidegate is ready."), "{output}");
    for secret in secrets {
        for spelling in spellings(secret) {
            assert!(!dump.contains(&spelling), "{secret} is in the database, as {spelling:?}");
        }
    }
    for secret in secrets.iter().map(String::as_str).chain(PRIVATE) {
        for place in [&metrics, &output] {
            assert_eq!(place.lines().find(|line| line.contains(secret)), None, "it holds {secret}");
        }
    }
}

/// As it is shown but for its prefix, as the bytes that it stands for, and both as PostgreSQL shows bytes.
fn spellings(secret: &str) -> Vec<String> {
    let bare = secret.strip_prefix("whsec_").or_else(|| secret.get(4..68)).unwrap_or(secret);
    let meant = [Some(bare.as_bytes().to_vec()), from_hex(bare), BASE64_STANDARD.decode(bare).ok()];
    meant.into_iter().flatten().flat_map(|bytes| [letters(&bytes), to_hex(&bytes)]).collect()
}

/// One letter for each byte, whatever they mean: text is searched quickly.
fn letters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn text(shown: &Value, name: &str) -> String {
    shown[name].as_str().unwrap().to_owned()
}
