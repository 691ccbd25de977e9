//! A client that holds places: this test binary again, as a process of its own that can be killed.
//!
//! It enters, says how many places it holds, and renews them until it is killed. It dies with its parent's thread.

use std::{
    env,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Call, Tidegate};

const PART: &str = "GATES_TEST_HOLDER";
const RENEW_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Holder(Child);

impl Holder {
    /// Returns once it holds this many places of `target`, entered and renewed at these replicas in turn.
    pub(super) fn start(replicas: &[&Tidegate], target: &str, body: &Value, places: usize) -> Holder {
        let addrs: Vec<SocketAddr> = replicas.iter().map(|replica| replica.addr()).collect();
        let part = json!({"addrs": addrs, "target": target, "body": body, "places": places});
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(env::current_exe().unwrap())
            .args(["--exact", "gates::holder::plays_the_part_its_parent_gives_it", "--nocapture"])
            .env(PART, part.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("@holds")), "the holder ended without a word");
        Holder(child)
    }

    /// `kill -9`.
    pub(super) fn kill(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "a place was lost while it was renewed");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

/// Does nothing in an ordinary run; in a holder it is the whole program.
#[test]
fn plays_the_part_its_parent_gives_it() {
    let Ok(part) = env::var(PART) else { return };
    let part: Value = serde_json::from_str(&part).unwrap();
    let addrs: Vec<SocketAddr> = serde_json::from_value(part["addrs"].clone()).unwrap();
    let call = |turn: usize, what: &str, body: Value| {
        let path = format!("/v1/gates/{}/{what}", part["target"].as_str().unwrap());
        Call::post(&path, body).key(ADMIN_KEY).to(addrs[turn % addrs.len()]).expect(200)
    };
    let places = usize::try_from(part["places"].as_u64().unwrap()).unwrap();
    let passes: Vec<Value> =
        (0..places).map(|turn| call(turn, "enter", part["body"].clone())["pass"].clone()).collect();
    println!("\n@holds");
    for turn in 0.. {
        // Its rhythm, not a hope: nothing is awaited here.
        thread::sleep(RENEW_EVERY);
        for (place, pass) in passes.iter().enumerate() {
            assert_eq!(call(turn + place, "renew", json!({"pass": pass}))["renewed"], true);
        }
    }
}
