//! Standard Webhooks signatures: HMAC-SHA256 over `id.timestamp.body`, written as `v1,<base64>`.

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http::HeaderMap;

/// A signature is worth nothing this long after its time, or before it.
const TOLERANCE_S: u64 = 5 * 60;

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No secret was given for this path.
    NotAsked,
    Valid,
    /// This header is missing or makes no sense.
    Missing(&'static str),
    /// The time is too far from now.
    Stale,
    /// None of the signatures fits any of the secrets.
    Wrong,
}

/// A secret as users copy it, `whsec_` and base64.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// # Panics
    /// When it is not base64.
    pub fn new(secret: &str) -> Secret {
        let bytes = BASE64.decode(secret.trim_start_matches("whsec_")).expect("a secret is base64");
        Secret(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let tag = hmac::sign(&self.0, &content(id, timestamp_s, body));
        format!("v1,{}", BASE64.encode(tag.as_ref()))
    }
}

pub(super) fn verify(secrets: &[Secret], headers: &HeaderMap, body: &[u8], now_s: u64) -> Verdict {
    if secrets.is_empty() {
        return Verdict::NotAsked;
    }
    let text =
        |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Verdict::Missing(name));
    let judge = || {
        let id = text("webhook-id")?;
        let timestamp = text("webhook-timestamp")?.parse().map_err(|_| Verdict::Missing("webhook-timestamp"))?;
        let signatures = text("webhook-signature")?;
        if now_s.abs_diff(timestamp) > TOLERANCE_S {
            return Err(Verdict::Stale);
        }
        let content = content(id, timestamp, body);
        let tags = signatures.split(' ').filter_map(|part| BASE64.decode(part.strip_prefix("v1,")?).ok());
        let fits = |tag: Vec<u8>| secrets.iter().any(|secret| hmac::verify(&secret.0, &content, &tag).is_ok());
        if tags.into_iter().any(fits) { Ok(()) } else { Err(Verdict::Wrong) }
    };
    judge().err().unwrap_or(Verdict::Valid)
}

fn content(id: &str, timestamp_s: u64, body: &[u8]) -> Vec<u8> {
    [format!("{id}.{timestamp_s}.").as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the published examples of the scheme.
    #[test]
    fn a_known_signature_comes_out_the_same() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_flaw_has_its_verdict() {
        let (old, new) = (Secret::new("b2xk"), Secret::new("bmV3"));
        let mut headers = HeaderMap::new();
        let secrets = [old.clone(), new];
        let judge = |headers: &HeaderMap, body: &[u8], now_s| verify(&secrets, headers, body, now_s);
        assert_eq!(verify(&[], &headers, b"body", 1000), Verdict::NotAsked);
        assert_eq!(judge(&headers, b"body", 1000), Verdict::Missing("webhook-id"));

        let signature = format!("v1a,xxxx v1,AAAA {}", old.sign("msg", 1000, b"body"));
        headers.insert("webhook-id", "msg".parse().unwrap());
        headers.insert("webhook-timestamp", "1000".parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        assert_eq!(judge(&headers, b"body", 1300), Verdict::Valid);
        assert_eq!(judge(&headers, b"body", 1301), Verdict::Stale);
        assert_eq!(judge(&headers, b"bodx", 1300), Verdict::Wrong);
        assert_eq!(verify(&[Secret::new("bmV3")], &headers, b"body", 1300), Verdict::Wrong);
        headers.insert("webhook-id", "msg2".parse().unwrap());
        assert_eq!(judge(&headers, b"body", 1300), Verdict::Wrong);
    }
}
