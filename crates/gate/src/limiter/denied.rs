//! Refusals remembered: until its time has come, a refused cost is refused again without asking Redis.
//!
//! Exact, because nothing but time frees a limit, except a refund, a reset or another policy. Those made here forget the
//! refusal at once; those made on another replica are seen within [`RECHECK_US`], when Redis is asked again. Only the same
//! cost is answered from memory: a smaller one may pass, and a larger one waits longer.

use std::sync::atomic::{AtomicU64, Ordering};

use super::policy::Policy;
use super::rules::decide::Report;
use crate::Key;
use crate::map::Map;

/// The longest a refusal is believed without asking again.
const RECHECK_US: u64 = 1_000_000;
const STRIPES: usize = 64;

pub(super) struct Denied {
    refusals: Map<Option<Refusal>>,
    /// Bumped when something freed a key: an answer that was on its way meanwhile is not remembered.
    versions: Box<[AtomicU64]>,
}

#[derive(Clone, Copy)]
struct Refusal {
    policy: Policy,
    cost: u64,
    /// By this process's clock.
    until_us: u64,
    reset_us: u64,
    remaining: u64,
    believed_until_us: u64,
}

/// The version of a key when a question was sent.
#[derive(Clone, Copy)]
pub(super) struct Version(u64);

impl Denied {
    pub(super) fn new(max_keys: usize) -> Denied {
        Denied {
            refusals: Map::new("limiter_denied", max_keys),
            versions: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn version(&self, key: &Key) -> Version {
        Version(self.stripe(key).load(Ordering::Acquire))
    }

    /// Is this certainly refused? Then the answer, as Redis would give it.
    pub(super) fn recall(&self, key: &Key, policy: &Policy, cost: u64, now_us: u64) -> Option<Report> {
        let refusal = self.refusals.read(key, |refusal| *refusal)??;
        let is_certain = refusal.policy == *policy
            && cost == refusal.cost
            && now_us < refusal.until_us.min(refusal.believed_until_us);
        is_certain.then(|| Report {
            limit: 0,
            wait_us: refusal.until_us - now_us,
            remaining: refusal.remaining,
            reset_after_us: refusal.reset_us.saturating_sub(now_us),
        })
    }

    /// `sent_us` is when the question left: the answer's times counted from there are never too late.
    pub(super) fn remember(&self, key: &Key, policy: &Policy, cost: u64, report: &Report, sent: (Version, u64)) {
        let (version, sent_us) = sent;
        let refusal = Refusal {
            policy: *policy,
            cost,
            until_us: sent_us + report.wait_us,
            reset_us: sent_us + report.reset_after_us,
            remaining: report.remaining,
            believed_until_us: sent_us + RECHECK_US,
        };
        self.refusals.update(key, sent_us, |entry| {
            // Under the lock that `forget` takes too: a bump is either seen here, or removes what is written here.
            if self.version(key).0 == version.0 {
                *entry = Some(refusal);
            }
            ((), refusal.until_us.min(refusal.believed_until_us))
        });
    }

    /// Somebody passed, so those who were refused wait longer than they were told: the next one asks again.
    pub(super) fn outdate(&self, key: &Key) {
        self.refusals.remove(key);
    }

    /// Something was freed.
    pub(super) fn forget(&self, key: &Key) {
        self.stripe(key).fetch_add(1, Ordering::AcqRel);
        self.refusals.remove(key);
    }

    fn stripe(&self, key: &Key) -> &AtomicU64 {
        let index = usize::try_from(key.hash_value() % STRIPES as u64).unwrap_or(0);
        &self.versions[index]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::Algorithm;

    const NOW: u64 = 1_700_000_000_000_000;

    fn setup() -> (Denied, Key, Policy) {
        let policy = Policy::new(Algorithm::Gcra, 10, Duration::from_secs(60)).unwrap();
        (Denied::new(100), Key::new("k").unwrap(), policy)
    }

    fn refusal(wait_us: u64) -> Report {
        Report { limit: 0, wait_us, remaining: 0, reset_after_us: wait_us }
    }

    #[test]
    fn a_refusal_is_recalled_until_its_time_and_counts_down() {
        let (denied, key, policy) = setup();
        denied.remember(&key, &policy, 2, &refusal(500_000), (denied.version(&key), NOW));
        assert_eq!(denied.recall(&key, &policy, 2, NOW + 100_000).map(|report| report.wait_us), Some(400_000));
        assert_eq!(denied.recall(&key, &policy, 2, NOW + 500_000), None);
    }

    #[test]
    fn other_costs_and_other_policies_are_asked_again() {
        let (denied, key, policy) = setup();
        denied.remember(&key, &policy, 2, &refusal(500_000), (denied.version(&key), NOW));
        assert_eq!(denied.recall(&key, &policy, 1, NOW), None);
        assert_eq!(denied.recall(&key, &policy, 3, NOW), None);
        let raised = Policy::new(Algorithm::Gcra, 20, Duration::from_secs(60)).unwrap();
        assert_eq!(denied.recall(&key, &raised, 2, NOW), None);
    }

    #[test]
    fn a_refund_or_reset_forgets_also_the_refusal_that_is_still_on_its_way() {
        let (denied, key, policy) = setup();
        let sent = (denied.version(&key), NOW);
        denied.forget(&key);
        denied.remember(&key, &policy, 1, &refusal(500_000), sent);
        assert_eq!(denied.recall(&key, &policy, 1, NOW), None, "it was decided before the refund");
    }

    #[test]
    fn a_long_refusal_is_checked_again_within_a_second_for_what_others_freed() {
        let (denied, key, policy) = setup();
        denied.remember(&key, &policy, 1, &refusal(30_000_000), (denied.version(&key), NOW));
        assert!(denied.recall(&key, &policy, 1, NOW + RECHECK_US - 1).is_some());
        assert_eq!(denied.recall(&key, &policy, 1, NOW + RECHECK_US), None);
    }
}
