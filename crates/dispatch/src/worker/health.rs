//! What outcomes say about a subscription: that it fails, that it is to be disabled, that its circuit opened or closed.
//!
//! Only changes are written, and each is told by whoever made it, as an operational event in the same commit.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use gate::breaker::{Reason, State};
use platform::problem::Chain;
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::Inner;
use crate::{
    catalog::Endpoint,
    delivery::{Next, should_disable},
    operational::{self, Kind},
    store::{Claimed, NewEvent, transition::Disable},
};

impl Inner {
    /// Writes only changes: that it fails, that it does not any more, the end.
    pub(super) async fn note_health(&self, endpoint: &Endpoint, is_success: bool, next: &Next) {
        let is_change = endpoint.health.is_news(is_success, Instant::now());
        let may_end = match next {
            Next::DisableSubscription { .. } => true,
            Next::Failed { .. } | Next::RetryAfter(_) => has_failed_for_days(endpoint),
            Next::Delivered => false,
        };
        if is_change || may_end {
            // Boxed: it is seldom needed and large, and every delivery would carry it.
            Box::pin(self.write_health(endpoint, is_success, is_change, next)).await;
        }
    }

    async fn write_health(&self, endpoint: &Endpoint, is_success: bool, is_change: bool, next: &Next) {
        let Endpoint { tenant, id, .. } = endpoint;
        let store = &self.deps.store;
        if is_change && let Err(error) = store.mark_failing(tenant, id, !is_success).await {
            // The next outcome tries again.
            endpoint.health.know(is_success);
            tracing::warn!(
                subscription = %id, error = %Chain(&error),
                "A subscription's health was not recorded; trying again."
            );
        }
        let (reason, disable) = match next {
            Next::DisableSubscription { .. } => ("the receiver answered 410 (gone)", Disable::AtOnce),
            Next::Failed { .. } | Next::RetryAfter(_) if has_failed_for_days(endpoint) => {
                ("nothing but failures for five days", Disable::IfFailing)
            }
            _ => return,
        };
        let data = json!({"subscription_id": &**id, "reason": reason});
        let raises = operational::event(&self.deps.catalog, Kind::SubscriptionDisabled, endpoint, &data);
        match store.disable_subscription(tenant, id, reason, disable, raises).await {
            Ok(true) => tracing::warn!(subscription = %id, reason, "A subscription was disabled."),
            Ok(false) => (),
            Err(error) => {
                tracing::warn!(subscription = %id, error = %Chain(&error), "A subscription was not disabled.")
            }
        }
        if let Err(error) = self.deps.catalog.refresh().await {
            tracing::warn!(error = %Chain(&error), "Subscriptions could not be read.");
        }
        self.wake.notify_one();
    }

    /// The event that tells of a delivery that was given up. One of our own is not told of.
    pub(super) fn tell_of_failure(
        &self,
        endpoint: &Endpoint,
        delivery: &Claimed,
        last_error: &Option<String>,
    ) -> Option<Box<NewEvent>> {
        if delivery.is_operational {
            return None;
        }
        let data = json!({
            "delivery_id": delivery.id,
            "event_id": delivery.event_id,
            "event_type": delivery.event_type,
            "subscription_id": &*delivery.subscription,
            "last_error": last_error,
        });
        operational::event(&self.deps.catalog, Kind::DeliveryFailed, endpoint, &data).map(Box::new)
    }

    /// Looks at the circuit when it may have changed: after a failure or a refusal while it was closed, after a success
    /// while it was open. Whoever notices first writes it down, so a replica that dies before it does is made up for.
    pub(super) async fn note_circuit(&self, endpoint: &Endpoint, is_success: bool) {
        if endpoint.is_circuit_open.load(Relaxed) == is_success && !(is_success && has_just_opened(endpoint)) {
            Box::pin(self.look_at_circuit(endpoint, is_success)).await;
        }
    }

    async fn look_at_circuit(&self, endpoint: &Endpoint, is_success: bool) {
        let view = self.deps.gate.breaker().view(&endpoint.guarded.key).await;
        let (is_open, kind) = match view.state {
            State::Open | State::HalfOpen if !is_success => (true, Kind::CircuitOpened),
            State::Closed if is_success => (false, Kind::CircuitClosed),
            _ => return,
        };
        if endpoint.is_circuit_open.swap(is_open, Relaxed) == is_open {
            return;
        }
        let Endpoint { tenant, id, .. } = endpoint;
        let retry_after_ms = u64::try_from(view.retry_after.as_millis()).unwrap_or(u64::MAX);
        let data = match kind {
            Kind::CircuitOpened => {
                json!({"subscription_id": &**id, "reason": view.reason.map(reason), "retry_after_ms": retry_after_ms})
            }
            _ => json!({"subscription_id": &**id}),
        };
        let raises = operational::event(&self.deps.catalog, kind, endpoint, &data);
        if let Err(error) = self.deps.store.mark_circuit(tenant, id, is_open, raises).await {
            // The next outcome tries again.
            endpoint.is_circuit_open.store(!is_open, Relaxed);
            tracing::warn!(
                subscription = %id, error = %Chain(&error),
                "A circuit's change was not recorded; trying again."
            );
        }
        self.wake.notify_one();
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::ConsecutiveFailures => "consecutive_failures",
        Reason::FailureRate => "failure_rate",
        Reason::SlowRate => "slow_rate",
        Reason::ProbeFailed => "probe_failed",
        Reason::Forced => "forced",
    }
}

/// A circuit is open for half a minute at least. A success sooner went past another replica's circuit, where they are not
/// shared; if it counted, two replicas would tell of opening and closing by turns, without end.
fn has_just_opened(endpoint: &Endpoint) -> bool {
    endpoint.circuit_opened_at.is_some_and(|at| OffsetDateTime::now_utc() - at < Duration::from_secs(15))
}

fn has_failed_for_days(endpoint: &Endpoint) -> bool {
    let age = endpoint.failing_since.map(|since| OffsetDateTime::now_utc() - since);
    age.and_then(|age| Duration::try_from(age).ok()).is_some_and(should_disable)
}
