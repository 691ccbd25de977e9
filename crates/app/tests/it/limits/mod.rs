//! Limits over HTTP through the built binary: decisions, rules, files, and what happens when Redis does not answer.

mod answers;
mod bad_input;
mod bars;
mod fallback;
mod files;
mod keys;
mod lane;
mod reserve;
mod rules;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::{Call, Response, Setup, Tidegate};

/// A process with rules for every tenant: `TOML` of a rules file.
fn with_rules(text: &str) -> Tidegate {
    Setup::serve().file("rules.toml", text).env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml").start()
}

fn call(addr: SocketAddr, path: &str, body: Value) -> Response {
    Call::post(path, body).to(addr)
}

/// A check that is answered.
#[track_caller]
fn check(addr: SocketAddr, key: &str) -> Value {
    call(addr, "/v1/limits/check", json!({"key": key})).expect(200)
}

/// What is left of a key, without taking any of it.
#[track_caller]
fn remaining(addr: SocketAddr, key: &str) -> u64 {
    call(addr, "/v1/limits/peek", json!({"key": key})).expect(200)["remaining"].as_u64().unwrap()
}
