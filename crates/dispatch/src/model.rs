//! Events, subscriptions, deliveries and attempts as callers see them.

use std::{collections::BTreeMap, time::Duration};

use platform::config::Span;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{
    delivery::{RetrySchedule, Status},
    tls::TlsView,
};

/// What a subscription is set to. Everything but its secrets; stored as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Settings {
    /// Where events go. Redirects are not followed.
    #[schema(example = "https://example.com/hooks")]
    pub url: String,
    /// Globs over event types: `*` is one segment, `**` any number.
    #[schema(example = json!(["order.*", "invoice.paid"]))]
    pub event_types: Vec<String>,
    /// Conditions on the payload; absent: every payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({"data.amount": {"gte": 100}}))]
    pub filter: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Calls per second at most, over the whole fleet.
    #[schema(example = 100)]
    pub rate_limit: u32,
    /// Calls at one time at most, over the whole fleet.
    #[schema(example = 100)]
    pub max_concurrency: u32,
    /// For one whole call, from name look-up to the last byte of the answer.
    #[schema(value_type = String, example = "15s")]
    pub timeout: Span,
    /// Waits between attempts.
    pub retry_schedule: RetrySchedule,
    pub ordering: Ordering,
    /// How calls are signed: `v1` (HMAC) always, `v1a` (Ed25519) too where it is asked for.
    #[serde(default)]
    pub signatures: Signatures,
}

/// How calls are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Signatures {
    /// With the shared secret.
    #[default]
    #[serde(rename = "v1")]
    Symmetric,
    /// With the shared secret and a private key whose public half receivers may know.
    #[serde(rename = "v1+v1a")]
    Both,
}

/// Whether deliveries may overtake each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    #[default]
    None,
    /// First in, first out per ordering key of the events: a failing one holds back those behind it with its key.
    Key,
}

impl Settings {
    /// As they are written and shown.
    const NAMES: [&str; 10] = [
        "url",
        "event_types",
        "filter",
        "description",
        "rate_limit",
        "max_concurrency",
        "timeout",
        "retry_schedule",
        "ordering",
        "signatures",
    ];
    pub const DEFAULT_RATE: u32 = 100;
    pub const DEFAULT_CONCURRENCY: u32 = 100;
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
}

/// Settings as they are shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Shown {
    Known(Settings),
    /// Another version wrote them, and this one cannot read them all: as they are stored, in the names that it knows.
    Foreign(Map<String, Value>),
}

impl Shown {
    pub fn foreign(stored: &str) -> Self {
        let mut settings: Map<String, Value> = serde_json::from_str(stored).unwrap_or_default();
        settings.retain(|name, _| Settings::NAMES.contains(&name.as_str()));
        Shown::Foreign(settings)
    }
}

/// Where an operator's events go.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Subscription {
    #[schema(example = "sub_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    #[serde(flatten)]
    #[schema(value_type = Settings)]
    pub settings: Shown,
    /// Sent with every call; values are hidden (`***`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Its own authority and client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsView>,
    pub state: Standing,
    pub enabled: bool,
    /// Why Tidegate switched it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// When the present run of failures began.
    #[serde(with = "platform::moment::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub failing_since: Option<OffsetDateTime>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: OffsetDateTime,
    /// What `v1a` signatures are verified with; no secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["whpk_…"]))]
    pub public_keys: Vec<String>,
    /// The signing secret: shown when it is made, never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "whsec_…")]
    pub secret: Option<String>,
    /// Its circuit, its calls and what is left of its rate; only where one subscription is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateView>,
}

/// What the limits of a subscription let through right now, over the whole fleet.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct GateView {
    /// `closed` lets calls pass, `open` does not, `half_open` lets a few find out.
    #[schema(example = "closed")]
    pub circuit: &'static str,
    /// Failures in a row.
    pub failures: u32,
    /// Until the circuit lets the next call try.
    pub retry_after_ms: u64,
    /// Calls that run now.
    pub calls: u32,
    pub max_concurrency: u32,
    pub rate_limit: u32,
    /// Calls left in the present second.
    pub rate_remaining: u64,
    /// Redis does not answer; this is what this replica knows.
    pub degraded: bool,
}

