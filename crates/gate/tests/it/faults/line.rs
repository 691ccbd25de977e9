//! The line to Redis breaks: how often it is dialled, and how calls fare when it is back.

use std::time::Duration;
use testkit::eventually;

use testkit::proxy::{FaultProxy, Faults};
use testkit::redis::Server;

use super::{Fleet, REPLICAS, after, now_us};
use crate::load::{degraded, percentile};

/// Bar 33, away for 6 s instead of 60: at most two dials a second from each replica, and no storm at the return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_line_is_dialled_at_most_twice_a_second_by_each_replica() {
    let server = testkit::need!(Server::start());
    let proxies: Vec<FaultProxy> = (0..REPLICAS).map(|_| FaultProxy::start(("127.0.0.1", server.port()))).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| format!("redis://127.0.0.1:{}/", proxy.port())).collect();
    let fleet = Fleet::connect(&urls).await;
    let before: Vec<u64> = proxies.iter().map(FaultProxy::accepted).collect();
    let (broken_us, cut) = (now_us(), async {
        for proxy in &proxies {
            proxy.set(Faults { reset: true, ..Faults::default() });
        }
        after(Duration::from_secs(6)).await;
        for proxy in &proxies {
            proxy.heal();
        }
    });
    let (_, ()) = tokio::join!(fleet.load(Duration::from_secs(6)), cut);
    let seconds = (now_us() - broken_us).div_ceil(1_000_000);
    for (proxy, before) in proxies.iter().zip(before) {
        let dials = proxy.accepted() - before;
        println!("line: {dials} dials in {seconds} s");
        assert!(dials > 0 && dials <= 2 * seconds + 1, "{dials} dials in {seconds} s");
    }
    eventually(Duration::from_secs(30), "Redis to decide again", async || !fleet.is_any_degraded()).await;
    let calls = fleet.load(Duration::from_secs(3)).await;
    let took = percentile(&calls, 75);
    println!("line: {took:?} after the return, {} of {} by fallback", degraded(&calls), calls.len());
    assert!(took <= Duration::from_millis(55), "{took:?}");
    fleet.shutdown().await;
}
