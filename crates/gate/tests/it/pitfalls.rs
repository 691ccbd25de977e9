//! The 24 bugs of other limiters, breakers and semaphores, and the tests that fail when one of them is put back.
//!
//! The table is checked: a test that is renamed or removed must be renamed or replaced here.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use gate::breaker::{Admission, Breaker, Outcome};
use gate::gate::{Entry, Gate};
use gate::limiter::{Algorithm, Limiter};
use gate::once::{Claimed, Once};
use gate::redis::Status;
use gate::semaphore::{Acquired, Semaphore};
use gate::{Backend, Clock, breaker, gate as gates, limiter, once, semaphore};
use testkit::redis::Server;

use crate::backends::{connected, key};

const NOT_BUILT: &str = "23 adaptive limits drift";

const PITFALLS: [(&str, &[&str]); 24] = [
    (
        "1 fractions are lost",
        &["a_drained_bucket_gives_every_token_it_earns", "no_fraction_of_a_token_is_lost_between_calls"],
    ),
    (
        "2 the caller's clock decides",
        &[
            "replicas_with_skewed_clocks_share_a_limit_exactly",
            "a_clock_that_is_set_back_does_not_keep_it_open_or_half_open",
        ],
    ),
    ("3 TIME in scripts", &["replicas_with_skewed_clocks_share_a_limit_exactly"]),
    ("4 Lua numbers are doubles", &["gcra_in_lua_equals_the_rules", "token_bucket_in_lua_equals_the_rules"]),
    ("5 a partial grant charges more than it gives", &["concurrent_checks_of_one_key_admit_exactly_the_limit"]),
    ("6 a denied cost digs a debt", &["a_refusal_writes_nothing", "every_key_expires"]),
    ("7 denied calls count", &["a_refusal_writes_nothing", "nothing_is_charged_unless_all_agree"]),
    ("8 counters without expiry", &["every_key_expires"]),
    ("9 the bound of an algorithm", &["never_admits_more_than_its_bound_in_any_time"]),
    ("10 equal members drop events", &["sliding_log_in_lua_equals_the_rules", "three_processes_share_a_limit_exactly"]),
    ("11 the sliding counter's assumption", &["never_admits_more_than_its_bound_in_any_time"]),
    ("12 the burst is off by one", &["every_algorithm_admits_its_limit_and_then_says_when_to_come_again"]),
    (
        "13 NOSCRIPT, and retries that charge twice",
        &["a_redis_that_forgets_its_scripts_is_told_them_again_within_the_call"],
    ),
    (
        "14 keys across slots",
        &[
            "a_cluster_is_resharded_and_fails_over_under_load_and_callers_do_not_notice",
            "braces_in_a_key_cannot_break_the_hash_tag",
        ],
    ),
    ("15 a failover or a flush loses writes", &["an_emptied_redis_lets_one_more_burst_through"]),
    (
        "16 the full limit on each replica",
        &[
            "a_killed_redis_is_replaced_at_once_by_each_replicas_share",
            "a_redis_that_comes_back_empty_decides_again_after_one_more_burst",
            "the_map_never_grows_over_its_bound_even_when_every_key_is_live",
        ],
    ),
    ("17 no start without Redis", &["a_replica_starts_without_redis_says_so_and_takes_it_when_it_comes"]),
    (
        "18 half-open herds and wedges",
        &[
            "half_open_lets_exactly_three_probes_through_and_three_successes_close_it",
            "probes_that_are_cancelled_or_never_come_back_do_not_wedge_it",
            "killed_probes_do_not_wedge_the_breaker",
        ],
    ),
    (
        "19 stale windows, late reports, above instead of at",
        &[
            "failures_older_than_the_window_do_not_count",
            "a_stale_report_neither_closes_nor_opens_the_circuit",
            "a_failure_rate_opens_it_when_it_is_reached_not_only_when_it_is_passed",
        ],
    ),
    (
        "20 one bad node opens everyone's breaker",
        &[
            "with_a_quorum_one_process_in_trouble_does_not_open_it_and_a_second_does",
            "with_a_quorum_a_replica_in_trouble_stops_alone",
        ],
    ),
    (
        "21 a semaphore that counts",
        &[
            "releasing_twice_or_late_frees_nobody_elses_permit",
            "a_leaked_permit_returns_after_its_lease_while_others_keep_renewing",
            "permits_of_a_killed_replica_return_within_the_lease_and_a_second_and_not_before_it_ended",
            "a_release_in_another_process_reaches_who_waits_here",
        ],
    ),
    (
        "22 once runs twice, or is swallowed",
        &[
            "work_that_outlives_its_claim_has_the_smaller_fence_and_cannot_complete",
            "a_claim_that_is_dropped_or_abandoned_is_free_for_the_next",
            "fences_grow_across_an_emptied_redis_and_claims_stay_with_whoever_gave_them",
        ],
    ),
    // The gate has no adaptive limit: a limit is what its policy says, never learnt.
    (NOT_BUILT, &[]),
    ("24 metrics per key", &["no_metric_has_a_key_for_a_label"]),
];