/// Does a subscription get events?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Active,
    /// By hand: nothing is sent, and what comes in waits for it.
    Paused,
    /// By Tidegate, because its receiver is gone or has failed for days: what comes in is not for it.
    Disabled,
    /// The process that answers cannot call it, as its log says: another version wrote it, another master key sealed its
    /// secrets, or its URL is refused here. What comes in waits for one that can.
    Unusable,
}

impl Standing {
    /// A reason is written only by Tidegate itself.
    pub fn of(is_enabled: bool, disabled_reason: Option<&str>) -> Standing {
        match (is_enabled, disabled_reason) {
            (true, _) => Standing::Active,
            (false, None) => Standing::Paused,
            (false, Some(_)) => Standing::Disabled,
        }
    }
}

/// An event as it is known here.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event {
    #[schema(example = "evt_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    #[serde(rename = "type")]
    #[schema(example = "order.created")]
    pub event_type: String,
    /// Any JSON.
    #[schema(value_type = Value)]
    pub data: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    #[serde(with = "platform::moment::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deliver_at: Option<OffsetDateTime>,
    /// The most urgent of its deliveries' statuses; `queued` right after intake, `unmatched` if nobody wanted it.
    #[schema(example = "delivered")]
    pub status: &'static str,
    /// Where it waits, if that is not where events usually do: `database` while Kafka is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_in: Option<&'static str>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(skip)]
    pub uid: String,
}

/// One event on its way to one subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Delivery {
    #[schema(example = "dlv_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    pub event_id: String,
    pub event_type: String,
    pub subscription_id: String,
    pub status: Status,
    /// Calls made.
    pub attempts: i64,
    /// Times it was put off by a limit; these spend no attempt.
    pub deferrals: i64,
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_attempt_at: Option<OffsetDateTime>,
    pub last_error: Option<String>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: OffsetDateTime,
}

/// One call.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Attempt {
    #[schema(example = "att_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    pub number: i64,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: OffsetDateTime,
    pub duration_ms: i64,
    pub response_status: Option<i64>,
    #[schema(value_type = Option<Object>)]
    pub response_headers: Option<Box<RawValue>>,
    /// The first 16 KiB, as text.
    pub response_body: Option<String>,
    pub error: Option<AttemptError>,
}

impl Attempt {
    /// How much of it the receiver wrote.
    pub fn answer_bytes(&self) -> usize {
        let headers = self.response_headers.as_ref().map_or(0, |json| json.get().len());
        headers + self.response_body.as_ref().map_or(0, String::len)
    }
}

/// One call, and the delivery it was made for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FoundAttempt {
    pub delivery_id: String,
    pub event_id: String,
    pub event_type: String,
    pub subscription_id: String,
    #[serde(flatten)]
    pub attempt: Attempt,
}

impl FoundAttempt {
    pub fn new(delivery: &Delivery, attempt: Attempt) -> Self {
        let Delivery { id, event_id, event_type, subscription_id, .. } = delivery.clone();
        FoundAttempt { delivery_id: id, event_id, event_type, subscription_id, attempt }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AttemptError {
    /// A bounded word, for programs.
    #[schema(example = "timeout")]
    pub class: String,
    /// One sentence, for people.
    pub sentence: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_setting_is_shown_also_where_another_version_wrote_it() {
        let written = json!({
            "url": "https://example.com/", "event_types": ["**"], "filter": {"id": "x"}, "description": "d", "rate_limit": 1,
            "max_concurrency": 1, "timeout": "1s", "retry_schedule": [], "ordering": "key", "signatures": "v1+v1a",
        });
        let settings: Settings = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(Shown::Known(settings)).unwrap(), written);
        let Shown::Foreign(shown) = Shown::foreign(&written.to_string()) else { panic!("they are foreign") };
        assert_eq!(Value::from(shown), written);
    }

    #[test]
    fn what_only_another_version_knows_takes_no_name_of_ours() {
        let stored = r#"{"url": ["https://a.example/"], "state": "active", "id": "other", "new": 1}"#;
        let shown = serde_json::to_value(Shown::foreign(stored)).unwrap();
        assert_eq!(shown, json!({"url": ["https://a.example/"]}));
        assert_eq!(serde_json::to_value(Shown::foreign("nonsense")).unwrap(), json!({}));
    }
}
