//! Envoy's descriptors: which limits a request meets, and a standing for each of them in the order of the request.
//!
//! Only what is admitted is charged: if one limit refuses, none of the others is counted (Envoy ratelimit counts them
//! all; see docs/decisions/0009), also if it was only looked at. Shadow limits are counted each for itself and refuse
//! nobody.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use aws_lc_rs::digest;
use futures_util::future::join_all;
use gate::{
    Key,
    limiter::{self, Decision, Policy, Verdict},
};
use platform::config::Invalid;

use super::{Engine, MOST_KEY_BYTES, MOST_TOGETHER, Space, name};
use crate::{
    envoy::{Descriptor, Domain, Entry, Limit, Rate, Unit},
    error::Error,
    rule::Algorithm,
};

/// Where a request stands with one of its descriptors.
#[derive(Clone, Debug)]
pub enum Standing {
    /// No limit is configured, or one with another name replaces it, or it is unlimited: then with its name.
    Unlimited {
        name: Option<Arc<str>>,
        is_configured: bool,
    },
    Limited(Limited),
}

#[derive(Clone, Debug)]
pub struct Limited {
    /// The configured limit; `None` for one that the request brought along.
    pub limit: Option<Arc<Limit>>,
    pub requests_per_unit: u32,
    pub unit: Unit,
    pub decision: Decision,
}

impl Limited {
    /// Is the request over this limit? Never over a shadow.
    pub fn is_over(&self) -> bool {
        !self.decision.is_allowed() && !self.limit.as_ref().is_some_and(|limit| limit.is_shadow)
    }

    pub fn remaining(&self) -> u32 {
        u32::try_from(self.decision.remaining).unwrap_or(u32::MAX)
    }

    /// Until the limit is as if never used.
    pub fn reset_after(&self) -> Duration {
        self.decision.reset_after
    }
}

impl Standing {
    pub fn is_over(&self) -> bool {
        matches!(self, Standing::Limited(limited) if limited.is_over())
    }

    /// Was it decided without Redis?
    pub fn is_degraded(&self) -> bool {
        matches!(self, Standing::Limited(limited) if limited.decision.degraded)
    }
}

/// A limit that this request is counted by.
struct Counted {
    /// Its place in the request.
    index: usize,
    limit: Option<Arc<Limit>>,
    rate: Rate,
    key: Key,
    hits: u64,
}

impl Counted {
    /// May it refuse the request?
    fn binds(&self) -> bool {
        !self.limit.as_ref().is_some_and(|limit| limit.is_shadow)
    }

    /// Is it charged together with others? Who only looks is charged nothing.
    fn is_joint(&self) -> bool {
        self.binds() && self.hits > 0
    }
}

/// The answer of a limit of 0.
const NOTHING_PASSES: Decision =
    Decision { verdict: Verdict::Never, rule: 0, limit: 0, remaining: 0, reset_after: Duration::ZERO, degraded: false };

impl Engine {
    /// Decides over all descriptors of a request, in one step; the standings are in the order of the descriptors.
    pub async fn decide_descriptors(
        &self,
        tenant: &str,
        domain: &str,
        descriptors: &[Descriptor],
    ) -> Result<Vec<Standing>, Error> {
        if domain.is_empty() {
            return Err(Error::Empty { field: "domain" });
        }
        let book = self.inner.book.load_full();
        let known = book.envoy.get(domain).ok_or_else(|| Error::UnknownDomain { domain: domain.to_owned() })?;
        let (mut standings, counted) = self.limits_of(tenant, domain, known, descriptors)?;
        let decisions = self.decide_counted(&counted).await?;
        for (Counted { index, limit, rate, hits, .. }, decision) in counted.into_iter().zip(decisions) {
            let Rate { requests_per_unit, unit, .. } = rate;
            if let Some(limit) = limit.as_ref().filter(|_| hits > 0) {
                self.note_descriptor(tenant, domain, &descriptors[index], limit, &decision);
            }
            standings[index] = Standing::Limited(Limited { limit, requests_per_unit, unit, decision });
        }
        Ok(standings)
    }

    /// By the name of its limit, and by its own.
    fn note_descriptor(&self, tenant: &str, domain: &str, descriptor: &Descriptor, limit: &Limit, decision: &Decision) {
        let key = shown_name(domain, descriptor, limit);
        let (rule, own);
        let meters = if limit.is_detailed {
            (rule, own) = (&*key, self.inner.seen.meters(&key));
            &own
        } else {
            rule = &*limit.path;
            limit.meters.get_or_init(|| self.inner.seen.meters(rule))
        };
        self.note(tenant, &key, rule, meters, limit.is_shadow, decision);
    }

