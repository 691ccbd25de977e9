//! Bar 32 through three replicas: one circuit for all of them, few probes, and never a circuit that stays open for ever.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{need, wait_until};

use super::{Caller, fleet};
use crate::support::{ADMIN_KEY, SOON, Tidegate};

const SECOND: Duration = Duration::from_secs(1);
const PROBES: usize = 3;

/// Probes are passes: they live as long as one.
fn policy(lease: &str) -> Value {
    json!({"policy": {"circuit": {"failures": 5, "open": "1s", "open_cap": "1s", "probes": PROBES}, "lease": lease}})
}

fn callers(replicas: &[Tidegate; 3]) -> [Caller<'_>; 3] {
    replicas.each_ref().map(|replica| Caller::with_key(replica, ADMIN_KEY))
}

/// Five failures at one replica open the circuit.
fn open(caller: &Caller<'_>, target: &str, body: &Value) {
    for _ in 0..5 {
        let pass = caller.pass(target, body.clone());
        caller.exit(target, &pass, "failure").expect(200);
    }
}

#[test]
fn three_replicas_agree_within_a_second_that_a_target_fails() {
    let redis = need!(testkit::redis());
    let replicas = fleet(&redis.url(), redis.prefix());
    let callers = callers(&replicas);
    let body = json!({"policy": {"circuit": {"failures": 5, "open": "1h"}}});
    let until_all_refuse = |target: &str| {
        for caller in &callers {
            let pass = caller.pass(target, body.clone());
            caller.exit(target, &pass, "success").expect(200);
        }
        open(&callers[0], target, &body);
        let opened = Instant::now();
        for caller in &callers {
            wait_until(SOON, "every replica to refuse", || {
                caller.enter(target, body.clone())["refused_by"] == "circuit"
            });
        }
        opened.elapsed()
    };
    // The third of five: a machine that stands still for a moment delays one or two.
    let mut took = ["a", "b", "c", "d", "e"].map(until_all_refuse);
    took.sort_unstable();
    println!("three replicas refused {took:?} after the circuit opened");
    assert!(took[2] <= SECOND, "{took:?}");
}

/// Twelve callers storm a circuit that is half open: the fleet sends three probes, and they close it.
#[test]
fn a_storm_on_a_half_open_circuit_sends_the_configured_probes_and_no_more() {
    let redis = need!(testkit::redis());
    let replicas = fleet(&redis.url(), redis.prefix());
    let callers = callers(&replicas);
    let body = policy("1m");
    open(&callers[0], "api", &body);
    let (refused, probes, out, most) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..12 {
            let caller = &callers[number % 3];
            let (body, refused, probes, out, most) = (&body, &refused, &probes, &out, &most);
            scope.spawn(move || {
                wait_until(SOON, "the circuit to close", || {
                    let entered = caller.enter("api", body.clone());
                    let Some(pass) = entered["pass"].as_str() else {
                        refused.fetch_add(1, Ordering::SeqCst);
                        return false;
                    };
                    if entered["probe"] != true {
                        caller.exit("api", pass, "success").expect(200);
                        return true;
                    }
                    probes.fetch_add(1, Ordering::SeqCst);
                    most.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // While a probe is out, others ask and are refused.
                    let enough = refused.load(Ordering::SeqCst) + 10;
                    wait_until(SOON, "others to ask", || refused.load(Ordering::SeqCst) >= enough);
                    out.fetch_sub(1, Ordering::SeqCst);
                    caller.exit("api", pass, "success").expect(200);
                    false
                });
            });
        }
    });
    let (probes, most) = (probes.into_inner(), most.into_inner());
    println!("{probes} probes, at most {most} at once, {} refused", refused.into_inner());
    assert!(most <= PROBES && probes == PROBES, "{probes} probes, {most} at once");
    wait_until(SOON, "every replica to see it closed", || {
        callers.iter().all(|caller| caller.look("api")["circuit"]["state"] == "closed")
    });
}

/// All probes are with callers that died. Their places end with their leases, and the next probes close the circuit.
#[test]
fn probes_that_never_report_do_not_keep_a_circuit_open_for_ever() {
    let redis = need!(testkit::redis());
    let replicas = fleet(&redis.url(), redis.prefix());
    let callers = callers(&replicas);
    let body = policy("2s");
    open(&callers[0], "api", &body);
    let opened = Instant::now();
    let mut lost = 0;
    wait_until(SECOND + SOON, "all probes to be out", || {
        let is_pass = callers[lost % 3].enter("api", body.clone()).get("pass").is_some();
        if is_pass && lost == 0 {
            println!("the first probe was admitted {:?} after the circuit opened for 1 s", opened.elapsed());
            assert!(opened.elapsed() <= 5 * SECOND, "{:?}", opened.elapsed());
        }
        lost += usize::from(is_pass);
        lost == PROBES
    });
    let (out, mut successes) = (Instant::now(), 0);
    wait_until(SOON, "the places of the lost probes", || {
        let entered = callers[successes % 3].enter("api", body.clone());
        let Some(pass) = entered["pass"].as_str() else { return false };
        let late = out.elapsed();
        assert!(successes > 0 || late <= 6 * SECOND, "the first place was free after {late:?}; the lease is 2 s");
        callers[successes % 3].exit("api", pass, "success").expect(200);
        successes += 1;
        successes == PROBES
    });
    println!("the places of 3 lost probes were free after {:?}; their lease is 2 s", out.elapsed());
    assert_eq!(callers[1].look("api")["circuit"]["state"], "closed");
}
