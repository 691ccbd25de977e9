//! No secret in the clear: neither in what the database holds, nor in what the process prints at its most talkative.

use serde_json::json;

use crate::support::{ADMIN_KEY, Backend, Call, MASTER_KEY, each_backend};

each_backend! {
    no_secret_is_in_the_database_or_the_log
}

fn no_secret_is_in_the_database_or_the_log(backend: &Backend) {
    let tidegate = backend.locked().env("TIDEGATE__TELEMETRY__LOG", "trace").start();
    let mut keys: Vec<String> = (0..20)
        .map(|number| {
            let call = Call::post("/admin/tenants/default/keys", json!({"name": format!("canary {number}")}));
            call.admin().to(tidegate.addr()).expect(201)
        })
        .map(|shown| shown["key"].as_str().unwrap().to_owned())
        .collect();
    for key in &keys {
        Call::get("/v1/me").key(key).to(tidegate.addr()).expect(200);
        Call::get("/v1/me").header("x-api-key", key).to(tidegate.addr()).expect(200);
        // A caller's mistakes must not put the key into a log line either.
        drop(Call::get(&format!("/v1/{key}")).key(key).to(tidegate.addr()));
        drop(Call::post("/admin/tenants", json!({"name": "x"})).key(key).to(tidegate.addr()));
    }
    keys.extend([ADMIN_KEY.to_owned(), MASTER_KEY.to_owned()]);
    // Nothing is delivered: no event is of this type.
    let url = "https://receiver.invalid/?token=canary-token";
    let subscription = json!({"url": url, "event_types": ["never"], "headers": {"x-auth": "canary-header"}});
    Call::post("/v1/subscriptions", subscription).admin().to(tidegate.addr()).expect(201);
    let event = json!({"type": "a.b", "data": "canary-payload"});
    Call::post("/v1/events", event).admin().to(tidegate.addr()).expect(202);

    let dump = backend.dump(&tidegate);
    assert!(contains(&dump, b"canary 19"), "the dump misses what it must hold");
    for key in &keys {
        let random = key.get(4..68).unwrap_or(key);
        assert!(!contains(&dump, random.as_bytes()), "{key} is in the database");
        if let Some(bytes) = from_hex(random) {
            assert!(!contains(&dump, &bytes), "the bytes of {key} are in the database");
        }
    }

    let output = tidegate.stop().succeeded().output;
    assert!(output.contains("Tidegate is ready."), "{output}");
    keys.extend(["canary-token", "canary-header", "canary-payload"].map(str::to_owned));
    for key in keys {
        assert_eq!(output.lines().find(|line| line.contains(&key)), None);
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
