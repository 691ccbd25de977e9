//! Standard Webhooks signatures: over `id.timestamp.body`, with every live secret and key of the subscription.
//!
//! `v1` is HMAC-SHA256 under a shared `whsec_` secret; `v1a` is ed25519 under a `whsk_` key, whose `whpk_` half anybody may
//! know. During a rotation all live ones sign, space separated, so a receiver may hold either. Secrets never print.

use std::fmt;

use aws_lc_rs::{
    hmac, rand,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use platform::{config::Invalid, secret::Secret};

const SECRET_PREFIX: &str = "whsec_";
const KEY_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";
const SEED_LENGTH: usize = 32;
const GENERATED_LENGTH: usize = 32;
const MIN_SECRET_LENGTH: usize = 24;
const MAX_SECRET_LENGTH: usize = 64;
/// At most so many secrets and keys sign one call; the header would grow without end otherwise.
pub const MAX_LIVE: usize = 10;
/// Ids are at most this long.
pub const MAX_ID_LENGTH: usize = 128;

/// A shared secret: `whsec_` and the base64 of 24 to 64 bytes.
#[derive(Clone)]
pub struct SigningSecret {
    text: Secret,
    key: hmac::Key,
    /// It signs until then, in Unix seconds.
    ends_s: Option<u64>,
}

impl SigningSecret {
    /// A fresh one of 32 random bytes.
    pub fn generate() -> Self {
        let mut bytes = [0; GENERATED_LENGTH];
        rand::fill(&mut bytes).expect("the operating system gives random bytes");
        SigningSecret::of(Secret::new(format!("{SECRET_PREFIX}{}", BASE64.encode(bytes))), &bytes)
    }

    /// `field` is named in the error, the text never is.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|text| BASE64.decode(text).ok());
        match bytes {
            Some(bytes) if (MIN_SECRET_LENGTH..=MAX_SECRET_LENGTH).contains(&bytes.len()) => {
                Ok(SigningSecret::of(Secret::new(text), &bytes))
            }
            _ => Err(Invalid::new(
                field,
                format!(
                    "a signing secret is `{SECRET_PREFIX}` and the base64 of {MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} random bytes: leave it out and one is made"
                ),
            )),
        }
    }

    fn of(text: Secret, bytes: &[u8]) -> Self {
        SigningSecret { text, key: hmac::Key::new(hmac::HMAC_SHA256, bytes), ends_s: None }
    }

    /// The same, until a time in Unix seconds.
    #[must_use]
    pub fn until(self, ends_s: Option<u64>) -> Self {
        SigningSecret { ends_s, ..self }
    }

    /// As the receiver needs it, `whsec_` included.
    pub fn text(&self) -> &Secret {
        &self.text
    }

    pub(super) fn key(&self) -> &hmac::Key {
        &self.key
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(***)")
    }
}

/// An ed25519 key: `whsk_` and the base64 of its 32-byte seed, or of seed and public key (64 bytes).
pub struct SigningKey {
    text: Secret,
    pair: Ed25519KeyPair,
    ends_s: Option<u64>,
}

impl SigningKey {
    pub fn generate() -> Self {
        let mut seed = [0; SEED_LENGTH];
        rand::fill(&mut seed).expect("the operating system gives random bytes");
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed is 32 bytes");
        SigningKey { text: Secret::new(format!("{KEY_PREFIX}{}", BASE64.encode(seed))), pair, ends_s: None }
    }

    /// `field` is named in the error, the text never is.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        let bytes = text.strip_prefix(KEY_PREFIX).and_then(|text| BASE64.decode(text).ok());
        let pair = bytes.as_deref().and_then(|bytes| match bytes.len() {
            SEED_LENGTH => Ed25519KeyPair::from_seed_unchecked(bytes).ok(),
            _ => {
                let (seed, public) = bytes.split_at_checked(SEED_LENGTH)?;
                Ed25519KeyPair::from_seed_and_public_key(seed, public).ok()
            }
        });
        let pair = pair.ok_or_else(|| {
            Invalid::new(
                field,
                format!(
                    "a signing key is `{KEY_PREFIX}` and the base64 of a 32-byte ed25519 seed, or of the seed and its public key"
                ),
            )
        })?;
        Ok(SigningKey { text: Secret::new(text), pair, ends_s: None })
    }

    /// The same, until a time in Unix seconds.
    #[must_use]
    pub fn until(self, ends_s: Option<u64>) -> Self {
        SigningKey { ends_s, ..self }
    }

    pub fn is_lasting(&self) -> bool {
        self.ends_s.is_none()
    }

    pub fn text(&self) -> &Secret {
        &self.text
    }

    /// What receivers verify with, `whpk_` included. It is no secret.
    pub fn public_key(&self) -> String {
        format!("{PUBLIC_PREFIX}{}", BASE64.encode(self.pair.public_key()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public_key()).finish()
    }
}

