//! Policies on the wire: into what HTTP callers write, which is checked in one place, and back. Pure.

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
    gates::{
        milliseconds,
        policy::{Circuit, Concurrency, Rate, Written},
    },
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

pub(super) fn show(written: &Written) -> Policy {
    let ms = |span: Span| milliseconds(span.0);
    Policy {
        rate: written.rate.as_ref().map(show_rate),
        circuit: written.circuit.as_ref().map(|circuit| policy::Circuit {
            failures: circuit.failures,
            failure_percent: circuit.failure_percent,
            slow_percent: circuit.slow_percent,
            slow_call_ms: circuit.slow_call.map(ms),
            min_calls: circuit.min_calls,
            window_ms: circuit.window.map(ms),
            quorum: circuit.quorum,
            open_ms: circuit.open.map(ms),
            open_cap_ms: circuit.open_cap.map(ms),
            probes: circuit.probes,
        }),
        concurrency: written.concurrency.as_ref().map(|concurrency| policy::Concurrency { limit: concurrency.limit }),
        lease_ms: written.lease.map(ms),
    }
}

fn show_rate(rate: &Rate) -> policy::Rate {
    let algorithm = match rate.algorithm {
        Algorithm::Gcra => rate::Algorithm::Gcra,
        Algorithm::SlidingLog => rate::Algorithm::SlidingLog,
        Algorithm::TokenBucket => rate::Algorithm::TokenBucket,
        Algorithm::SlidingCounter => rate::Algorithm::SlidingCounter,
        Algorithm::FixedWindow => rate::Algorithm::FixedWindow,
        Algorithm::LeakyBucket => rate::Algorithm::LeakyBucket,
    };
    let fallback = match rate.fallback {
        Fallback::Local => rate::Fallback::Local,
        Fallback::Open => rate::Fallback::Open,
        Fallback::Closed => rate::Fallback::Closed,
    };
    policy::Rate {
        limit: rate.limit,
        window_ms: milliseconds(rate.window.0),
        algorithm: algorithm.into(),
        burst: rate.burst,
        fallback: fallback.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(algorithm: i32, fallback: i32) -> Policy {
        let rate = policy::Rate { limit: 5, window_ms: 1_000, algorithm, burst: None, fallback };
        Policy { rate: Some(rate), ..Policy::default() }
    }

    #[test]
    fn what_is_read_is_shown_as_it_came() {
        for (algorithm, fallback) in [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)] {
            let policy = rate(algorithm, fallback);
            assert_eq!(show(&read(policy).unwrap()), policy);
        }
        let circuit = policy::Circuit {
            failures: Some(1),
            failure_percent: Some(2),
            slow_percent: Some(3),
            slow_call_ms: Some(4),
            min_calls: Some(5),
            window_ms: Some(6),
            quorum: Some(7),
            open_ms: Some(8),
            open_cap_ms: Some(9),
            probes: Some(10),
        };
        let concurrency = Some(policy::Concurrency { limit: 11 });
        let policy = Policy { rate: None, circuit: Some(circuit), concurrency, lease_ms: Some(12) };
        assert_eq!(show(&read(policy).unwrap()), policy);
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
