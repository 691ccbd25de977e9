//! The built binary, as a stranger meets it: started, configured, called, attacked, stopped. Real stores, real signals.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise, and its helpers are part of it")]
#![expect(clippy::disallowed_methods, reason = "these tests measure a process from outside, by the wall clock")]

mod bad_config;
mod commands;
mod dev_mode;
mod dispatch;
mod gates;
mod grpc;
mod health;
mod hostile;
mod key_commands;
mod keys;
mod limits;
mod openapi;
mod produce;
mod races;
mod replay;
mod replicas;
mod resp;
mod roles;
mod secrets;
mod sink;
mod start_and_stop;
mod support;
mod tail;
#[cfg(feature = "otel")]
mod traces;
