//! Bar 50: webhooks as they really arrive, byte by byte, are verified by the official Standard Webhooks libraries: before a
//! rotation, and during it by who holds the old secret as by who holds the new one.

use serde_json::{Value, json};
use testkit::{
    need,
    official::{self, Library, NO_MATCH, VERIFIED},
    receiver::{Receiver, Request},
};

use super::{LATER, replica, subscribe};
use crate::support::{Backend, Call};

#[test]
fn the_official_python_library_verifies_what_arrives() {
    let library = need!(official::python());
    for Arrived { request, secrets, .. } in arrived() {
        assert_trusted(&library, "secret", &secrets, &request);
    }
}

/// And Node's own ed25519 what is signed for those who hold only a public key.
#[test]
fn the_official_javascript_library_verifies_what_arrives() {
    let library = need!(official::javascript());
    for Arrived { request, secrets, public_keys } in arrived() {
        assert_trusted(&library, "secret", &secrets, &request);
        assert_trusted(&library, "public_key", &public_keys, &request);
    }
}

/// A webhook, and all that it can be verified with.
struct Arrived {
    request: Request,
    secrets: Vec<String>,
    public_keys: Vec<String>,
}

/// One from before a rotation, and one from during it.
fn arrived() -> [Arrived; 2] {
    // Whatever a parser would write in another way must arrive as it was sent.
    let event = r#"{"type": "order.created", "data": { "price" : 1.50, "name":"Zo\u00eb 🌊", "path":"a\/b" }}"#;
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let deliver = |nth: usize| {
        Call::new("POST", "/v1/events").body("application/json", event).to(addr).expect(202);
        receiver.received_blocking(nth, LATER).remove(nth - 1)
    };
    let keys = |shown: &Value| -> Vec<String> {
        shown["public_keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
    };
    let made = subscribe(addr, &receiver.url("/"), json!({"signatures": "v1+v1a"}));
    let before = deliver(1);
    let path = format!("/v1/subscriptions/{}/rotate-secret", made["id"].as_str().unwrap());
    let rotated = Call::new("POST", &path).to(addr).expect(200);
    let during = deliver(2);
    let [old, new] = [&made, &rotated].map(|shown| shown["secret"].as_str().unwrap().to_owned());
    let arrived = [
        Arrived { request: before, secrets: vec![old.clone()], public_keys: keys(&made) },
        Arrived { request: during, secrets: vec![old, new], public_keys: keys(&rotated) },
    ];
    for Arrived { request, secrets, public_keys } in &arrived {
        assert_eq!(secrets.len(), public_keys.len());
        let signatures = request.header("webhook-signature");
        assert_eq!(signatures.split(' ').count(), secrets.len() + public_keys.len(), "{signatures}");
    }
    arrived
}

/// Who holds any of these can verify the webhook, and none under another id or with another body.
fn assert_trusted(library: &Library, kind: &str, all_held: &[String], request: &Request) {
    let (timestamp, signature) = (request.header("webhook-timestamp"), request.header("webhook-signature"));
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    let call = |held: &str, id: &str, body: &str| -> Value {
        json!({kind: held, "id": id, "timestamp": timestamp, "signature": signature, "body": body})
    };
    let calls: Vec<Value> = all_held
        .iter()
        .flat_map(|held| {
            let (id, another_id) = (request.id(), format!("{}x", request.id()));
            [call(held, id, &body), call(held, &another_id, &body), call(held, id, &format!("{body} "))]
        })
        .collect();
    let verdicts: Vec<String> = serde_json::from_str(&library.verdicts(&json!(calls).to_string())).unwrap();
    assert_eq!(verdicts, [VERIFIED, NO_MATCH, NO_MATCH].repeat(all_held.len()), "{calls:?}");
}
