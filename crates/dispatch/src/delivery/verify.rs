//! What a receiver does: checks that a call is ours, whole and fresh. `tidegate sink` and tests stand on it.

use aws_lc_rs::{
    hmac,
    signature::{ED25519, UnparsedPublicKey},
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use platform::config::Invalid;

use super::signature::{SigningSecret, signed_prefix};

/// A signature is worth nothing this long after its time, or before it.
pub const TOLERANCE_S: u64 = 5 * 60;

/// Why a call is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The timestamp is no number of seconds.
    NoTimestamp,
    /// The timestamp is too far from now.
    Stale,
    /// No signature fits.
    NoMatch,
}

/// The public half of an ed25519 key.
#[derive(Clone, Debug)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Reads `whpk_…`; `field` is named in the error.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        let bytes = text.strip_prefix("whpk_").and_then(|text| BASE64.decode(text).ok());
        bytes.filter(|bytes| bytes.len() == 32).map(PublicKey).ok_or_else(|| {
            Invalid::new(field, "a public key is `whpk_` and the base64 of 32 bytes: copy it from the subscription")
        })
    }
}

/// What a receiver holds, any of which may have signed.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    pub secrets: Vec<SigningSecret>,
    pub public_keys: Vec<PublicKey>,
}

impl Verifier {
    /// Checks the three `webhook-` headers and the body, in constant time per signature.
    pub fn verify(&self, id: &str, timestamp: &str, signatures: &str, body: &[u8], now_s: u64) -> Result<(), Refusal> {
        let timestamp_s: u64 = timestamp.parse().map_err(|_| Refusal::NoTimestamp)?;
        if now_s.abs_diff(timestamp_s) > TOLERANCE_S {
            return Err(Refusal::Stale);
        }
        let content = [signed_prefix(id, timestamp_s).as_bytes(), body].concat();
        let is_ours = |part: &str| match part.split_once(',') {
            Some(("v1", text)) => BASE64.decode(text).is_ok_and(|tag| self.fits_a_secret(&content, &tag)),
            Some(("v1a", text)) => BASE64.decode(text).is_ok_and(|tag| self.fits_a_key(&content, &tag)),
            _ => false,
        };
        if signatures.split(' ').any(is_ours) { Ok(()) } else { Err(Refusal::NoMatch) }
    }

    fn fits_a_secret(&self, content: &[u8], tag: &[u8]) -> bool {
        self.secrets.iter().any(|secret| hmac::verify(secret.key(), content, tag).is_ok())
    }

    fn fits_a_key(&self, content: &[u8], tag: &[u8]) -> bool {
        self.public_keys.iter().any(|key| UnparsedPublicKey::new(&ED25519, &key.0).verify(content, tag).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::signature::{MessageId, Signer, SigningKey};

    const NOW: u64 = 1_700_000_000;

    fn sign(secrets: &[SigningSecret], keys: Vec<SigningKey>, id: &str, body: &[u8]) -> String {
        let id = MessageId::parse("id", id).unwrap();
        Signer::new(secrets.to_vec(), keys).unwrap().sign(id, NOW, body)
    }

    #[test]
    fn a_call_is_fresh_for_five_minutes_either_way() {
        let secret = SigningSecret::generate();
        let signature = sign(std::slice::from_ref(&secret), vec![], "evt_1", b"{}");
        let verifier = Verifier { secrets: vec![secret], public_keys: vec![] };
        let verify = |now_s| verifier.verify("evt_1", "1700000000", &signature, b"{}", now_s);
        assert_eq!(verify(NOW + 300), Ok(()));
        assert_eq!(verify(NOW - 300), Ok(()));
        assert_eq!(verify(NOW + 301), Err(Refusal::Stale));
        assert_eq!(verify(NOW - 301), Err(Refusal::Stale));
        assert_eq!(verifier.verify("evt_1", "soon", &signature, b"{}", NOW), Err(Refusal::NoTimestamp));
    }

    #[test]
    fn during_a_rotation_either_secret_and_either_key_verifies() {
        let secrets = [SigningSecret::generate(), SigningSecret::generate()];
        let keys = [SigningKey::generate(), SigningKey::generate()];
        let public: Vec<PublicKey> =
            keys.iter().map(|key| PublicKey::parse("key", &key.public_key()).unwrap()).collect();
        let signature = sign(&secrets, keys.into(), "evt_1", b"{}");
        let by_secret = secrets.map(|secret| Verifier { secrets: vec![secret], public_keys: vec![] });
        let by_key = public.into_iter().map(|key| Verifier { secrets: vec![], public_keys: vec![key] });
        for verifier in by_secret.into_iter().chain(by_key) {
            assert_eq!(verifier.verify("evt_1", "1700000000", &signature, b"{}", NOW), Ok(()));
        }
        let stranger = Verifier { secrets: vec![SigningSecret::generate()], public_keys: vec![] };
        assert_eq!(stranger.verify("evt_1", "1700000000", &signature, b"{}", NOW), Err(Refusal::NoMatch));
        assert_eq!(Verifier::default().verify("evt_1", "1700000000", &signature, b"{}", NOW), Err(Refusal::NoMatch));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever is signed verifies, and one changed bit of it does not.
        #[test]
        fn what_is_signed_verifies_until_a_bit_changes(
            id in "[!-\\-/-~]{1,40}",
            body in proptest::collection::vec(any::<u8>(), 1..200),
            bit in any::<proptest::sample::Index>(),
        ) {
            let (secret, key) = (SigningSecret::generate(), SigningKey::generate());
            let public_key = PublicKey::parse("key", &key.public_key()).unwrap();
            let signature = sign(std::slice::from_ref(&secret), vec![key], &id, &body);
            let by_secret = Verifier { secrets: vec![secret], public_keys: vec![] };
            let by_key = Verifier { secrets: vec![], public_keys: vec![public_key] };
            let mut changed = body.clone();
            let bit = bit.index(body.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            for verifier in [by_secret, by_key] {
                prop_assert_eq!(verifier.verify(&id, "1700000000", &signature, &body, NOW), Ok(()));
                prop_assert_eq!(verifier.verify(&id, "1700000000", &signature, &changed, NOW), Err(Refusal::NoMatch));
                prop_assert_eq!(verifier.verify(&id, "1700000001", &signature, &body, NOW), Err(Refusal::NoMatch));
                prop_assert_eq!(verifier.verify(&(id.clone() + "x"), "1700000000", &signature, &body, NOW), Err(Refusal::NoMatch));
            }
        }

        #[test]
        fn any_header_is_verified_or_refused(header in ".{0,100}", timestamp in ".{0,20}", body in ".{0,20}") {
            let verifier = Verifier { secrets: vec![SigningSecret::generate()], public_keys: vec![] };
            prop_assert!(verifier.verify("evt_1", &timestamp, &header, body.as_bytes(), NOW).is_err());
        }
    }
}
