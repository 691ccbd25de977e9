//! Secrets at rest: AES-256-GCM under a master key, bound to the tenant and the row they belong to.
//!
//! Sealed bytes are `version | key id | nonce | ciphertext and tag`. The key id names the master key, so a new one can be
//! put in front while old rows still open. Tenant and row are authenticated, so a row copied to another place is refused.

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    constant_time, hmac,
};
use platform::{config::Invalid, secret::Secret};

use crate::key::sha256;

const VERSION: u8 = 1;
const ID_LEN: usize = 8;
/// Bytes of a mark.
pub const MARK: usize = 16;
const HEADER: usize = 1 + ID_LEN + NONCE_LEN;

/// Names a master key without telling it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; ID_LEN]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

struct MasterKey {
    /// Of its text as it is given, in lower case and in upper case: the key is the same. It seals under the first.
    ids: [KeyId; 3],
    key: RandomizedNonceKey,
    /// For marks: derived, so that no mark says anything about what is sealed.
    marks: hmac::Key,
}

impl MasterKey {
    fn is(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known.to_string() == id)
    }
}

/// Seals with the first master key, opens with any. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    keys: Arc<[MasterKey]>,
}

/// Where a secret lives: it opens nowhere else.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub tenant: &'a str,
    /// Table and id, such as `subscription/sub_01k9…`.
    pub row: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the sealed secret is damaged")]
    Damaged,
    #[error("the secret was sealed with another master key")]
    OtherKey,
    #[error("the secret does not belong to this tenant and row")]
    OtherPlace,
}

impl Vault {
    /// From 64 hex digits; during a rotation the new key, a comma, the old one.
    pub fn new(master_key: &Secret) -> Result<Self, Invalid> {
        let keys = master_key.expose().split(',').map(|text| read_key(text.trim())).collect::<Result<Vec<_>, _>>()?;
        Ok(Vault { keys: keys.into() })
    }

    pub fn key_id(&self) -> KeyId {
        self.keys[0].ids[0]
    }

    pub fn knows(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.is(id))
    }

    /// Is it the id of the first master key?
    pub fn is_first(&self, id: &str) -> bool {
        self.keys[0].is(id)
    }

    /// Was more than one given, as for a rotation?
    pub fn has_several(&self) -> bool {
        self.keys.len() > 1
    }

    /// Is it sealed with the first master key?
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        sealed_with(sealed).is_some_and(|id| self.keys[0].ids.contains(&id))
    }

    pub fn seal(&self, place: Place<'_>, secret: &Secret) -> Vec<u8> {
        let MasterKey { ids: [id, ..], key, .. } = &self.keys[0];
        let mut text = secret.expose().as_bytes().to_vec();
        let nonce =
            key.seal_in_place_append_tag(associated(place), &mut text).expect("a secret is shorter than 64 GiB");
        let mut sealed = Vec::with_capacity(HEADER + text.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&id.0);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.extend_from_slice(&text);
        sealed
    }

    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Secret, Error> {
        let (header, body) = sealed.split_at_checked(HEADER).ok_or(Error::Damaged)?;
        if header[0] != VERSION {
            return Err(Error::Damaged);
        }
        let id = sealed_with(sealed).ok_or(Error::Damaged)?;
        let key = self.keys.iter().find(|key| key.ids.contains(&id)).ok_or(Error::OtherKey)?;
        let nonce = Nonce::try_assume_unique_for_key(&header[1 + ID_LEN..]).map_err(|_| Error::Damaged)?;
        let mut body = body.to_vec();
        let text = key.key.open_in_place(nonce, associated(place), &mut body).map_err(|_| Error::OtherPlace)?;
        std::str::from_utf8(text).map(Secret::new).map_err(|_| Error::Damaged)
    }
}

impl Vault {
    /// A mark for what strangers keep for us: only we can make it, and it fits this place and these bytes alone. Cheap,
    /// and, unlike a sealed secret, without a bound on how many there may be.
    pub fn mark(&self, place: Place<'_>, bytes: &[u8]) -> [u8; MARK] {
        mark(&self.keys[0].marks, place, bytes)
    }

    /// Was it marked by us, with any of the master keys?
    pub fn is_marked(&self, place: Place<'_>, bytes: &[u8], shown: &[u8]) -> bool {
        let fits = |key: &MasterKey| constant_time::verify_slices_are_equal(&mark(&key.marks, place, bytes), shown);
        self.keys.iter().any(|key| fits(key).is_ok())
    }
}

/// The master key that these bytes say they were sealed with.
pub fn sealed_with(sealed: &[u8]) -> Option<KeyId> {
    sealed.get(1..=ID_LEN)?.try_into().ok().map(KeyId)
}

fn mark(key: &hmac::Key, Place { tenant, row }: Place<'_>, bytes: &[u8]) -> [u8; MARK] {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{}:{tenant}:{}:{row}:", tenant.len(), row.len()).as_bytes());
    context.update(bytes);
    let mut mark = [0; MARK];
    mark.copy_from_slice(&context.sign().as_ref()[..MARK]);
    mark
}

