//! What we sign is verified by the official Standard Webhooks libraries, and what was meddled with is not.
//!
//! The libraries read the machine's clock and offer no other, so these calls carry the time of the run.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use dispatch::delivery::{MessageId, Signer, SigningKey, SigningSecret};
use serde_json::{Value, json};
use testkit::{
    need,
    official::{self, Library, NO_MATCH, VERIFIED},
};

const TOO_OLD: &str = "Message timestamp too old";
const TOO_NEW: &str = "Message timestamp too new";

#[test]
fn the_official_python_library_verifies_what_we_sign_and_nothing_else() {
    let library = need!(official::python());
    check(&library, by_secret());
}

#[test]
fn the_official_javascript_library_verifies_what_we_sign_and_nothing_else() {
    let library = need!(official::javascript());
    check(&library, by_secret());
}

/// Neither library verifies `v1a` yet, so an implementation of ed25519 that is not ours stands in.
#[test]
fn nodes_own_ed25519_verifies_what_our_keys_sign_and_nothing_else() {
    let library = need!(official::javascript());
    check(&library, by_key());
}

/// A call and what is to be said of it.
struct Case {
    call: Call,
    verdict: &'static str,
}

#[derive(Clone)]
struct Call {
    /// What the receiver holds: `whsec_` or `whpk_`.
    held: String,
    id: String,
    timestamp_s: u64,
    signature: String,
    body: String,
}

impl Call {
    fn to_json(&self) -> Value {
        let held = if self.held.starts_with("whpk_") { "public_key" } else { "secret" };
        let timestamp = self.timestamp_s.to_string();
        json!({held: self.held, "id": self.id, "timestamp": timestamp, "signature": self.signature, "body": self.body})
    }
}

fn check(library: &Library, cases: Vec<Case>) {
    let calls: Vec<Value> = cases.iter().map(|case| case.call.to_json()).collect();
    let verdicts: Vec<String> = serde_json::from_str(&library.verdicts(&json!(calls).to_string())).unwrap();
    assert_eq!(verdicts.len(), cases.len());
    for ((case, call), verdict) in cases.iter().zip(&calls).zip(&verdicts) {
        assert_eq!(verdict, case.verdict, "{call}");
    }
}

/// Every length of secret, bodies of many shapes, alone and during a rotation, whole and meddled with.
fn by_secret() -> Vec<Case> {
    let now_s = now_s();
    let mut cases = Vec::new();
    for (length, body) in (24..=64).zip(bodies().into_iter().cycle()) {
        let secret = SigningSecret::parse("secret", &format!("whsec_{}", BASE64.encode(random(length)))).unwrap();
        let newer = SigningSecret::generate();
        let held = secret.text().expose().to_owned();
        let alone = Signer::new(vec![secret.clone()], vec![]).unwrap();
        cases.extend(whole_and_meddled(&alone, &held, &body, now_s));

        let rotating = Signer::new(vec![newer.clone(), secret], vec![SigningKey::generate()]).unwrap();
        cases.extend(whole_and_meddled(&rotating, &held, &body, now_s));
        cases.extend(whole_and_meddled(&rotating, newer.text().expose(), &body, now_s));

        let stranger = SigningSecret::generate().text().expose().to_owned();
        let call = Call { held: stranger, ..signed(&rotating, &held, &body, now_s) };
        cases.push(Case { call, verdict: NO_MATCH });
        for (timestamp_s, verdict) in [(now_s - 400, TOO_OLD), (now_s + 400, TOO_NEW)] {
            cases.push(Case { call: signed(&rotating, &held, &body, timestamp_s), verdict });
        }
    }
    cases
}

fn by_key() -> Vec<Case> {
    let now_s = now_s();
    let mut cases = Vec::new();
    for body in bodies() {
        let (older, newer) = (SigningKey::generate(), SigningKey::generate());
        let (old_public, new_public) = (older.public_key(), newer.public_key());
        let rotating = Signer::new(vec![SigningSecret::generate()], vec![newer, older]).unwrap();
        cases.extend(whole_and_meddled(&rotating, &old_public, &body, now_s));
        cases.extend(whole_and_meddled(&rotating, &new_public, &body, now_s));
        let stranger = SigningKey::generate().public_key();
        let call = Call { held: stranger, ..signed(&rotating, &old_public, &body, now_s) };
        cases.push(Case { call, verdict: NO_MATCH });
    }
    cases
}

fn whole_and_meddled(signer: &Signer, held: &str, body: &str, now_s: u64) -> Vec<Case> {
    let whole = signed(signer, held, body, now_s);
    let swapped = Call { id: format!("{}x", whole.id), ..whole.clone() };
    let moved = Call { timestamp_s: now_s - 1, ..whole.clone() };
    let tampered = Call { body: one_bit_changed(body), ..whole.clone() };
    let without = Call { signature: "v1,AAAA v2,BBBB".to_owned(), ..whole.clone() };
    let refused = [swapped, moved, tampered, without].map(|call| Case { call, verdict: NO_MATCH });
    std::iter::once(Case { call: whole, verdict: VERIFIED }).chain(refused).collect()
}

fn signed(signer: &Signer, held: &str, body: &str, timestamp_s: u64) -> Call {
    let id = platform::id::new("evt");
    let signature = signer.sign(MessageId::parse("id", &id).unwrap(), timestamp_s, body.as_bytes());
    Call { held: held.to_owned(), id, timestamp_s, signature, body: body.to_owned() }
}

fn bodies() -> Vec<String> {
    let event =
        json!({"type": "order.created", "timestamp": "2026-03-01T00:00:00Z", "data": {"name": "Zoë 🌊", "n": 1.50}});
    vec![
        event.to_string(),
        "{}".to_owned(),
        " {\n\t\"spaces\" : [ 1 , 2 ] }\r\n".to_owned(),
        json!({"data": "x".repeat(100_000)}).to_string(),
        r#"{"escaped":"\u00e9\u0000\/","dots":"a.b.c"}"#.to_owned(),
    ]
}

/// Changes the lowest bit of an ASCII letter in the middle, so that it stays text.
fn one_bit_changed(body: &str) -> String {
    let mut bytes = body.as_bytes().to_vec();
    let middle = bytes.len() / 2;
    let place = (middle..bytes.len()).find(|&place| bytes[place].is_ascii()).expect("JSON ends in ASCII");
    bytes[place] ^= 1;
    String::from_utf8(bytes).unwrap()
}

fn random(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    bytes
}

#[expect(clippy::disallowed_methods, reason = "the official libraries compare with the machine's clock")]
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
