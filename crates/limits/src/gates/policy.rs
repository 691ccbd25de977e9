//! How a target is protected: as people write it, then as the gate uses it. Pure.
//!
//! Every pass has a lease, also where nothing bounds how many there are: so a pass that is shown late or twice is known
//! for what it is.

use std::time::Duration;

use gate::{breaker, gate as joined, limiter, semaphore};
use platform::{
    config::{Invalid, Span},
    http::object,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rule::{Algorithm, Fallback};

/// Passes out at a time where a policy does not say.
const MOST_PASSES: u32 = 1_000_000;
const DEFAULT_LEASE: Duration = Duration::from_secs(60);
const DEFAULT_PASSES: u32 = 100;

/// What guards a target. A part that is absent does not guard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub struct Written {
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Circuit>,
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// How long a pass holds without `renew` (1ms to 1h); 60s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "60s")]
    pub lease: Option<Span>,
}

/// At most so many calls per time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    #[schema(example = 100, minimum = 1)]
    pub limit: u64,
    #[schema(value_type = String, example = "1s")]
    pub window: Span,
    #[serde(default)]
    pub algorithm: Algorithm,
    /// What may pass at once (token bucket, GCRA, leaky bucket); the limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub burst: Option<u64>,
    #[serde(default)]
    pub fallback: Fallback,
}

/// No calls while the target fails. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Circuit {
    /// Failures in a row that open it; 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Percentage of failed calls in the window that opens it; 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_percent: Option<u32>,
    /// Percentage of slow calls in the window that opens it; none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_percent: Option<u32>,
    /// A call that takes this long is slow; 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10s")]
    pub slow_call: Option<Span>,
    /// Calls in the window before a percentage means anything; 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_calls: Option<u32>,
    /// 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "60s")]
    pub window: Option<Span>,
    /// Replicas that must have seen trouble; 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// The first open time; each repeat doubles it; 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "30s")]
    pub open: Option<Span>,
    /// The longest open time; 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10m")]
    pub open_cap: Option<Span>,
    /// Probes in the whole fleet while half-open, and successes that close it; 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
}

/// At most so many calls at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    #[schema(example = 10, minimum = 1)]
    pub limit: u32,
}

/// A policy, checked and ready.
#[derive(Clone, Debug)]
pub struct Policy {
    pub written: Written,
    pub rate: Option<limiter::Policy>,
    pub circuit: Option<breaker::Policy>,
    pub lease: Duration,
    /// All parts, for the gate.
    pub joined: joined::Policy,
}

impl Written {
    /// For a target that nobody wrote a policy for: a circuit, and a bound on what a hanging target can pile up. No rate,
    /// because nobody knows what the target can take.
    pub fn standard() -> Written {
        let concurrency = Some(Concurrency { limit: DEFAULT_PASSES });
        let (circuit, lease) = (Some(Circuit::default()), Some(Span(DEFAULT_LEASE)));
        Written { circuit, concurrency, lease, ..Written::default() }
    }

    /// The policy, ready; the error names the field and the fix. `place` stands before the field's name.
    pub fn check(&self, place: &str) -> Result<Policy, Invalid> {
        let wrong = |field: &str, error: gate::Error| Invalid::new(format!("{place}{field}"), error.to_string());
        let lease = self.lease.map_or(DEFAULT_LEASE, |lease| lease.0);
        let rate = self.rate.as_ref().map(|rate| rate.policy(place)).transpose()?;
        let circuit = self.circuit.as_ref().map(|circuit| circuit.policy(place, lease)).transpose()?;
        let limit = self.concurrency.as_ref().map_or(MOST_PASSES, |concurrency| concurrency.limit);
        let permits = semaphore::Policy::new(limit, lease).map_err(|error| match error {
            gate::Error::Policy { field: "lease", .. } => wrong("lease", error),
            error => wrong("concurrency.limit", error),
        })?;
        let mut joined = joined::Policy::default().concurrency(permits);
        if let Some(rate) = rate {
            joined = joined.rate(rate);
        }
        if let Some(circuit) = &circuit {
            joined = joined.circuit(circuit.clone());
        }
        Ok(Policy { written: self.clone(), rate, circuit, lease, joined })
    }
}

