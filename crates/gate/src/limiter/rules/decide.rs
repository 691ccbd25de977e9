//! Several limits at once, all or nothing.
//!
//! A limit that would pass at some time passes at any later time too (nothing but charges takes room away), so the
//! latest of the limits' earliest times suits them all.

use super::State;
use crate::limiter::policy::Policy;

/// One limit of a decision: whose state, how counted, how much.
pub(crate) struct Limit<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) policy: &'a Policy,
    pub(crate) cost: u64,
}

/// How long a decision may make its caller wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wait {
    /// Only look.
    Peek,
    /// Take it if the slot is at most so far away; 0 is a check.
    AtMost(u64),
}

/// The answer in numbers, as scripts give it too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Report {
    /// Index of the limit that is waited for, or that has the least left.
    pub(crate) limit: usize,
    pub(crate) wait_us: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
}

/// Charges every limit or none, and says which one the answer is about. `limits` is not empty.
pub(crate) fn decide(limits: &mut [Limit<'_>], wait: Wait, now_us: u64) -> Report {
    let (mut slot_us, mut waits_for) = (now_us, 0);
    for (index, limit) in limits.iter_mut().enumerate() {
        let earliest_us = limit.state.earliest(limit.policy, limit.cost, now_us);
        if earliest_us > slot_us {
            (slot_us, waits_for) = (earliest_us, index);
        }
    }
    let wait_us = slot_us - now_us;
    if matches!(wait, Wait::AtMost(longest_us) if wait_us <= longest_us) {
        for limit in limits.iter_mut() {
            limit.state.charge(limit.policy, limit.cost, slot_us, now_us);
        }
    }
    if wait_us == 0 && limits.len() > 1 {
        let left = limits.iter_mut().map(|limit| limit.state.remaining(limit.policy, now_us)).enumerate();
        waits_for = left.min_by_key(|(_, remaining)| *remaining).map_or(0, |(index, _)| index);
    }
    let limit = &mut limits[waits_for];
    Report {
        limit: waits_for,
        wait_us,
        remaining: limit.state.remaining(limit.policy, now_us),
        reset_after_us: limit.state.reset_after(limit.policy, now_us),
    }
}

/// Charges every limit or none, like [`decide`] without a wait, and says of each where it stands: its own wait, what is
/// left of it. Takes nothing if `takes` is false.
pub(crate) fn decide_every(limits: &mut [Limit<'_>], takes: bool, now_us: u64) -> Vec<Report> {
    let wait = |limit: &mut Limit<'_>| limit.state.earliest(limit.policy, limit.cost, now_us) - now_us;
    let waits: Vec<u64> = limits.iter_mut().map(wait).collect();
    if takes && waits.iter().all(|wait_us| *wait_us == 0) {
        for limit in limits.iter_mut() {
            limit.state.charge(limit.policy, limit.cost, now_us, now_us);
        }
    }
    let report = |(index, (limit, wait_us)): (usize, (&mut Limit<'_>, u64))| Report {
        limit: index,
        wait_us,
        remaining: limit.state.remaining(limit.policy, now_us),
        reset_after_us: limit.state.reset_after(limit.policy, now_us),
    };
    limits.iter_mut().zip(waits).enumerate().map(report).collect()
}
