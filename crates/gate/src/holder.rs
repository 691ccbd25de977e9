//! Who holds a lease: a permit, a probe, a claim. Random and never reused, so that nobody can release another's.

use std::fmt;

use uuid::Uuid;

/// An id of 128 bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder(u128);

impl Holder {
    pub(crate) const FIRST: Holder = Holder(0);
    pub(crate) const LAST: Holder = Holder(u128::MAX);

    /// An id that no other holder has.
    #[must_use]
    pub fn random() -> Self {
        Holder(Uuid::now_v7().as_u128())
    }

    /// Reads an id that was written with `Display`; anything else is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_ours = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_ours.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(Holder)
    }

    #[cfg(test)]
    pub(crate) const fn fixed(id: u128) -> Self {
        Holder(id)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Holder({self})")
    }
}
