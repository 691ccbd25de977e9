//! Rules as people write them, and what is wrong with them.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use gate::{fallback::Mode, limiter};
use platform::{
    config::{Invalid, Span},
    http::{Object, object},
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{Calendar, Pattern, Plan, Rule, Source};
use crate::engine::MOST_KEY_BYTES;

/// Keys with numbers of their own, in one rule.
const MOST_OVERRIDES: usize = 10_000;
/// More stars make matching slow and no rule clearer.
const MOST_STARS: usize = 8;

/// How calls are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    SlidingLog,
    TokenBucket,
    #[default]
    Gcra,
    SlidingCounter,
    FixedWindow,
    LeakyBucket,
}

impl From<Algorithm> for limiter::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingLog => limiter::Algorithm::SlidingLog,
            Algorithm::TokenBucket => limiter::Algorithm::TokenBucket,
            Algorithm::Gcra => limiter::Algorithm::Gcra,
            Algorithm::SlidingCounter => limiter::Algorithm::SlidingCounter,
            Algorithm::FixedWindow => limiter::Algorithm::FixedWindow,
            Algorithm::LeakyBucket => limiter::Algorithm::LeakyBucket,
        }
    }
}

/// What a rule does while Redis cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// Each replica decides with its share of the limit.
    #[default]
    Local,
    /// Let everything through.
    Open,
    /// Refuse everything.
    Closed,
}

impl From<Fallback> for Mode {
    fn from(fallback: Fallback) -> Self {
        match fallback {
            Fallback::Local => Mode::Local,
            Fallback::Open => Mode::Open,
            Fallback::Closed => Mode::Closed,
        }
    }
}

/// A rule as it is written in a file and in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// What answers and metrics call it. The API makes one if absent; in a file it is the key then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "login")]
    pub id: Option<String>,
    /// The key itself, or a pattern: `*` stands for any run of characters. Every key that fits is counted by itself.
    #[schema(example = "login:*")]
    pub key: String,
    /// `gcra` if absent; a calendar counts by `fixed_window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// So many per window.
    #[schema(example = 100, minimum = 1)]
    pub limit: u64,
    /// Needed, unless there is a calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1m")]
    pub window: Option<Span>,
    /// Instead of a window: a real day, week or month somewhere.
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub calendar: Option<Calendar>,
    /// What may pass at once (token bucket, GCRA, leaky bucket); the limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub burst: Option<u64>,
    /// What a call costs that does not say it; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cost: Option<u64>,
    /// Count and report, but refuse nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    #[serde(default)]
    pub fallback: Fallback,
    /// Keys of this pattern with numbers of their own.
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Override>,
}

fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Override>, D::Error> {
    let objects = BTreeMap::<String, Object<Override>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|(key, Object(own))| (key, own)).collect())
}

/// What differs for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    pub limit: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1m")]
    pub window: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

impl Written {
    /// The rule, ready, if nothing is wrong with it; the error names the field and the fix.
    pub fn check(&self, name: Arc<str>, source: Source) -> Result<Rule, Invalid> {
        let rule = self.compile(name, source)?;
        for (key, own) in &self.overrides {
            let plan = rule.overrides.get(key.as_str()).unwrap_or(&rule.plan);
            if rule.cost.get() > plan.capacity() {
                let field = if own.burst.is_some() { "burst" } else { "limit" };
                return Err(Invalid::new(format!("overrides.{key}.{field}"), never_passes(rule.cost, plan)));
            }
        }
        Ok(rule)
    }

