//! What a counter is called: the tenant, then a letter for whose names these are, then the name.
//!
//! So tenants share nothing, and a key of the API, a descriptor of Envoy and a gate never meet, whatever
//! their callers name them. A key that holds `{tag}` brings its own hash tag, as Redis users are used to: on a cluster all
//! keys of one tag can be decided together.

use gate::Key;

use crate::error::Error;

/// The longest key a caller may name, in bytes. The gate's own bound also holds the tenant.
pub const MOST_KEY_BYTES: usize = 400;

/// Whose names these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Keys with rules: HTTP.
    Keys,
    /// Envoy's descriptors.
    Envoy,
    /// Targets of gates.
    Gates,
}

/// The gate's name of a tenant's key.
pub fn name(tenant: &str, space: Space, key: &str) -> Result<Key, Error> {
    if key.is_empty() {
        return Err(Error::Empty { field: "key" });
    }
    if key.len() > MOST_KEY_BYTES {
        return Err(Error::KeyTooLong { bytes: key.len() });
    }
    let space = match space {
        Space::Keys => "/k/",
        Space::Envoy => "/e/",
        Space::Gates => "/g/",
    };
    let mut text = String::with_capacity(tenant.len() + space.len() + key.len());
    text.push_str(tenant);
    text.push_str(space);
    match own_tag(key) {
        Some((tag, before, after)) => {
            text.push_str(tag);
            Ok(Key::new(text)?.scoped(format_args!("{before}{{}}{after}"))?)
        }
        None => {
            text.push_str(key);
            Ok(Key::new(text)?)
        }
    }
}

/// What stands in the first braces, before and after them; empty braces are no tag.
fn own_tag(key: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = key.split_once('{')?;
    let (tag, after) = rest.split_once('}')?;
    (!tag.is_empty()).then_some((tag, before, after))
}
