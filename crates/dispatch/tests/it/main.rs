//! Dispatch against what it meets outside.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise, and its helpers are part of it")]

mod official_verifiers;