fn sources(folders: &[&str]) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("a folder of the crate can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(fs::read_to_string(&path).expect("a source can be read"));
            }
        }
    }
    let mut found = Vec::new();
    for folder in folders {
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    found
}

#[test]
fn every_pitfall_has_its_tests() {
    let sources = sources(&["src", "tests"]);
    for (pitfall, tests) in PITFALLS {
        assert!(pitfall == NOT_BUILT || !tests.is_empty(), "pitfall {pitfall} has no test");
        for test in tests {
            let is_there = sources.iter().any(|source| source.contains(&format!("fn {test}(")));
            assert!(is_there, "pitfall {pitfall}: there is no test {test}");
        }
    }
}

#[test]
fn no_metric_has_a_key_for_a_label() {
    let bounded = BTreeSet::from(["operation", "status", "map", "to", "mode", "algorithm", "primitive"]);
    for source in sources(&["src"]) {
        for call in source.split("metrics::").skip(1) {
            let Some((_, call)) = call.split_once("!(") else { continue };
            let call = call.split_once(')').map_or(call, |(inside, _)| inside);
            for label in call.split('"').skip(1).step_by(2) {
                assert!(bounded.contains(label), "label {label:?} may not be bounded");
            }
        }
    }
}

fn every_policy() -> gates::Policy {
    gates::Policy::default()
        .rate(limiter::Policy::new(Algorithm::SlidingLog, 1, Duration::from_secs(60)).expect("valid"))
        .circuit(breaker::Policy::default())
        .concurrency(semaphore::Policy::new(1, Duration::from_secs(60)).expect("valid"))
}

/// Leaves something in Redis by every way there is.
async fn use_everything(backend: &Backend) {
    let one = NonZeroU64::MIN;
    let limiter = Limiter::new(backend);
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::SlidingCounter,
        Algorithm::FixedWindow,
        Algorithm::LeakyBucket,
    ] {
        let policy = limiter::Policy::new(algorithm, 1, Duration::from_secs(60)).expect("valid");
        assert!(limiter.check(&key(&format!("{algorithm:?}")), &policy, one).await.is_allowed());
    }
    let breaker = Breaker::new(backend, breaker::Policy::default());
    for _ in 0..5 {
        let Admission::Pass(pass) = breaker.admit(&key("failing")).await else { panic!("it is closed") };
        pass.record(Outcome::Failure).await;
    }
    let semaphore = Semaphore::new(backend, semaphore::Policy::new(1, Duration::from_secs(60)).expect("valid"));
    let Acquired::Permit(permit) = semaphore.try_acquire(&key("held")).await else { panic!("one is free") };
    let once = Once::new(backend, once::Policy::new(Duration::from_secs(60), Duration::from_secs(60)).expect("valid"));
    let Claimed::Won(done) = once.claim(&key("done")).await else { panic!("nobody claimed it") };
    assert!(done.complete("result").await.expect("Redis answers"));
    let Claimed::Won(claimed) = once.claim(&key("claimed")).await else { panic!("nobody claimed it") };
    let Entry::Pass(pass) = Gate::new(backend).enter(&key("entered"), &every_policy(), one).await else {
        panic!("nobody entered")
    };
    // Held beyond the end of the test: what they left in Redis is looked at.
    std::mem::forget((permit, claimed, pass));
}

