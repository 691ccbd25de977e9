//! Policies on the wire: into what HTTP callers write, which is checked in one place. Pure.

use std::time::Duration;

use platform::config::Span;
use tonic::Status;

use super::{
    proto::tidegate::limits::v1::{
        Policy,
        policy::{self, rate},
    },
    status::invalid,
};
use crate::{
    gates::policy::{Circuit, Concurrency, Rate, Written},
    rule::{Algorithm, Fallback},
};

/// Of the field `policy`, as every message that brings one calls it.
pub(super) fn read(policy: Policy) -> Result<Written, Status> {
    let span = |ms| Span(Duration::from_millis(ms));
    Ok(Written {
        rate: policy.rate.map(read_rate).transpose()?,
        circuit: policy.circuit.map(|circuit| Circuit {
            failures: circuit.failures,
            failure_percent: circuit.failure_percent,
            slow_percent: circuit.slow_percent,
            slow_call: circuit.slow_call_ms.map(span),
            min_calls: circuit.min_calls,
            window: circuit.window_ms.map(span),
            quorum: circuit.quorum,
            open: circuit.open_ms.map(span),
            open_cap: circuit.open_cap_ms.map(span),
            probes: circuit.probes,
        }),
        concurrency: policy.concurrency.map(|concurrency| Concurrency { limit: concurrency.limit }),
        lease: policy.lease_ms.map(span),
    })
}

fn read_rate(rate: policy::Rate) -> Result<Rate, Status> {
    let algorithm = known("policy.rate.algorithm", rate.algorithm, rate::Algorithm::as_str_name)?;
    let fallback = known("policy.rate.fallback", rate.fallback, rate::Fallback::as_str_name)?;
    Ok(Rate {
        limit: rate.limit,
        window: Span(Duration::from_millis(rate.window_ms)),
        algorithm: match algorithm {
            rate::Algorithm::Gcra => Algorithm::Gcra,
            rate::Algorithm::SlidingLog => Algorithm::SlidingLog,
            rate::Algorithm::TokenBucket => Algorithm::TokenBucket,
            rate::Algorithm::SlidingCounter => Algorithm::SlidingCounter,
            rate::Algorithm::FixedWindow => Algorithm::FixedWindow,
            rate::Algorithm::LeakyBucket => Algorithm::LeakyBucket,
        },
        burst: rate.burst,
        fallback: match fallback {
            rate::Fallback::Local => Fallback::Local,
            rate::Fallback::Open => Fallback::Open,
            rate::Fallback::Closed => Fallback::Closed,
        },
    })
}

/// The value of an enum. A number that this version does not know is a mistake: taken for the default, it would let
/// pass what its sender wants refused.
fn known<E: TryFrom<i32>>(field: &str, number: i32, name: fn(&E) -> &'static str) -> Result<E, Status> {
    E::try_from(number).map_err(|_| {
        let names: Vec<&str> = (0..).map_while(|number| E::try_from(number).ok()).map(|value| name(&value)).collect();
        invalid(field, format!("{number} is not known here: write {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(algorithm: i32, fallback: i32) -> Policy {
        let rate = policy::Rate { limit: 5, window_ms: 1_000, algorithm, burst: None, fallback };
        Policy { rate: Some(rate), ..Policy::default() }
    }

    #[test]
    fn a_number_that_is_not_known_is_no_default() {
        let wrong = read(rate(99, 0)).unwrap_err();
        assert_eq!(
            wrong.message(),
            "policy.rate.algorithm: 99 is not known here: write GCRA, SLIDING_LOG, TOKEN_BUCKET, SLIDING_COUNTER, \
             FIXED_WINDOW, LEAKY_BUCKET"
        );
        let wrong = read(rate(0, -1)).unwrap_err();
        assert_eq!(wrong.message(), "policy.rate.fallback: -1 is not known here: write LOCAL, OPEN, CLOSED");
    }
}