    /// The limits this request meets; every descriptor that meets none stands unlimited already.
    fn limits_of(
        &self,
        tenant: &str,
        domain: &str,
        known: &Domain,
        descriptors: &[Descriptor],
    ) -> Result<(Vec<Standing>, Vec<Counted>), Error> {
        let found: Vec<Option<&Arc<Limit>>> = descriptors
            .iter()
            .map(|descriptor| if descriptor.limit.is_some() { None } else { known.find(&descriptor.entries) })
            .collect();
        let replaced: Vec<&Arc<str>> = found.iter().flatten().flat_map(|limit| &limit.replaces).collect();
        let (mut standings, mut counted) = (Vec::with_capacity(descriptors.len()), Vec::new());
        for (index, (descriptor, found)) in descriptors.iter().zip(found).enumerate() {
            let configured = found.filter(|limit| !limit.name.as_ref().is_some_and(|name| replaced.contains(&name)));
            standings.push(Standing::Unlimited {
                name: configured.and_then(|limit| limit.name.clone()),
                is_configured: configured.is_some(),
            });
            let rate = match (descriptor.limit, configured) {
                (Some(own), _) => {
                    let rate = envoy_rate(self.inner.envoy_algorithm, own.requests_per_unit, own.unit);
                    let wrong =
                        |error: gate::Error| Invalid::new(format!("descriptors[{index}].limit"), error.to_string());
                    Some(rate.map_err(wrong)?)
                }
                (None, configured) => configured.and_then(|limit| limit.rate),
            };
            if let Some(rate) = rate {
                let key = counter(tenant, domain, descriptor, configured.map(Arc::as_ref))?;
                let hits = descriptor.hits.unwrap_or(1);
                counted.push(Counted { index, limit: configured.cloned(), rate, key, hits });
            }
        }
        Ok((standings, counted))
    }

    /// A decision for each: first those that charge nothing, then the binding ones together, shadows each for itself.
    async fn decide_counted(&self, counted: &[Counted]) -> Result<Vec<Decision>, Error> {
        // Most requests meet one limit.
        if let [Counted { key, rate: Rate { policy: Some(policy), .. }, hits, .. }] = counted {
            return Ok(vec![self.check_with(key, policy, *hits).await]);
        }
        let together = together(counted.iter().filter(|one| one.is_joint()))?;
        let looks = join_all(counted.iter().map(|one| self.look(one))).await;
        let is_refused =
            counted.iter().zip(&looks).any(|(one, look)| one.binds() && look.is_some_and(|look| !look.is_allowed()));
        let joint = if is_refused { Vec::new() } else { self.check_together(&together).await? };
        let each = counted.iter().zip(looks).map(async |(one, look)| {
            if let Some(decision) = look {
                return decision;
            }
            let Some(policy) = &one.rate.policy else { return NOTHING_PASSES };
            let Some(place) = together.iter().position(|(key, ..)| one.is_joint() && *key == one.key) else {
                return self.check_with(&one.key, policy, one.hits).await;
            };
            match joint.get(place) {
                Some(decision) => *decision,
                None => self.inner.limiter.peek(&one.key, policy, together[place].2).await,
            }
        });
        Ok(join_all(each).await)
    }

    /// What is known of a limit without charging it: all, of a limit of 0 and of one that is only looked at.
    async fn look(&self, one: &Counted) -> Option<Decision> {
        match &one.rate.policy {
            None => Some(NOTHING_PASSES),
            Some(policy) if one.hits == 0 => Some(self.check_with(&one.key, policy, 0).await),
            Some(_) => None,
        }
    }