fn keys(server: &Server) -> Vec<String> {
    server.cli(&["KEYS", "*"]).lines().filter(|name| !name.contains("replicas")).map(str::to_owned).collect()
}

/// Pitfalls 6 and 8.
#[tokio::test]
async fn every_key_expires() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server.url(), "p:", Clock::System).await;
    use_everything(&backend).await;
    let names: Vec<String> = server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    assert!(names.len() >= 13, "{names:?}");
    for name in names {
        let left_ms: i64 = server.cli(&["PTTL", &name]).parse().expect("a number");
        assert!((1..=90_000_000).contains(&left_ms), "{name} expires in {left_ms} ms");
        assert!(name.starts_with("p:tg:v1:"), "{name} has neither prefix nor version");
    }
    backend.shutdown().await;
}

/// Pitfalls 6 and 7.
#[tokio::test]
async fn a_refusal_writes_nothing() {
    let server = testkit::need!(Server::start());
    let first = connected(&server.url(), "p:", Clock::System).await;
    use_everything(&first).await;
    let dump = || -> Vec<(String, String)> {
        let mut names = keys(&server);
        names.sort();
        names.into_iter().map(|name| (name.clone(), server.cli(&["DUMP", &name]))).collect()
    };
    let before = dump();
    // A second replica remembers no refusal, so each of these questions reaches Redis.
    let second = connected(&server.url(), "p:", Clock::System).await;
    let (limiter, gate) = (Limiter::new(&second), Gate::new(&second));
    for cost in [1, 1] {
        let cost = NonZeroU64::new(cost).expect("not zero");
        for algorithm in [Algorithm::SlidingLog, Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::FixedWindow] {
            let policy = limiter::Policy::new(algorithm, 1, Duration::from_secs(60)).expect("valid");
            assert!(!limiter.check(&key(&format!("{algorithm:?}")), &policy, cost).await.is_allowed());
        }
        assert!(matches!(gate.enter(&key("entered"), &every_policy(), cost).await, Entry::Refused(_)));
    }
    let breaker = Breaker::new(&second, breaker::Policy::default());
    assert!(matches!(breaker.admit(&key("failing")).await, Admission::Reject { .. }));
    let semaphore = Semaphore::new(&second, semaphore::Policy::new(1, Duration::from_secs(60)).expect("valid"));
    assert!(matches!(semaphore.try_acquire(&key("held")).await, Acquired::Full { .. }));
    assert_eq!(before, dump());
    first.shutdown().await;
    second.shutdown().await;
}

/// Pitfall 21: a wake-up that cannot be sent to another process must not be needed.
#[tokio::test]
async fn a_release_in_another_process_reaches_who_waits_here() {
    let server = testkit::need!(testkit::redis());
    let here = connected(&server.url(), server.prefix(), Clock::System).await;
    let there = connected(&server.url(), server.prefix(), Clock::System).await;
    assert_eq!((here.connection(), there.connection()), (Some(Status::Connected), Some(Status::Connected)));
    let policy = semaphore::Policy::new(1, Duration::from_secs(60)).expect("valid");
    let (waiting, holding) = (Semaphore::new(&here, policy), Semaphore::new(&there, policy));
    let key = key("a");
    let Acquired::Permit(held) = holding.try_acquire(&key).await else { panic!("one is free") };
    let release = async {
        // By then the waiter has asked at least once, and stands in line.
        let short = waiting.acquire(&key, Duration::from_millis(50)).await;
        assert!(matches!(short, Acquired::Full { .. }), "{short:?}");
        held.release().await
    };
    let (acquired, released) = tokio::join!(waiting.acquire(&key, Duration::from_secs(30)), release);
    assert!(released && matches!(acquired, Acquired::Permit(_)), "{acquired:?}");
    here.shutdown().await;
    there.shutdown().await;
}
