//! gRPC through the binary: a real client made from Envoy's public protos, health, reflection, tenants, and strangers who mean
//! no good.

mod envoy;
mod gates;
mod hostile;
mod own;
mod replicas;

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use testkit::{Unavailable, fetch};

use crate::support::{Setup, Tidegate};

/// Google's library, and the gRPC project's own package of Envoy's public protos.
const PACKAGES: [&str; 4] =
    ["grpcio==1.85.1", "grpcio-health-checking==1.85.1", "grpcio-reflection==1.85.1", "xds-protos==1.85.0"];
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/grpc/client.py");
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A client in another language, in a process of its own.
struct Client {
    child: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Client {
    fn connect(addr: SocketAddr) -> Result<Client, Unavailable> {
        let unavailable = |reason| Unavailable::program("Python's gRPC library", reason);
        let folder = fetch::python("python-grpc-1.85.1", &PACKAGES).map_err(unavailable)?;
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(folder.join("bin/python"))
            .args([SCRIPT, &addr.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| unavailable(error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Ok(Client { child, pipes: RefCell::new((stdin, BufReader::new(stdout))) })
    }

    fn say(&self, call: &Value) -> Value {
        let (stdin, stdout) = &mut *self.pipes.borrow_mut();
        writeln!(stdin, "{call}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} after {call}: {line:?}"))
    }

    fn call(&self, method: &str, request: Value) -> Value {
        self.say(&json!({"method": method, "request": request}))
    }

    fn call_with_key(&self, key: &str, method: &str, request: Value) -> Value {
        self.say(&json!({"method": method, "request": request, "metadata": {"authorization": format!("Bearer {key}")}}))
    }

    /// Is the request under its limits? Panics on an error.
    #[track_caller]
    fn rate_limit(&self, request: Value) -> Value {
        let answer = self.call(SHOULD_RATE_LIMIT, request);
        answer.get("ok").cloned().unwrap_or_else(|| panic!("{answer}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What Envoy sends: descriptors of one entry each, unless given whole.
fn descriptor(key: &str, value: &str) -> Value {
    json!({"entries": [{"key": key, "value": value}]})
}

/// Envoy ratelimit's own file.
const ENVOY_YAML: &str = "\
domain: edge
descriptors:
  - key: generic_key
    value: login
    rate_limit: {unit: hour, requests_per_unit: 3, name: logins}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: remote_address
    value: 10.0.0.1
    rate_limit: {unlimited: true}
  - key: shadowed
    rate_limit: {unit: day, requests_per_unit: 1}
    shadow_mode: true
  - key: detailed
    rate_limit: {unit: day, requests_per_unit: 1}
    detailed_metric: true
  - key: banned
    rate_limit: {unit: second, requests_per_unit: 0}
";

fn envoy(setup: Setup) -> Tidegate {
    setup.file("envoy.yaml", ENVOY_YAML).env("TIDEGATE__LIMITS__ENVOY_FILE", "envoy.yaml").start()
}
