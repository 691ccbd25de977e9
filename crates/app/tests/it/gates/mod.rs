//! Gates over HTTP through the binary: enter, exit, renew, policies, orders, tenants, and replicas on one Redis.

mod answers;
mod circuits;
mod holder;
mod places;
mod policies;
mod replicas;
mod tenants;

use serde_json::{Value, json};
use testkit::wait_until;

use crate::support::{Call, Response, SOON, Setup, Tidegate};

/// What a caller in any language does, with the admin key or in dev mode.
struct Caller<'a> {
    tidegate: &'a Tidegate,
    key: Option<String>,
}

impl Caller<'_> {
    fn new(tidegate: &Tidegate) -> Caller<'_> {
        Caller { tidegate, key: None }
    }

    fn with_key<'a>(tidegate: &'a Tidegate, key: &str) -> Caller<'a> {
        Caller { tidegate, key: Some(key.to_owned()) }
    }

    fn send(&self, call: Call) -> Response {
        let call = match &self.key {
            Some(key) => call.key(key),
            None => call,
        };
        call.to(self.tidegate.addr())
    }

    fn post(&self, path: &str, body: Value) -> Response {
        self.send(Call::post(path, body))
    }

    fn put(&self, path: &str, body: Value) -> Response {
        self.send(Call::new("PUT", path).json(body))
    }

    fn get(&self, path: &str) -> Response {
        self.send(Call::get(path))
    }

    fn enter(&self, target: &str, body: Value) -> Value {
        self.post(&format!("/v1/gates/{target}/enter"), body).expect(200)
    }

    /// The pass; panics if there is none.
    #[track_caller]
    fn pass(&self, target: &str, body: Value) -> String {
        let entered = self.enter(target, body);
        entered["pass"].as_str().unwrap_or_else(|| panic!("no pass: {entered}")).to_owned()
    }

    fn exit(&self, target: &str, pass: &str, outcome: &str) -> Response {
        self.post(&format!("/v1/gates/{target}/exit"), json!({"pass": pass, "outcome": outcome}))
    }

    fn look(&self, target: &str) -> Value {
        self.get(&format!("/v1/gates/{target}")).expect(200)
    }
}

/// A replica that waits for Redis as long as the machine is busy with other tests: what it decided alone would be no
/// decision of the fleet's.
fn replica(redis_url: &str, prefix: &str) -> Setup {
    Setup::locked()
        .env("REDIS_URL", redis_url)
        .env("TIDEGATE__REDIS__PREFIX", prefix)
        .env("TIDEGATE__REDIS__DEADLINE", "5s")
}

/// Three replicas that know of each other, so that shares are right.
fn fleet(redis_url: &str, prefix: &str) -> [Tidegate; 3] {
    let mut replicas = [(); 3].map(|()| replica(redis_url, prefix).spawn());
    replicas.iter_mut().for_each(Tidegate::wait_until_ready);
    for replica in &replicas {
        wait_until(SOON, "the replica to know the others", || replica.metric("redis_replicas") == Some(3.0));
    }
    replicas
}