impl Rate {
    fn policy(&self, place: &str) -> Result<limiter::Policy, Invalid> {
        let wrong = |field: &str, error: gate::Error| Invalid::new(format!("{place}rate.{field}"), error.to_string());
        let field = if self.window.0.is_zero() { "window" } else { "limit" };
        let policy = limiter::Policy::new(self.algorithm.into(), self.limit, self.window.0);
        let policy = policy.map_err(|error| wrong(field, error))?.without_redis(self.fallback.into());
        match self.burst {
            Some(burst) => policy.burst(burst).map_err(|error| wrong("burst", error)),
            None => Ok(policy),
        }
    }
}

impl Circuit {
    /// A probe is a pass, so it lives as long as one.
    fn policy(&self, place: &str, lease: Duration) -> Result<breaker::Policy, Invalid> {
        let standard = breaker::Settings::default();
        let span = |written: Option<Span>, default| written.map_or(default, |span: Span| span.0);
        let settings = breaker::Settings {
            failures: self.failures.unwrap_or(standard.failures),
            failure_percent: self.failure_percent.or(standard.failure_percent),
            slow_percent: self.slow_percent.or(standard.slow_percent),
            slow_call: span(self.slow_call, standard.slow_call),
            min_calls: self.min_calls.unwrap_or(standard.min_calls),
            window: span(self.window, standard.window),
            quorum: self.quorum.unwrap_or(standard.quorum),
            open: span(self.open, standard.open),
            open_cap: span(self.open_cap, standard.open_cap.max(span(self.open, standard.open))),
            probes: self.probes.unwrap_or(standard.probes),
            probe_lease: lease,
            longest_call: lease,
            ..standard
        };
        // It must outlive everything else about the circuit.
        let longest = settings.window.max(settings.open_cap).max(lease);
        let settings = breaker::Settings { ttl: settings.ttl.max(longest.saturating_mul(2)), ..settings };
        breaker::Policy::new(&settings).map_err(|error| {
            let field = match &error {
                gate::Error::Policy { field: "probe_lease" | "longest_call", .. } => "lease".to_owned(),
                // Only times near a month make it too long.
                gate::Error::Policy { field: "ttl", .. } => "circuit.open_cap".to_owned(),
                gate::Error::Policy { field, .. } => format!("circuit.{field}"),
                _ => "circuit".to_owned(),
            };
            Invalid::new(format!("{place}{field}"), error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Policy, Invalid> {
        serde_json::from_str::<Written>(json).unwrap().check("policy.")
    }

    #[test]
    fn every_part_may_be_absent_and_what_is_written_reads_back() {
        for json in [
            "{}",
            r#"{"circuit":{}}"#,
            r#"{"rate":{"limit":5,"window":"1s","algorithm":"gcra","burst":9,"fallback":"closed"},"circuit":{"failures":2,"open":"1h"},"concurrency":{"limit":3},"lease":"5s"}"#,
        ] {
            let policy = read(json).unwrap();
            assert_eq!(serde_json::to_string(&policy.written).unwrap(), json);
        }
        assert!(Written::standard().check("").is_ok());
        assert_eq!(read("{}").unwrap().lease, DEFAULT_LEASE);
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (json, field) in [
            (r#"{"rate":{"limit":0,"window":"1s"}}"#, "policy.rate.limit"),
            (r#"{"rate":{"limit":1,"window":"0s"}}"#, "policy.rate.window"),
            (r#"{"rate":{"limit":1,"window":"1s","algorithm":"fixed_window","burst":2}}"#, "policy.rate.burst"),
            (r#"{"circuit":{"failures":0}}"#, "policy.circuit.failures"),
            (r#"{"circuit":{"failure_percent":101}}"#, "policy.circuit.failure_percent"),
            (r#"{"circuit":{"open":"10s","open_cap":"1s"}}"#, "policy.circuit.open_cap"),
            (r#"{"circuit":{"open_cap":"60days"}}"#, "policy.circuit.open_cap"),
            (r#"{"circuit":{"probes":1000}}"#, "policy.circuit.probes"),
            (r#"{"concurrency":{"limit":0}}"#, "policy.concurrency.limit"),
            (r#"{"lease":"2h"}"#, "policy.lease"),
            (r#"{"lease":"0s","circuit":{}}"#, "policy.lease"),
        ] {
            assert_eq!(read(json).unwrap_err().key, field, "{json}");
        }
    }
}
