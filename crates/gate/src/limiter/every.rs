//! Several limits at once, all or nothing, and where each of them stands: for callers who owe an answer about every one.

use std::num::NonZeroU64;

use super::decision::{Decision, Verdict};
use super::rules::decide::{Report, Wait};
use super::{Ask, Limiter, Limits};
use crate::Error;
use crate::fallback::{DWELL, Mode};

impl Limiter {
    /// Like [`Limiter::check_all`], with a decision for each limit: denied are those that refused by themselves. All are
    /// counted if none is denied, otherwise none.
    pub async fn check_every(&self, asks: &[Ask]) -> Result<Vec<Decision>, Error> {
        let limits = self.together(asks)?;
        if asks.iter().any(|ask| ask.cost > ask.policy.capacity()) {
            return Ok(self.stand_every(asks).await);
        }
        if let [Ask { key, policy, cost }] = asks {
            let cost = NonZeroU64::new(*cost).unwrap_or(NonZeroU64::MIN);
            return Ok(vec![self.check(key, policy, cost).await]);
        }
        let asked_us = self.clock.now_us();
        let Some(shared) = &self.shared else {
            let reports = self.local.decide_every(&limits, true, asked_us, |policy| *policy);
            return Ok(decisions(asks, &reports, false));
        };
        let Ok(held) = self.hold_share(&limits, Wait::AtMost(0), asked_us) else {
            return Ok(self.decide_every_alone(&limits, false, asked_us));
        };
        let answered = self.fallback.attempt("limiter_check", shared.decide_every(&limits)).await;
        let now_us = self.clock.now_us();
        let is_taken = answered.as_ref().is_some_and(|reports| reports.iter().all(|report| report.wait_us == 0));
        if !is_taken {
            self.let_go(&held, asked_us, now_us);
        }
        let Some(reports) = answered else {
            return Ok(self.decide_every_alone(&limits, true, now_us));
        };
        self.follow_every(asks, &reports, is_taken, &held, now_us);
        Ok(decisions(asks, &reports, false))
    }

    /// One of them can never pass, so nothing is counted.
    async fn stand_every(&self, asks: &[Ask]) -> Vec<Decision> {
        let mut all = Vec::with_capacity(asks.len());
        for (rule, Ask { key, policy, cost }) in asks.iter().enumerate() {
            let decision = match NonZeroU64::new(*cost) {
                Some(cost) if cost.get() <= policy.capacity() => self.peek(key, policy, cost).await,
                _ => Decision::never(rule, policy),
            };
            all.push(Decision { rule, ..decision });
        }
        all
    }

    /// Keeps the local states where the fleet stands.
    fn follow_every(&self, asks: &[Ask], reports: &[Report], is_taken: bool, held: &[Ask], now_us: u64) {
        let replicas = u64::from(self.fallback.replicas());
        for (ask, report) in asks.iter().zip(reports) {
            let charged = if is_taken && !ask.is_in(held) { ask.cost } else { 0 };
            if is_taken && let Some(shared) = &self.shared {
                shared.denied.outdate(&ask.key);
            }
            let left = report.remaining.div_ceil(replicas);
            self.local.follow(&ask.key, &self.share(&ask.policy), charged, left, now_us);
        }
    }

    /// Without Redis: as each rule says.
    fn decide_every_alone(&self, limits: &Limits<'_>, takes: bool, now_us: u64) -> Vec<Decision> {
        let asks = limits.asks();
        let is_closed = |ask: &Ask| match ask.policy.without_redis {
            Mode::Closed => true,
            Mode::Local => ask.cost > self.share(&ask.policy).capacity(),
            Mode::Open => false,
        };
        let is_local = |ask: &&Ask| ask.policy.without_redis == Mode::Local && !is_closed(ask);
        let takes = takes && !asks.iter().any(is_closed);
        let local: Vec<Ask> = asks.iter().filter(is_local).cloned().collect();
        let reports = match local.is_empty() {
            true => Vec::new(),
            false => self.local.decide_every(&Limits(&local), takes, now_us, |policy| self.share(policy)),
        };
        let mut reports = reports.iter();
        let decide = |(rule, ask): (usize, &Ask)| match ask.policy.without_redis {
            _ if is_closed(ask) => Decision::fixed(Verdict::Denied { retry_after: DWELL }, rule, &ask.policy),
            Mode::Local => match reports.next() {
                Some(report) => Decision { rule, ..Decision::from_report(report, &ask.policy, true) },
                None => Decision::fixed(Verdict::Allowed, rule, &ask.policy),
            },
            Mode::Open | Mode::Closed => Decision::fixed(Verdict::Allowed, rule, &ask.policy),
        };
        asks.iter().enumerate().map(decide).collect()
    }
}

fn decisions(asks: &[Ask], reports: &[Report], degraded: bool) -> Vec<Decision> {
    let each = asks.iter().zip(reports).enumerate();
    each.map(|(rule, (ask, report))| Decision { rule, ..Decision::from_report(report, &ask.policy, degraded) })
        .collect()
}