/// The value of `webhook-id`: visible ASCII without `.`, which separates the parts of what is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId<'a>(&'a str);

impl<'a> MessageId<'a> {
    /// `field` is named in the error.
    pub fn parse(field: &str, text: &'a str) -> Result<Self, Invalid> {
        let problem = if text.is_empty() {
            "it is empty: leave it out and one is made".to_owned()
        } else if text.len() > MAX_ID_LENGTH {
            format!("{} characters are too many: write at most {MAX_ID_LENGTH}", text.len())
        } else if let Some(letter) = text.chars().find(|letter| !letter.is_ascii_graphic() || *letter == '.') {
            format!("{letter:?} is not allowed in an id: use visible ASCII characters other than `.`")
        } else {
            return Ok(MessageId(text));
        };
        Err(Invalid::new(field, problem))
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }
}

/// Signs for one subscription with all that is live.
#[derive(Debug, Default)]
pub struct Signer {
    secrets: Vec<SigningSecret>,
    keys: Vec<SigningKey>,
}

impl Signer {
    /// The newest first: receivers that try in order succeed at once.
    pub fn new(secrets: Vec<SigningSecret>, keys: Vec<SigningKey>) -> Result<Self, Invalid> {
        match secrets.len() + keys.len() {
            0 => Err(Invalid::new("secret", "there is no live secret to sign with: rotate it to get one")),
            1..=MAX_LIVE => Ok(Signer { secrets, keys }),
            count => Err(Invalid::new(
                "secret",
                format!("{count} live secrets are too many, at most {MAX_LIVE} can sign: wait until older ones expire"),
            )),
        }
    }

    /// The value of `webhook-signature`. The timestamp is this attempt's, in Unix seconds; the body is exactly what is sent.
    pub fn sign(&self, id: MessageId<'_>, timestamp_s: u64, body: &[u8]) -> String {
        let is_live = |ends_s: Option<u64>| ends_s.is_none_or(|ends_s| timestamp_s < ends_s);
        let prefix = signed_prefix(id.as_str(), timestamp_s);
        let mut value = String::new();
        for secret in self.secrets.iter().filter(|secret| is_live(secret.ends_s)) {
            let mut context = hmac::Context::with_key(&secret.key);
            context.update(prefix.as_bytes());
            context.update(body);
            append(&mut value, "v1,", context.sign().as_ref());
        }
        if !self.keys.is_empty() {
            let content = [prefix.as_bytes(), body].concat();
            for key in self.keys.iter().filter(|key| is_live(key.ends_s)) {
                append(&mut value, "v1a,", key.pair.sign(&content).as_ref());
            }
        }
        value
    }
}

/// What stands before the body in what is signed.
pub(super) fn signed_prefix(id: &str, timestamp_s: u64) -> String {
    format!("{id}.{timestamp_s}.")
}