    /// All or nothing. On a cluster the keys may live on several nodes: then what was taken is given back if another
    /// refuses, which is right in the end but not in one step.
    async fn check_together(&self, together: &[(Key, Policy, NonZeroU64)]) -> Result<Vec<Decision>, Error> {
        if together.is_empty() {
            return Ok(Vec::new());
        }
        let limiter = &self.inner.limiter;
        let asks: Vec<limiter::Ask> =
            together.iter().map(|(key, policy, cost)| limiter::Ask::new(key, policy, *cost)).collect();
        match limiter.check_every(&asks).await {
            Err(gate::Error::DifferentSlots) => {
                let asked_us = self.inner.clock.now_us();
                let each = together.iter().map(|(key, policy, cost)| limiter.check(key, policy, *cost));
                let decisions = join_all(each).await;
                if decisions.iter().any(|decision| !decision.is_allowed()) {
                    let ago = Duration::from_micros(self.inner.clock.now_us().saturating_sub(asked_us));
                    // What this replica counted alone is not in Redis.
                    let is_taken = |decision: &Decision| decision.is_allowed() && !decision.degraded;
                    let taken = together.iter().zip(&decisions).filter(|(_, decision)| is_taken(decision));
                    join_all(taken.map(|((key, policy, cost), _)| limiter.refund(key, policy, *cost, ago))).await;
                }
                Ok(decisions)
            }
            decided => Ok(decided?),
        }
    }
}

/// Descriptors that name one counter twice pay their costs together.
fn together<'a>(counted: impl Iterator<Item = &'a Counted>) -> Result<Vec<(Key, Policy, NonZeroU64)>, Error> {
    let mut together: Vec<(Key, Policy, NonZeroU64)> = Vec::new();
    for one in counted {
        let hits = NonZeroU64::new(one.hits).unwrap_or(NonZeroU64::MIN);
        match together.iter_mut().find(|(key, ..)| *key == one.key) {
            Some((_, _, cost)) => *cost = cost.saturating_add(hits.get()),
            None => together.extend(one.rate.policy.map(|policy| (one.key.clone(), policy, hits))),
        }
    }
    if together.len() > MOST_TOGETHER {
        return Err(Error::TooManyTogether { count: together.len() });
    }
    Ok(together)
}

/// How a limit of Envoy's counts.
pub(crate) fn envoy_rate(algorithm: Algorithm, requests_per_unit: u32, unit: Unit) -> Result<Rate, gate::Error> {
    let policy = match requests_per_unit {
        0 => None,
        limit => Some(Policy::new(algorithm.into(), limit.into(), unit.length())?),
    };
    Ok(Rate { requests_per_unit, unit, policy })
}

/// What a descriptor's counter is called: its domain and all of its entries. A limit that the request brings along counts apart
/// from the configured one, by its unit. A long name is counted by its hash: an error would let Envoy pass the request.
fn counter(tenant: &str, domain: &str, descriptor: &Descriptor, limit: Option<&Limit>) -> Result<Key, Error> {
    let mut text = String::with_capacity(64);
    push_part(&mut text, domain);
    for (key, value) in entries_counted(descriptor, limit) {
        push_part(&mut text, key);
        push_part(&mut text, value);
    }
    if let Some(own) = descriptor.limit {
        push_part(&mut text, &own.unit.length().as_secs().to_string());
    }
    if text.len() > MOST_KEY_BYTES {
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        text = hash.as_ref().iter().fold("#".to_owned(), |text, byte| text + &format!("{byte:02x}"));
    }
    name(tenant, Space::Envoy, &text)
}

/// What metrics and lists call a descriptor: `domain.key_value`, as Envoy ratelimit does. They keep it, so a long one
/// is cut.
fn shown_name(domain: &str, descriptor: &Descriptor, limit: &Limit) -> String {
    let mut name = domain.to_owned();
    for (key, value) in entries_counted(descriptor, Some(limit)) {
        let parts = if value.is_empty() { [".", key, "", ""] } else { [".", key, "_", value] };
        name.extend(parts);
    }
    if name.len() > MOST_KEY_BYTES {
        name.truncate(name.floor_char_boundary(MOST_KEY_BYTES - '…'.len_utf8()));
        name.push('…');
    }
    name
}

/// Keys and values as they are counted: a shared pattern stands for each of its values.
fn entries_counted<'a>(
    descriptor: &'a Descriptor,
    limit: Option<&'a Limit>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let shared = limit.map_or(&[][..], |limit| &limit.shared);
    descriptor.entries.iter().enumerate().map(|(depth, Entry { key, value })| {
        let pattern = shared.get(depth).and_then(Option::as_deref);
        (key.as_str(), pattern.unwrap_or(value))
    })
}

/// With its length before it, so that no two descriptors have one name.
fn push_part(text: &mut String, part: &str) {
    use std::fmt::Write as _;

    write!(text, "{}|{part}|", part.len()).unwrap_or_default();
}
