//! Replicas on one Redis: one limit for all of them, and an answer also when Redis is gone.

use std::thread;

use testkit::{need, wait_until};

use super::Server;
use crate::support::{SOON, Setup};

/// A replica that waits for Redis as long as the machine is busy: what it decided alone would be no decision of the fleet's.
fn replica(url: &str, prefix: &str) -> Server {
    let setup = Setup::serve().env("REDIS_URL", url).env("TIDEGATE__REDIS__PREFIX", prefix);
    Server::start(setup.env("TIDEGATE__REDIS__DEADLINE", "5s"))
}

#[test]
fn three_replicas_admit_together_exactly_the_limit() {
    let redis = need!(testkit::redis());
    let replicas: Vec<Server> = (0..3).map(|_| replica(&redis.url(), redis.prefix())).collect();
    let ask = ["CL.THROTTLE", "shared", "99", "1", "3600"];
    let admitted: usize = thread::scope(|scope| {
        let asking: Vec<_> = replicas
            .iter()
            .flat_map(|replica| [replica, replica])
            .map(|replica| {
                scope.spawn(move || {
                    let mut client = replica.client();
                    let batch = super::command(&ask).repeat(16);
                    let mut admitted = 0;
                    for _ in 0..10 {
                        client.send(&batch).unwrap();
                        admitted += (0..16).filter(|_| client.reply().starts_with("0 ")).count();
                    }
                    admitted
                })
            })
            .collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

#[test]
fn without_redis_this_process_decides_and_goes_on_answering() {
    let redis = need!(testkit::redis::Server::start());
    let server = replica(&redis.url(), "");
    let mut client = server.client();
    assert_eq!(client.ask(&["CL.THROTTLE", "k", "9", "1", "3600"]), "0 10 9 -1 3600");
    redis.kill();
    wait_until(SOON, "the limit to be used up from where it stood", || {
        client.ask(&["CL.THROTTLE", "k", "9", "1", "3600"]).starts_with("1 10 0")
    });
    assert_eq!(client.ask(&["PING"]), "PONG");
}
