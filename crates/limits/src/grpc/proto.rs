//! The protocols of `proto/`, as `build.rs` compiled them.
#![allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "the code is generated, and what is generated differs between versions of the generator"
)]

include!(concat!(env!("OUT_DIR"), "/protocols.rs"));

/// What reflection tells its callers.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
