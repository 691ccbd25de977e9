//! Bar 18: destinations that close idle connections at about the moment of the next call. Nobody counts that as a failure, and
//! nothing arrives twice. And connections that are used again, however many destinations there are.

use std::{
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{
    proxy::{FaultProxy, Faults},
    receiver::Receiver,
    wait_until,
};

use super::{LATER, attempts, deliveries, replica, say, send, send_all, statuses, subscribe, wait_until_all_ended};
use crate::support::{Backend, Tidegate, size};

/// Bytes are this long under way, so calls and the end of a connection pass each other for twice as long.
const WAY: Duration = Duration::from_millis(25);
/// Calls after each pause.
const BATCH: usize = 20;

/// A destination far away that closes connections which were idle for so long.
struct Far {
    receiver: Receiver,
    proxy: FaultProxy,
    idle: Duration,
}

impl Far {
    fn start(idle: Duration) -> Self {
        let receiver = Receiver::start();
        receiver.close_idle_after(idle);
        let proxy = FaultProxy::start(receiver.addr());
        proxy.set(Faults { latency: WAY, ..Faults::default() });
        Far { receiver, proxy, idle }
    }

    /// Sends batches, each when the connections of the last one are about to be closed: a little earlier, or later.
    fn call_in_time(&self, tidegate: &Tidegate, name: &str, batches: usize) {
        for batch in 0..batches {
            let event = |number| json!({"id": format!("{name}-{}", batch * BATCH + number), "type": name, "data": {}});
            send_all(tidegate.addr(), (0..BATCH).map(event));
            let last = self.receiver.received_blocking((batch + 1) * BATCH, LATER).last().map(|request| request.at);
            let pause = self.idle - [WAY * 2, WAY, Duration::ZERO][batch % 3];
            wait_until(LATER, "the pause to be over", || last.is_none_or(|at| at.elapsed() >= pause));
        }
    }
}

#[test]
fn a_destination_that_closes_idle_connections_costs_no_attempt_and_gets_nothing_twice() {
    let tidegate = replica(&Backend::Sqlite).start();
    let batches = size(5, 100);
    // Up to longer than the worker keeps a connection itself.
    let far: Vec<Far> =
        (1..=5).map(|fifth| Far::start(Duration::from_millis(fifth * size(100, 1000) as u64))).collect();
    for (number, far) in far.iter().enumerate() {
        let only = json!({"event_types": [format!("far{number}")], "retry_schedule": ["10ms", "1s", "1s"]});
        subscribe(tidegate.addr(), &format!("http://{}/", far.proxy.addr()), only);
    }
    thread::scope(|scope| {
        for (number, far) in far.iter().enumerate() {
            let tidegate = &tidegate;
            scope.spawn(move || far.call_in_time(tidegate, &format!("far{number}"), batches));
        }
    });
    let sends = far.len() * batches * BATCH;
    wait_until_all_ended(tidegate.addr(), sends);
    assert_eq!(statuses(tidegate.addr()), [("delivered".to_owned(), sends)].into());
    let failed: Vec<_> = deliveries(tidegate.addr(), "").into_iter().filter(|one| one["attempts"] != 1).collect();
    assert!(failed.is_empty(), "{:?}", attempts(tidegate.addr(), &failed[0]));
    for far in &far {
        assert_eq!(far.receiver.duplicates(), [].into());
        assert_eq!(far.receiver.count(), batches * BATCH);
    }
    let resent = tidegate.metric("tidegate_http_client_resent_total").unwrap_or_default();
    say(format_args!("{resent} of {sends} calls met the end of their connection"));
    assert!(resent >= size(1, sends / 50) as f64, "{resent} of {sends} calls met the end of their connection");
}

/// Every address of 127.0.0.0/8 is a host of its own.
#[test]
fn each_of_thousands_of_hosts_is_called_over_the_connection_that_is_open() {
    const ROUNDS: usize = 5;
    let hosts = size(500, 10_000);
    let receiver = Receiver::start_everywhere();
    // A slow machine would not write ten thousand outcomes within the short lease of other tests.
    let tidegate = replica(&Backend::Sqlite).env("TIDEGATE__DISPATCH__LEASE", "60s").start();
    for host in 0..hosts {
        let [.., high, low] = host.to_be_bytes();
        let host = Ipv4Addr::new(127, 9, high, low);
        subscribe(tidegate.addr(), &format!("http://{host}:{}/", receiver.addr().port()), json!({}));
    }
    let mut connections = Vec::new();
    for round in 1..=ROUNDS {
        let begun = Instant::now();
        send(tidegate.addr(), json!({"type": "a.b", "data": {}}));
        receiver.received_blocking(round * hosts, LATER);
        connections.push(receiver.connections());
        say(format_args!("{hosts} hosts in {:?}, over {connections:?} connections so far", begun.elapsed()));
    }
    wait_until_all_ended(tidegate.addr(), ROUNDS * hosts);
    assert_eq!(statuses(tidegate.addr()), [("delivered".to_owned(), ROUNDS * hosts)].into());
    assert_eq!(receiver.count(), ROUNDS * hosts);
    // To open them all may take longer than an idle one is kept.
    assert!(connections[ROUNDS - 1] - connections[1] <= hosts as u64 / 100, "{connections:?}");
}
