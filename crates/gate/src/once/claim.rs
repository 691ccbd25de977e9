//! The rules of once, and nothing else: no clock, no lock, no I/O. `rules.lua` says the same in Redis.
//!
//! A name is free, claimed or done. What always holds: two claims of a name never have the same fence, and the later one
//! has the larger; only the owner of the latest claim may renew, complete or abandon it; a claim ends by itself, but
//! stays its owner's until somebody else claims.
//!
//! A fence is the time of the claim in microseconds, or one more than the last if the clock did not move. So it grows
//! also after the record expired and nothing remembers the last one.

use bytes::Bytes;

use crate::holder::Holder;

const REMEMBER_US: u64 = 600_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    fence: u64,
    phase: Phase,
    until_us: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Free,
    Claimed {
        owner: Holder,
    },
    Done {
        result: Bytes,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The caller owns the name now.
    Won { fence: u64 },
    /// Somebody else works on it; its claim ends after this time at the latest.
    InProgress { retry_after_us: u64 },
    /// The work is done, with this result.
    Done { result: Bytes },
}

impl Record {
    /// Claims the name, unless somebody holds it or it is done. Asking again with the same owner gives the same fence,
    /// so a caller that did not hear the answer may repeat the question.
    pub(crate) fn claim(&mut self, owner: Holder, lease_us: u64, now_us: u64) -> Answer {
        let is_live = now_us < self.until_us;
        match &self.phase {
            Phase::Done { result } if is_live => return Answer::Done { result: result.clone() },
            Phase::Claimed { owner: current } if *current == owner => (),
            Phase::Claimed { .. } if is_live => return Answer::InProgress { retry_after_us: self.until_us - now_us },
            Phase::Free | Phase::Claimed { .. } | Phase::Done { .. } => self.fence = now_us.max(self.fence + 1),
        }
        self.phase = Phase::Claimed { owner };
        self.until_us = now_us + lease_us;
        Answer::Won { fence: self.fence }
    }

    /// Extends the owner's claim. False: somebody else has the name, or it is done.
    pub(crate) fn renew(&mut self, owner: Holder, lease_us: u64, now_us: u64) -> bool {
        let is_owner = self.is_owned_by(owner);
        if is_owner {
            self.until_us = now_us + lease_us;
        }
        is_owner
    }

    /// Ends the claim with a result that later claimers get for `keep_us`. False: the claim was lost.
    pub(crate) fn complete(&mut self, owner: Holder, result: Bytes, keep_us: u64, now_us: u64) -> bool {
        let is_owner = self.is_owned_by(owner);
        if is_owner {
            self.phase = Phase::Done { result };
            self.until_us = now_us + keep_us;
        }
        is_owner
    }

    /// Ends the claim without a result: the next claimer wins. False: the claim was lost.
    pub(crate) fn abandon(&mut self, owner: Holder) -> bool {
        let is_owner = self.is_owned_by(owner);
        if is_owner {
            self.phase = Phase::Free;
            self.until_us = 0;
        }
        is_owner
    }

    /// From when on the record may be forgotten. It is remembered a little longer than it says anything, so that fences
    /// grow even if the clock does not.
    pub(crate) fn idle_from_us(&self, now_us: u64) -> u64 {
        self.until_us.max(now_us) + REMEMBER_US
    }

    fn is_owned_by(&self, owner: Holder) -> bool {
        self.phase == Phase::Claimed { owner }
    }
}