    /// The same for a rule that was accepted before: one bad override does not take the limit from all other keys.
    pub(crate) fn compile(&self, name: Arc<str>, source: Source) -> Result<Rule, Invalid> {
        check_key("key", &self.key)?;
        if self.key.matches('*').count() > MOST_STARS {
            return Err(Invalid::new("key", format!("a pattern may have at most {MOST_STARS} stars")));
        }
        let pattern = Pattern::new(&self.key);
        let plan = self.plan("", self.limit, self.window, self.burst)?;
        let cost = NonZeroU64::new(self.cost.unwrap_or(1))
            .ok_or_else(|| Invalid::new("cost", "a call costs at least 1; to ask without paying, peek"))?;
        if cost.get() > plan.capacity() {
            return Err(Invalid::new("cost", never_passes(cost, &plan)));
        }
        if self.overrides.len() > MOST_OVERRIDES {
            return Err(Invalid::new("overrides", format!("at most {MOST_OVERRIDES}; make rules for groups of keys")));
        }
        let overrides = self.overrides.iter().map(|(key, own)| {
            let field = format!("overrides.{key}.");
            if !pattern.matches(key) {
                let problem = format!("{key:?} does not fit {:?}, so this rule never speaks for it", self.key);
                return Err(Invalid::new(field.trim_end_matches('.'), problem));
            }
            let (window, burst) = (own.window.or(self.window), own.burst.or(self.burst));
            Ok((key.as_str().into(), self.plan(&field, own.limit, window, burst)?))
        });
        let overrides = overrides.collect::<Result<_, _>>()?;
        Ok(Rule {
            json_name: serde_json::Value::from(&*name).to_string().into(),
            quoted_name: quoted(&name),
            name,
            source,
            pattern,
            cost,
            is_shadow: self.shadow,
            plan,
            overrides,
            meters: OnceLock::new(),
        })
    }

    /// How keys are counted with these numbers; `field` stands before the name of the field that is wrong.
    fn plan(&self, field: &str, limit: u64, window: Option<Span>, burst: Option<u64>) -> Result<Plan, Invalid> {
        let invalid = |name: &str, problem: String| Invalid::new(format!("{field}{name}"), problem);
        let mode = self.fallback.into();
        if let Some(calendar) = &self.calendar {
            if window.is_some() {
                return Err(invalid("window", "a calendar has its own: leave the window out".to_owned()));
            }
            if burst.is_some() {
                return Err(invalid("burst", "a calendar counts its limit and has no burst".to_owned()));
            }
            if self.algorithm.is_some_and(|algorithm| algorithm != Algorithm::FixedWindow) {
                return Err(invalid("algorithm", "a calendar counts by fixed_window: leave it out".to_owned()));
            }
            return calendar.plan(limit, mode, field);
        }
        let window = window.ok_or_else(|| invalid("window", "a window is needed, such as \"1m\"".to_owned()))?.0;
        let wrong_rate = |error: gate::Error| match error {
            gate::Error::TooSmall { field, .. } | gate::Error::TooLarge { field, .. }
                if field.starts_with("window") =>
            {
                invalid("window", error.to_string())
            }
            _ => invalid("limit", error.to_string()),
        };
        let algorithm = self.algorithm.unwrap_or_default();
        let policy = limiter::Policy::new(algorithm.into(), limit, window).map_err(wrong_rate)?;
        let policy = match burst {
            Some(burst) => policy.burst(burst).map_err(|error| invalid("burst", error.to_string()))?,
            None => policy,
        };
        Ok(Plan::Fixed(policy.without_redis(mode)))
    }
}

fn never_passes(cost: NonZeroU64, plan: &Plan) -> String {
    format!("a cost of {cost} can never pass: at most {} pass at once", plan.capacity())
}

/// As a structured field's string: printable ASCII, the rest is `?`.
fn quoted(name: &str) -> Box<str> {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted.into()
}

/// A key that can be counted.
pub(crate) fn check_key(field: &str, key: &str) -> Result<(), Invalid> {
    if key.is_empty() {
        return Err(Invalid::new(field, "a key may not be empty"));
    }
    if key.len() > MOST_KEY_BYTES {
        let problem = format!("a key may have at most {MOST_KEY_BYTES} bytes, this one has {}", key.len());
        return Err(Invalid::new(field, problem));
    }
    Ok(())
}
