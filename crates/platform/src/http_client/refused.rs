//! A "no" with a stable code: something was refused before any byte was sent.

use std::fmt;

/// Why a URL, an address or a header may not be used. The detail is for the person who wrote it, and says nothing
/// about what a name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: &'static str,
    pub detail: String,
}

impl Refused {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Refused { code, detail: detail.into() }
    }

    pub(super) fn address() -> Self {
        Refused::new(
            "address_forbidden",
            "the host is at no address that may be called: public ones may, and private ones in dispatch.allow_networks",
        )
    }

    pub(super) fn own_listener() -> Self {
        Refused::new("own_listener", "the address is Tidegate's own; a call to it would go round in circles")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.detail)
    }
}

impl std::error::Error for Refused {}