/// The tenant's length stands before it, so no other pair of tenant and row gives the same bytes.
fn associated(place: Place<'_>) -> Aad<Vec<u8>> {
    Aad::from(format!("tidegate:v1:{}:{}:{}", place.tenant.len(), place.tenant, place.row).into_bytes())
}

fn read_key(text: &str) -> Result<MasterKey, Invalid> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| {
        Invalid::new(
            "security.master_key",
            "a master key is 32 random bytes as 64 hex digits: make one with `openssl rand -hex 32` and set TIDEGATE_MASTER_KEY",
        )
    })?;
    let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).expect("the key has 32 bytes");
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), b"tidegate marks v1");
    let marks = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
    Ok(MasterKey { ids: [id(text), id(&hex::encode(bytes)), id(&hex::encode_upper(bytes))], key, marks })
}

fn id(text: &str) -> KeyId {
    let mut id = [0; ID_LEN];
    id.copy_from_slice(&sha256(&format!("tidegate master key id {text}"))[..ID_LEN]);
    KeyId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const NEW: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const HERE: Place<'_> = Place { tenant: "acme", row: "subscription/sub_1" };

    fn vault(keys: &str) -> Vault {
        Vault::new(&Secret::new(keys)).unwrap()
    }

    #[test]
    fn a_secret_comes_back_and_is_not_in_the_sealed_bytes() {
        let sealed = vault(OLD).seal(HERE, &Secret::new("whsec_canary"));
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert_eq!(vault(OLD).open(HERE, &sealed).unwrap().expose(), "whsec_canary");
    }

    #[test]
    fn a_mark_fits_its_place_and_its_bytes_alone_and_outlives_a_rotation() {
        let mark = vault(OLD).mark(HERE, b"pass");
        assert!(vault(&format!("{NEW},{OLD}")).is_marked(HERE, b"pass", &mark));
        assert!(!vault(NEW).is_marked(HERE, b"pass", &mark));
        assert!(!vault(OLD).is_marked(HERE, b"pasS", &mark));
        assert!(!vault(OLD).is_marked(Place { tenant: "evil", ..HERE }, b"pass", &mark));
        assert!(!vault(OLD).is_marked(Place { row: "subscription/sub_1:pa", ..HERE }, b"ss", &mark));
        assert!(!vault(OLD).is_marked(HERE, b"pass", &mark[..8]));
    }

    #[test]
    fn the_same_secret_is_never_sealed_the_same() {
        let vault = vault(OLD);
        assert_ne!(vault.seal(HERE, &Secret::new("x")), vault.seal(HERE, &Secret::new("x")));
    }

    #[test]
    fn a_row_moved_to_another_tenant_or_row_does_not_open() {
        let sealed = vault(OLD).seal(HERE, &Secret::new("x"));
        for elsewhere in [
            Place { tenant: "evil", ..HERE },
            Place { row: "subscription/sub_2", ..HERE },
            Place { tenant: "acme:18:subscription", row: "sub_1" },
        ] {
            assert!(matches!(vault(OLD).open(elsewhere, &sealed), Err(Error::OtherPlace)));
        }
    }

    #[test]
    fn rotation_opens_old_secrets_and_seals_with_the_new_key() {
        let old = vault(OLD).seal(HERE, &Secret::new("x"));
        let both = vault(&format!("{NEW}, {OLD}"));
        assert_eq!(both.open(HERE, &old).unwrap().expose(), "x");
        let new = both.seal(HERE, &Secret::new("y"));
        assert!(matches!(vault(OLD).open(HERE, &new), Err(Error::OtherKey)));
        assert_eq!(vault(NEW).open(HERE, &new).unwrap().expose(), "y");
    }

    #[test]
    fn a_master_key_is_the_same_in_upper_case() {
        let (lower, upper) = (vault(NEW), vault(&NEW.to_uppercase()));
        for (one, other) in [(&lower, &upper), (&upper, &lower)] {
            let sealed = one.seal(HERE, &Secret::new("x"));
            assert_eq!(other.open(HERE, &sealed).unwrap().expose(), "x");
            assert!(other.is_current(&sealed) && other.is_first(&one.key_id().to_string()));
        }
        assert!(!vault(OLD).knows(&lower.key_id().to_string()));
    }

    /// As it stands in databases: the first eight bytes of a hash of the key's text.
    #[test]
    fn a_master_key_has_the_id_it_always_had() {
        assert_eq!(vault(NEW).key_id().to_string(), "09af14f367e3090d");
        assert_eq!(vault(&NEW.to_uppercase()).key_id().to_string(), "d72d180e31843a8c");
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_refused() {
        let vault = vault(OLD);
        let sealed = vault.seal(HERE, &Secret::new("secret"));
        for place in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[place] ^= 1;
            assert!(vault.open(HERE, &damaged).is_err(), "{place}");
            assert!(vault.open(HERE, &sealed[..place]).is_err(), "{place}");
        }
    }

    #[test]
    fn a_short_or_odd_master_key_is_refused() {
        for wrong in ["", "abc", "zz", &OLD[1..], &format!("{OLD}00"), &format!("{OLD},")] {
            assert!(Vault::new(&Secret::new(wrong)).is_err(), "{wrong}");
        }
    }
}