fn append(value: &mut String, version: &str, signature: &[u8]) {
    if !value.is_empty() {
        value.push(' ');
    }
    value.push_str(version);
    BASE64.encode_string(signature, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with two unrelated tools: the key is the bytes 00..1f.
    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const KEY: &str = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const PUBLIC: &str = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
    const BODY: &[u8] = br#"{"hello":"tidegate"}"#;
    const V1: &str = "v1,QPrFR0DmSFrB588gGznr11HLGKDKRB+18FsJ7XA+OLY=";
    const V1A: &str = "v1a,cvgObWkQ67mM2FdnCk/UHB/Y8BAUjJzFdPf555wEdfpVlTZdm92H6QoAOO1NXh9eCjlQTv33gVjDj/QQO5kKDQ==";

    fn sign(secrets: Vec<SigningSecret>, keys: Vec<SigningKey>) -> String {
        let id = MessageId::parse("id", "msg_tidegate_0001").unwrap();
        Signer::new(secrets, keys).unwrap().sign(id, 1_700_000_000, BODY)
    }

    fn secret() -> SigningSecret {
        SigningSecret::parse("secret", SECRET).unwrap()
    }

    fn key() -> SigningKey {
        SigningKey::parse("signing_key", KEY).unwrap()
    }

    #[test]
    fn what_was_replaced_signs_until_its_end_and_no_longer() {
        let signed = |ends_s| sign(vec![secret(), secret().until(ends_s)], vec![key(), key().until(ends_s)]);
        assert_eq!(signed(Some(1_700_000_001)), format!("{V1} {V1} {V1A} {V1A}"));
        assert_eq!(signed(Some(1_700_000_000)), format!("{V1} {V1A}"));
    }

    #[test]
    fn known_signatures_come_out_the_same() {
        assert_eq!(sign(vec![secret()], vec![]), V1);
        assert_eq!(sign(vec![], vec![key()]), V1A);
        assert_eq!(key().public_key(), PUBLIC);
    }

    #[test]
    fn all_live_secrets_and_keys_sign_in_one_header() {
        let other = SigningSecret::generate();
        let alone = sign(vec![other.clone()], vec![]);
        assert_eq!(sign(vec![other, secret()], vec![key()]), format!("{alone} {V1} {V1A}"));
    }

    #[test]
    fn none_and_too_many_secrets_are_refused() {
        assert!(Signer::new(vec![], vec![]).is_err());
        assert!(Signer::new(vec![secret(); 10], vec![]).is_ok());
        assert!(Signer::new(vec![secret(); 10], vec![key()]).is_err());
    }

    #[test]
    fn a_secret_of_a_wrong_length_or_shape_is_refused() {
        for length in 0..100 {
            let text = format!("whsec_{}", BASE64.encode(vec![7; length]));
            assert_eq!(SigningSecret::parse("secret", &text).is_ok(), (24..=64).contains(&length), "{length}");
        }
        let bare = SECRET.strip_prefix("whsec_").unwrap();
        for wrong in ["", "whsec_", bare, "whsec_not base64 at all, is it?", KEY, &format!(" {SECRET}")] {
            let error = SigningSecret::parse("secret", wrong).unwrap_err().to_string();
            assert!(error.starts_with("secret: a signing secret is `whsec_`"), "{error}");
        }
    }

    #[test]
    fn a_key_of_a_wrong_length_or_with_another_public_half_is_refused() {
        for length in 0..100 {
            let text = format!("whsk_{}", BASE64.encode(vec![7; length]));
            assert_eq!(SigningKey::parse("signing_key", &text).is_ok(), length == 32, "{length}");
        }
        let seed: Vec<u8> = (0..32).collect();
        let public = BASE64.decode(PUBLIC.strip_prefix("whpk_").unwrap()).unwrap();
        let both = format!("whsk_{}", BASE64.encode([&seed[..], &public].concat()));
        assert_eq!(SigningKey::parse("signing_key", &both).unwrap().public_key(), PUBLIC);
        assert!(SigningKey::parse("signing_key", SECRET).is_err());
    }

    #[test]
    fn generated_ones_are_fresh_and_read_back() {
        let (one, other) = (SigningSecret::generate(), SigningSecret::generate());
        assert_ne!(one.text().expose(), other.text().expose());
        let again = SigningSecret::parse("secret", one.text().expose()).unwrap();
        assert_eq!(sign(vec![again], vec![]), sign(vec![one], vec![]));
        let key = SigningKey::generate();
        let again = SigningKey::parse("signing_key", key.text().expose()).unwrap();
        assert_eq!(again.public_key(), key.public_key());
    }

    #[test]
    fn nothing_secret_prints() {
        let printed = format!("{:?}", Signer::new(vec![secret()], vec![key()]).unwrap());
        assert_eq!(printed, format!("Signer {{ secrets: [SigningSecret(***)], keys: [SigningKey(\"{PUBLIC}\")] }}"));
        let error = SigningSecret::parse("secret", "whsec_c2hvcnQ=").unwrap_err();
        assert!(!error.to_string().contains("c2hvcnQ"));
    }

    #[test]
    fn an_id_that_would_blur_what_is_signed_is_refused() {
        assert!(MessageId::parse("id", "evt_01k9:order-7/2").is_ok());
        assert!(MessageId::parse("id", &"x".repeat(128)).is_ok());
        for wrong in ["", "a.b", "a b", "a\n", "ä", "\u{7f}", &"x".repeat(129)] {
            assert_eq!(MessageId::parse("id", wrong).unwrap_err().key, "id", "{wrong:?}");
        }
    }
}
