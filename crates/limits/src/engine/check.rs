//! Keys with rules: check, peek, reset; one at a time, many independent ones, or several all-or-nothing.

use std::{num::NonZeroU64, sync::Arc};

use futures_util::future::join_all;
use gate::limiter::{self, Decision, Policy};

use super::{Engine, Found, MOST_TOGETHER};
use crate::{
    error::Error,
    rule::Rule,
    seen::{Meters, Outcome},
};

/// Keys whose rules are found without letting others have their turn.
const AT_A_STRETCH: usize = 32;

/// One question: this key, this cost. The rule says what a call costs that does not.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub key: &'a str,
    pub cost: Option<u64>,
}

/// What is wrong with several questions, and with which of them.
#[derive(Debug)]
pub struct Wrong {
    pub index: Option<usize>,
    pub error: Error,
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Wrong { index: None, error }
    }
}

/// What the engine says about one key.
#[derive(Clone, Debug)]
pub struct Answer {
    pub rule: Arc<Rule>,
    pub policy: Policy,
    pub decision: Decision,
}

impl Answer {
    /// May it go ahead? A shadow rule refuses nobody.
    pub fn is_allowed(&self) -> bool {
        self.rule.is_shadow || self.decision.is_allowed()
    }

    /// Would it have been refused, had the rule not been a shadow?
    pub fn is_shadow_denied(&self) -> bool {
        self.rule.is_shadow && !self.decision.is_allowed()
    }
}

impl Engine {
    /// May this go ahead? If so it is counted.
    pub async fn check(&self, tenant: &str, ask: Ask<'_>) -> Result<Answer, Error> {
        let (found, cost) = self.priced(tenant, ask)?;
        let decision = self.inner.limiter.check(&found.key, &found.policy, cost).await;
        Ok(self.answer(tenant, ask.key, found, decision))
    }

    /// Could this go ahead? Counts nothing.
    pub async fn peek(&self, tenant: &str, ask: Ask<'_>) -> Result<Answer, Error> {
        let (found, cost) = self.priced(tenant, ask)?;
        let decision = self.inner.limiter.peek(&found.key, &found.policy, cost).await;
        Ok(Answer { rule: found.rule, policy: found.policy, decision })
    }

    /// Many keys, each for itself; the answers are in the order of the questions. A wrong question is an error with its
    /// place, and then nothing is counted.
    pub async fn check_each(&self, tenant: &str, asks: &[Ask<'_>]) -> Result<Vec<Answer>, Wrong> {
        let all = self.priced_all(tenant, asks).await?;
        let each = all.into_iter().zip(asks).map(async |((found, cost), ask)| {
            let decision = self.inner.limiter.check(&found.key, &found.policy, cost).await;
            self.answer(tenant, ask.key, found, decision)
        });
        Ok(join_all(each).await)
    }

    /// Several keys: all are counted, or none is. Those that refused by themselves are denied in their answers. Shadow
    /// rules are counted each for itself and refuse nobody.
    pub async fn check_all(&self, tenant: &str, asks: &[Ask<'_>]) -> Result<Vec<Answer>, Wrong> {
        if asks.len() > MOST_TOGETHER {
            return Err(Error::TooManyTogether { count: asks.len() }.into());
        }
        let all = self.priced_all(tenant, asks).await?;
        for (index, (one, _)) in all.iter().enumerate() {
            if all[..index].iter().any(|(other, _)| other.key == one.key) {
                let error = Error::SameKeyTwice { key: asks[index].key.to_owned() };
                return Err(Wrong { index: Some(index), error });
            }
        }
        let binding = all.iter().filter(|(found, _)| !found.rule.is_shadow);
        let together: Vec<limiter::Ask> =
            binding.map(|(found, cost)| limiter::Ask::new(&found.key, &found.policy, *cost)).collect();
        let mut decided = Vec::new().into_iter();
        if !together.is_empty() {
            decided = self.inner.limiter.check_every(&together).await.map_err(Error::from)?.into_iter();
        }
        let mut answers = Vec::with_capacity(all.len());
        for ((found, cost), ask) in all.into_iter().zip(asks) {
            let decision = match found.rule.is_shadow {
                false => decided.next(),
                true => None,
            };
            let decision = match decision {
                Some(decision) => decision,
                None => self.inner.limiter.check(&found.key, &found.policy, cost).await,
            };
            answers.push(self.answer(tenant, ask.key, found, decision));
        }
        Ok(answers)
    }

    async fn priced_all(&self, tenant: &str, asks: &[Ask<'_>]) -> Result<Vec<(Found, NonZeroU64)>, Wrong> {
        let mut priced = Vec::with_capacity(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            // A tenant's patterns may make this slow: others get their turn, and the deadline its chance.
            if index % AT_A_STRETCH == AT_A_STRETCH - 1 {
                tokio::task::yield_now().await;
            }
            priced.push(self.priced(tenant, *ask).map_err(|error| Wrong { index: Some(index), error })?);
        }
        Ok(priced)
    }

    /// Forgets everything counted about a key; answers whether the whole fleet did.
    pub async fn reset(&self, tenant: &str, key: &str) -> Result<bool, Error> {
        let found = self.find(tenant, key)?;
        Ok(self.inner.holds.reset(&found.key, &found.policy).await)
    }

    /// The rule of a key and what this call costs, if it can ever pass.
    pub(super) fn priced(&self, tenant: &str, ask: Ask<'_>) -> Result<(Found, NonZeroU64), Error> {
        let found = self.find(tenant, ask.key)?;
        let cost = match ask.cost {
            Some(cost) => NonZeroU64::new(cost).ok_or(Error::NoCost)?,
            None => found.rule.cost,
        };
        if cost.get() > found.policy.capacity() {
            return Err(Error::AboveCapacity {
                cost: cost.get(),
                capacity: found.policy.capacity(),
                rule: found.rule.name.as_ref().to_owned(),
            });
        }
        Ok((found, cost))
    }

    /// Words a decision, and notes it.
    pub(super) fn answer(&self, tenant: &str, key: &str, found: Found, decision: Decision) -> Answer {
        let answer = Answer { rule: found.rule, policy: found.policy, decision };
        let rule = &answer.rule;
        let meters = rule.meters.get_or_init(|| self.inner.seen.meters(&rule.name));
        self.note(tenant, key, &rule.name, meters, rule.is_shadow, &decision);
        answer
    }

    /// Counts a decision, remembers its key, and logs a sample.
    pub(super) fn note(
        &self,
        tenant: &str,
        key: &str,
        rule: &str,
        meters: &Meters,
        is_shadow: bool,
        decision: &Decision,
    ) {
        let outcome = match (decision.is_allowed(), is_shadow) {
            (true, _) => Outcome::Allowed,
            (false, false) => Outcome::Denied,
            (false, true) => Outcome::ShadowDenied,
        };
        self.inner.seen.note(tenant, key, meters, outcome);
        if self.inner.log_sample > 0.0 && fastrand::f64() < self.inner.log_sample {
            tracing::info!(
                tenant,
                key,
                rule,
                allowed = outcome != Outcome::Denied,
                shadow_denied = outcome == Outcome::ShadowDenied,
                remaining = decision.remaining,
                degraded = decision.degraded,
                "Decided over a limit."
            );
        }
    }
}
