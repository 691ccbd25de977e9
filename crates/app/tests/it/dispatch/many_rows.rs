//! Bar 20: a process that was killed is ready again within two seconds, however large its SQLite file is.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::receiver::{Answer, Behaviour, Receiver};

use super::{LATER, event_id, replica, say, send_all, send_until_accepted, subscribe, tomorrow};
use crate::support::{Backend, Call, SOON, size};

const BATCH: usize = 1000;
/// Calls that never end, and so are under way when the process dies.
const IN_FLIGHT: usize = 100;

/// Half of them events, half deliveries.
fn rows() -> usize {
    size(100_000, 1_000_000)
}

/// Events that wait for tomorrow, each with its delivery.
fn fill(addr: SocketAddr, events: usize) {
    let at = tomorrow();
    thread::scope(|scope| {
        for producer in 0..2 {
            let at = &at;
            scope.spawn(move || {
                for start in (producer * BATCH..events).step_by(2 * BATCH) {
                    let event = |number| json!({"id": event_id(number), "type": "a.b", "data": {}, "deliver_at": at});
                    send_all(addr, (start..start + BATCH).map(event));
                }
            });
        }
    });
}

#[test]
fn a_process_that_was_killed_is_soon_back_on_a_large_file() {
    let receiver = Receiver::start();
    receiver.set(Behaviour::from(Answer::Hang));
    let mut tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT, "timeout": "30s"}));
    let events = rows() / 2;
    let begun = Instant::now();
    fill(addr, events);
    say(format_args!("{} rows after {:?}", rows(), begun.elapsed()));
    send_until_accepted(events..events + IN_FLIGHT, || addr);
    let mut slowest = Duration::ZERO;
    for _ in 0..size(1, 5) {
        receiver.received_blocking(IN_FLIGHT, LATER);
        let setup = tidegate.kill();
        receiver.clear();
        let begun = Instant::now();
        tidegate = setup.start();
        slowest = slowest.max(begun.elapsed());
    }
    say(format_args!("ready {slowest:?} after the start"));
    // A second is what an empty file takes beside other tests.
    assert!(slowest < Duration::from_secs(size(10, 2) as u64), "{slowest:?}");
    // What was under way comes again.
    receiver.received_blocking(IN_FLIGHT, SOON);
    Call::get(&format!("/v1/events/{}", event_id(events - 1))).to(addr).expect(200);
}
