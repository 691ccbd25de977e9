//! Names: what is counted or protected, and how it is spelled in Redis.
//!
//! A key is 1 to 512 bytes of anything. Its *tag* is the part in braces, `tg:v1:cb:{tag}`: everything about one target
//! has the same tag, so it lives in one cluster slot and one script can decide over it. Braces inside a key are escaped,
//! so a key can never choose its own slot or meet another key.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use hashbrown::DefaultHashBuilder;

use crate::Error;

/// Seeded per process, so that nobody outside can choose keys that collide.
static SEED: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// The name of a target or of anything that is counted. Cheap to clone.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    /// 48 bits of a hash, computed once because maps look keys up many times, and the 16 bits of the tag's length: a key
    /// is stored a million times, so its size counts.
    packed: u64,
}

impl Key {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// A key whose tag is the whole text.
    pub fn new(text: impl AsRef<str>) -> Result<Key, Error> {
        let text = text.as_ref();
        Key::build(text, text.len())
    }

    /// A key beside this one: another name, the same tag, so one script may touch both.
    pub fn scoped(&self, scope: impl fmt::Display) -> Result<Key, Error> {
        Key::build(&format!("{}:{scope}", self.text), self.tag_len())
    }

    fn build(text: &str, tag_len: usize) -> Result<Key, Error> {
        if text.is_empty() {
            return Err(Error::KeyEmpty);
        }
        if text.len() > Key::MAX_BYTES {
            return Err(Error::KeyTooLong { bytes: text.len() });
        }
        let tag_len = u16::try_from(tag_len).map_err(|_| Error::KeyTooLong { bytes: tag_len })?;
        let packed = SEED.hash_one(text) & !0xFFFF | u64::from(tag_len);
        Ok(Key { text: Arc::from(text), packed })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part that chooses the cluster slot.
    pub fn tag(&self) -> &str {
        &self.text[..self.tag_len()]
    }

    /// Well spread over all 64 bits, as maps need it.
    #[inline]
    pub(crate) fn hash_value(&self) -> u64 {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        (self.packed ^ (self.packed >> 32)).wrapping_mul(ODD)
    }

    fn tag_len(&self) -> usize {
        usize::try_from(self.packed & 0xFFFF).unwrap_or(0)
    }

    /// `<prefix>tg:v1:<kind>:{tag}rest`. Bump `v1` when a stored shape changes; never migrate in place.
    pub(crate) fn redis_name(&self, prefix: &str, kind: &str) -> String {
        let mut name = String::with_capacity(prefix.len() + kind.len() + self.text.len() + 16);
        name.push_str(prefix);
        name.push_str("tg:v1:");
        name.push_str(kind);
        name.push_str(":{");
        escape_into(&mut name, self.tag());
        name.push('}');
        escape_into(&mut name, &self.text[self.tag_len()..]);
        name
    }
}

fn escape_into(name: &mut String, text: &str) {
    if !text.bytes().any(|byte| matches!(byte, b'{' | b'}' | b'%')) {
        return name.push_str(text);
    }
    for character in text.chars() {
        match character {
            '{' => name.push_str("%7B"),
            '}' => name.push_str("%7D"),
            '%' => name.push_str("%25"),
            other => name.push(other),
        }
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        self.packed == other.packed && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash_value());
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", &*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_huge_keys_are_refused_with_a_reason() {
        assert_eq!(Key::new("").unwrap_err().to_string(), "a key may not be empty");
        let huge = Key::new("k".repeat(10 * 1024)).unwrap_err();
        assert_eq!(huge.to_string(), "a key may have at most 512 bytes, this one has 10240");
        assert!(Key::new("k".repeat(Key::MAX_BYTES)).is_ok());
    }

    #[test]
    fn braces_in_a_key_cannot_break_the_hash_tag() {
        let name = |text: &str| Key::new(text).unwrap().redis_name("p:", "cb");
        assert_eq!(name("a"), "p:tg:v1:cb:{a}");
        assert_eq!(name("a}{b"), "p:tg:v1:cb:{a%7D%7Bb}");
        assert_ne!(name("a%7D"), name("a}"), "escaping must be reversible");
    }

    #[test]
    fn a_scoped_key_shares_the_tag_and_is_another_key() {
        let user = Key::new("tenant-1").unwrap();
        let minute = user.scoped("minute").unwrap();
        assert_eq!(minute.redis_name("", "ratelimit"), "tg:v1:ratelimit:{tenant-1}:minute");
        assert_eq!(minute.tag(), user.tag());
        assert_ne!(minute, Key::new("tenant-1:minute").unwrap(), "the same text with another tag is another key");
    }
}
