//! The shape of an API key: `tgk_`, 256 random bits, a checksum. Pure, but for the random bits.
//!
//! The prefix and checksum let secret scanners recognise a leaked key, and let us refuse garbage without asking the
//! database. Only the SHA-256 of a key is stored: it has too much entropy to guess, so a slow hash would buy nothing and
//! hand strangers a lever.

use aws_lc_rs::{digest, rand};
use platform::secret::Secret;

const PREFIX: &str = "tgk_";
const RANDOM_BYTES: usize = 32;

/// What is stored of a key, and what it is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

/// A fresh key, to be shown once.
pub fn generate() -> Secret {
    let mut random = [0; RANDOM_BYTES];
    rand::fill(&mut random).expect("the operating system gives random bytes");
    Secret::new(render(&random))
}

fn render(random: &[u8; RANDOM_BYTES]) -> String {
    let body = format!("{PREFIX}{}", hex::encode(random));
    let checksum = crc32fast::hash(body.as_bytes());
    format!("{body}{checksum:08x}")
}

/// Does this claim to be one of our keys? Then it is checked, even where keys are not needed.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The hash of a well-formed key; `None` for anything else.
pub fn hash(text: &str) -> Option<Hash> {
    let (body, checksum) = text.split_at_checked(PREFIX.len() + RANDOM_BYTES * 2)?;
    let digits = body.strip_prefix(PREFIX)?.bytes().chain(checksum.bytes());
    let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    let is_well_formed = checksum.len() == 8
        && digits.into_iter().all(is_hex)
        && u32::from_str_radix(checksum, 16) == Ok(crc32fast::hash(body.as_bytes()));
    is_well_formed.then(|| Hash(sha256(text)))
}

/// What may be shown of a key afterwards, so that people can tell theirs apart.
pub fn hint(key: &Secret) -> String {
    format!("{}…", &key.expose()[..PREFIX.len() + 6])
}

pub(crate) fn sha256(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fresh_key_is_well_formed_and_never_the_same() {
        let (one, other) = (generate(), generate());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 4 + 64 + 8);
        assert!(hash(one.expose()).is_some());
        assert_ne!(hash(one.expose()), hash(other.expose()));
    }

    #[test]
    fn one_changed_character_breaks_the_checksum() {
        let key = generate();
        for place in 0..key.expose().len() {
            let mut text = key.expose().to_owned();
            let other = if text.as_bytes()[place] == b'0' { "1" } else { "0" };
            text.replace_range(place..=place, other);
            assert_eq!(hash(&text), None, "{place}");
        }
    }

    #[test]
    fn upper_case_is_another_key() {
        assert_eq!(hash(&generate().expose().to_uppercase()), None);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(text in "\\PC*", tail in "[0-9a-f]{0,80}") {
            prop_assert_eq!(hash(&text), None);
            prop_assert_eq!(hash(&["tgk_", &tail].concat()), None);
        }
    }
}
