//! Everything that is not the hot path: subscriptions and their secrets, lists, changes by hand.

use std::{sync::Arc, time::Duration};

use platform::{
    db::{Error, Row, Step, Value},
    query,
};
use serde_json::value::RawValue;
use tenancy::{audit, keep_tenant, remember_master_key, vault::sealed_with};
use time::OffsetDateTime;

use super::{
    Store,
    flights::{ALL, LOST},
    milliseconds,
};
use crate::{
    delivery::Status,
    metrics as names,
    model::{Delivery, Event, Settings, Shown},
};

/// A subscription's row, with its settings as they are used, or as they are shown.
#[derive(Clone, Debug)]
pub struct SubscriptionRow<S = Settings> {
    pub id: String,
    pub tenant: String,
    pub settings: S,
    pub enabled: bool,
    pub disabled_reason: Option<String>,
    pub failing_since: Option<OffsetDateTime>,
    /// Since when its circuit is open.
    pub circuit_opened_at: Option<OffsetDateTime>,
    pub version: i64,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// That a subscription is not what it was; its row may be one that only another version can read.
#[derive(Debug)]
pub struct Changed {
    pub id: String,
    pub tenant: String,
    pub version: i64,
    pub is_deleted: bool,
    pub row: Result<SubscriptionRow, Error>,
}

/// A sealed secret of a subscription: a signing secret (`sec_…`) or its custom headers (`headers`).
#[derive(Clone, Debug)]
pub struct SealedSecret {
    pub id: String,
    pub sealed: Vec<u8>,
    /// Of one that was replaced: until then it still signs.
    pub expires_at: Option<OffsetDateTime>,
}

/// Between two batches of many, so that others can write.
pub(crate) const AIR: Duration = Duration::from_millis(10);
/// Why a delivery waits whose subscription is switched off. Also how it is found when that is on again: the statements and
/// their index say the same.
pub(crate) const PARKED: &str = "the subscription is switched off";

/// A tenant is deleted: its subscriptions end with it, and whoever claims one of its deliveries cancels it.
pub fn end_tenant(tenant: &str) -> Vec<Step> {
    vec![
        query!("bump_version_for_all").with([tenant.into()]),
        query!("delete_subscriptions").with([tenant.into()]),
        query!("delete_secrets").with([tenant.into(), Value::Null]),
    ]
}

impl Store {
    /// `None`: there is no such tenant any more.
    pub async fn create_subscription(
        &self,
        actor: &str,
        tenant: &str,
        id: &str,
        settings: &Settings,
        enabled: bool,
        secrets: Vec<SealedSecret>,
    ) -> Result<Option<SubscriptionRow<Shown>>, Error> {
        let insert = query!("insert_subscription")
            .with([tenant.into(), id.into(), json(settings), Value::Bool(enabled)])
            .must_match();
        let mut steps = vec![keep_tenant(tenant), bump(), insert, audit(tenant, actor, "subscription.created", id)];
        steps.extend(insert_secrets(tenant, id, &secrets));
        let rows = self.database.transact_all(steps).await?;
        Ok(rows.and_then(|rows| first(&rows[2], shown)))
    }

    /// `enabled` is given where someone switches it by hand. `None`: it has changed since `before`, or is gone.
    pub async fn update_subscription(
        &self,
        actor: &str,
        before: &SubscriptionRow,
        settings: &Settings,
        enabled: Option<bool>,
        secrets: Vec<SealedSecret>,
    ) -> Result<Option<SubscriptionRow<Shown>>, Error> {
        let enabled = enabled.map_or(Value::Null, Value::Bool);
        let (tenant, id) = (before.tenant.as_str(), before.id.as_str());
        let values = [tenant.into(), id.into(), json(settings), enabled, before.version.into()];
        let update = query!("update_subscription").with(values).must_match();
        let mut steps = vec![bump(), update, audit(tenant, actor, "subscription.changed", id)];
        steps.extend(insert_secrets(tenant, id, &secrets));
        let rows = self.database.transact_all(steps).await?;
        Ok(rows.and_then(|rows| first(&rows[1], shown)))
    }

    /// Pauses or resumes it, by hand.
    pub async fn switch_subscription(
        &self,
        actor: &str,
        tenant: &str,
        id: &str,
        is_on: bool,
    ) -> Result<Option<SubscriptionRow<Shown>>, Error> {
        let switch = query!("switch_subscription").with([tenant.into(), id.into(), Value::Bool(is_on)]).must_match();
        let action = if is_on { "subscription.resumed" } else { "subscription.paused" };
        let rows = self.database.transact([bump(), switch, audit(tenant, actor, action, id)]).await?;
        Ok(rows.and_then(|[_, rows, _]| first(&rows, shown)))
    }

    /// What is parked for a subscription behind `after` may go, a thousand at a time. Returns the last of them.
    pub async fn resume(&self, tenant: &str, id: &str, after: &str) -> Result<Option<String>, Error> {
        let step = query!("resume_deliveries").with([tenant.into(), id.into(), after.into()]);
        let rows = self.database.transact([step]).await?;
        Ok(rows.iter().flatten().flatten().map(|row| row.text("id")).max())
    }

    /// Tenant and id of subscriptions that are on, and for which something is parked all the same.
    pub async fn parked_though_on(&self) -> Result<Vec<(Arc<str>, Arc<str>)>, Error> {
        let rows = self.database.fetch(query!("parked_though_on").with([])).await?;
        Ok(rows.iter().map(|row| (row.text("tenant_id").into(), row.text("id").into())).collect())
    }

    /// Deletes it; false if there is none. What waits for it is cancelled afterwards, or when it is due.
    pub async fn delete_subscription(&self, actor: &str, tenant: &str, id: &str) -> Result<bool, Error> {
        let delete = query!("delete_subscription").with([tenant.into(), id.into()]).must_match();
        let secrets = query!("delete_secrets").with([tenant.into(), id.into()]);
        let entry = audit(tenant, actor, "subscription.deleted", id);
        Ok(self.database.transact([bump(), delete, secrets, entry]).await?.is_some())
    }

    /// Cancels what waits for a subscription that is gone. A thousand rows at a time: there may be millions.
    pub async fn cancel_all_of(&self, tenant: &str, id: &str) -> Result<(), Error> {
        self.land_some(ALL).await?;
        self.file().await;
        let mut after = String::new();
        loop {
            let next = query!("next_of_subscription").with([tenant.into(), id.into(), after.as_str().into()]);
            let rows = self.database.fetch(next).await?;
            let Some(last) = rows.first().and_then(|row| row.optional_text("last")) else { return Ok(()) };
            let values = [tenant.into(), id.into(), after.as_str().into(), last.as_str().into()];
            let cancelled = self.database.transact([query!("cancel_deliveries").with(values)]).await?;
            let count = cancelled.iter().flatten().flatten().count() as u64;
            metrics::counter!(names::DELIVERIES, "result" => Status::Cancelled.as_str()).increment(count);
            after = last;
            tokio::time::sleep(AIR).await;
        }
    }

    /// As it is shown, also where this version cannot read it.
    pub async fn subscription(&self, tenant: &str, id: &str) -> Result<Option<SubscriptionRow<Shown>>, Error> {
        let rows = self.database.fetch(query!("get_subscription").with([tenant.into(), id.into()])).await?;
        Ok(first(&rows, shown))
    }

    /// To work with: one that this version cannot read is an error.
    pub async fn readable_subscription(&self, tenant: &str, id: &str) -> Result<Option<SubscriptionRow>, Error> {
        let rows = self.database.fetch(query!("get_subscription").with([tenant.into(), id.into()])).await?;
        first(&rows, subscription).transpose()
    }

    pub async fn subscriptions(
        &self,
        tenant: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<SubscriptionRow<Shown>>, Error> {
        let rows =
            self.database.fetch(query!("list_subscriptions").with([tenant.into(), after.into(), limit.into()])).await?;
        Ok(rows.iter().map(shown).collect())
    }

    /// Up to 1,000 rows that changed after `version`, the earliest change first.
    pub async fn changed_subscriptions(&self, version: i64) -> Result<Vec<Changed>, Error> {
        let rows = self.database.fetch(query!("changed_subscriptions").with([version.into()])).await?;
        let changed = |row: &Row| Changed {
            id: row.text("id"),
            tenant: row.text("tenant_id"),
            version: row.int("version"),
            is_deleted: row.optional_time("deleted_at").is_some(),
            row: subscription(row),
        };
        Ok(rows.iter().map(changed).collect())
    }

    pub async fn subscription_version(&self) -> Result<i64, Error> {
        let rows = self.database.fetch(query!("current_version").with([])).await?;
        Ok(rows.first().map_or(0, |row| row.int("version")))
    }

    /// The secrets of these subscriptions that are in force, each with its subscription, the newest first.
    pub async fn secrets(&self, tenant: &str, ids: &[&str]) -> Result<Vec<(String, SealedSecret)>, Error> {
        let ids = Value::Text(serde_json::to_string(ids).expect("ids are plain text"));
        let rows = self.database.fetch(query!("secrets_of").with([tenant.into(), ids])).await?;
        let secret = |row: &Row| SealedSecret {
            id: row.text("id"),
            sealed: row.bytes("sealed"),
            expires_at: row.optional_time("expires_at"),
        };
        Ok(rows.iter().map(|row| (row.text("subscription_id"), secret(row))).collect())
    }

    /// Puts these secrets and keys first; the others still sign for the overlap. `None`: it has changed since `before`, or
    /// is gone.
    pub async fn rotate(
        &self,
        actor: &str,
        before: &SubscriptionRow,
        secrets: Vec<SealedSecret>,
        overlap: Duration,
    ) -> Result<Option<SubscriptionRow<Shown>>, Error> {
        let (tenant, id) = (before.tenant.as_str(), before.id.as_str());
        let touch = query!("touch_subscription").with([tenant.into(), id.into(), before.version.into()]).must_match();
        let expire = query!("expire_secrets").with([tenant.into(), id.into(), milliseconds(overlap).into()]);
        let mut steps = vec![bump(), touch, expire, audit(tenant, actor, "subscription.rotated", id)];
        steps.extend(insert_secrets(tenant, id, &secrets));
        let rows = self.database.transact_all(steps).await?;
        Ok(rows.and_then(|rows| first(&rows[1], shown)))
    }

    /// Notes that it fails, or that it does not any more.
    pub async fn mark_failing(&self, tenant: &str, id: &str, is_failing: bool) -> Result<(), Error> {
        let query = if is_failing { query!("mark_failing") } else { query!("clear_failing") };
        self.database.transact([bump(), query.with([tenant.into(), id.into()]).must_match()]).await.map(drop)
    }

    pub async fn event(&self, tenant: &str, id: &str) -> Result<Option<Event>, Error> {
        let rows = self.database.fetch(query!("get_event").with([tenant.into(), id.into()])).await?;
        let Some(mut event) = first(&rows, event) else { return Ok(None) };
        self.land().await;
        let statuses = self.database.fetch(query!("statuses_of_event").with([event.uid.as_str().into()])).await?;
        event.status = most_urgent(statuses.iter().filter_map(|row| Status::parse(&row.text("status"))));
        Ok(Some(event))
    }

    pub async fn delivery(&self, tenant: &str, id: &str) -> Result<Option<Delivery>, Error> {
        let find = || self.database.fetch(query!("get_delivery").with([tenant.into(), id.into()]));
        if let Some(found) = first(&find().await?, delivery) {
            return Ok(Some(found));
        }
        self.land().await;
        Ok(first(&find().await?, delivery))
    }

    /// One more attempt now; false if it is being attempted, or there is none.
    pub async fn retry(&self, tenant: &str, delivery: &str) -> Result<bool, Error> {
        self.land_some(ALL).await?;
        let step = query!("retry_delivery").with([tenant.into(), delivery.into()]).must_match();
        Ok(self.database.transact([step]).await?.is_some())
    }

    /// Ends it; false if it has ended already, or there is none.
    pub async fn cancel(&self, tenant: &str, delivery: &str) -> Result<bool, Error> {
        self.land_some(ALL).await?;
        let cancel = query!("cancel_delivery").with([tenant.into(), delivery.into()]).must_match();
        if self.database.transact([cancel]).await?.is_none() {
            return Ok(false);
        }
        self.move_lines_on(&[delivery]).await?;
        Ok(true)
    }

    /// These have ended, and that is committed: what stands behind them in their lines may go.
    pub(super) async fn move_lines_on(&self, ended: &[impl AsRef<str> + Sync]) -> Result<(), Error> {
        let ended: Vec<&str> = ended.iter().map(AsRef::as_ref).collect();
        let ended = Value::Text(serde_json::Value::from(ended).to_string());
        self.database.transact([query!("next_in_line").with([ended])]).await.map(drop)
    }

    /// How long until something is due; `None` when nothing waits.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        let rows = self.database.fetch(query!("next_due").with([])).await?;
        let ms = rows.first().and_then(|row| row.optional_int("due_in_ms"));
        Ok(ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
    }

    /// How long the oldest delivery has waited for an attempt; zero when none waits.
    pub async fn lag(&self) -> Result<Duration, Error> {
        let rows = self.database.fetch(query!("delivery_lag").with([])).await?;
        let ms = rows.first().and_then(|row| row.optional_int("lag_ms")).unwrap_or(0);
        Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
    }

    /// Makes due what nobody would ever take: rows that wait for no time, and leases longer than any can be. Returns how
    /// many there were.
    pub async fn rescue(&self, longest_lease: Duration) -> Result<u64, Error> {
        self.land_some(LOST).await?;
        let (mut rescued, longest) = (0, milliseconds(longest_lease));
        loop {
            // Looked for beside the writer of SQLite, which does not wait for it.
            let far = self.database.fetch(query!("far_leases").with([longest.into()])).await?;
            let far: Vec<String> = far.iter().map(|row| row.text("id")).collect();
            let far = Value::Text(serde_json::Value::from(far).to_string());
            let steps = [query!("rescue_lost").with([]), query!("rescue_leases").with([longest.into(), far])];
            let rows = self.database.transact(steps).await?;
            let found: usize = rows.iter().flatten().map(Vec::len).sum();
            rescued += found as u64;
            if found == 0 {
                return Ok(rescued);
            }
        }
    }

    /// Gives back every lease of an owner that leaves.
    pub async fn release(&self, owner: &str) -> Result<(), Error> {
        self.land_some(owner).await?;
        self.database.transact([query!("release_leases").with([owner.into()])]).await.map(drop)
    }

    pub async fn ping(&self) -> Result<(), Error> {
        self.database.ping().await
    }
}

/// The row lock that all changes to subscriptions take, one after the other.
pub(super) fn bump() -> Step {
    query!("bump_version").with([])
}

fn insert_secrets(tenant: &str, subscription: &str, secrets: &[SealedSecret]) -> Vec<Step> {
    let insert = |secret: &SealedSecret| {
        let values = [tenant.into(), subscription.into(), secret.id.as_str().into(), secret.sealed.as_slice().into()];
        query!("insert_secret").with(values)
    };
    // All of them were sealed just now, with the same one.
    let master_key = secrets.first().and_then(|secret| sealed_with(&secret.sealed));
    let remember = master_key.map(|id| remember_master_key(&id.to_string()));
    remember.into_iter().chain(secrets.iter().map(insert)).collect()
}

fn json(settings: &Settings) -> Value {
    Value::Text(serde_json::to_string(settings).expect("settings are plain data"))
}

fn first<T>(rows: &[Row], read: impl Fn(&Row) -> T) -> Option<T> {
    rows.first().map(read)
}

/// Settings that this version does not know may be a newer one's, which runs beside it or ran before it.
fn subscription(row: &Row) -> Result<SubscriptionRow, Error> {
    let settings = serde_json::from_str(&row.text("settings"))
        .map_err(|error| Error::Unreadable(format!("the subscription {:?}", row.text("id")), error))?;
    Ok(subscription_with(row, settings))
}

fn shown(row: &Row) -> SubscriptionRow<Shown> {
    let stored = row.text("settings");
    let settings = serde_json::from_str(&stored).map_or_else(|_| Shown::foreign(&stored), Shown::Known);
    subscription_with(row, settings)
}

fn subscription_with<S>(row: &Row, settings: S) -> SubscriptionRow<S> {
    SubscriptionRow {
        id: row.text("id"),
        tenant: row.text("tenant_id"),
        settings,
        enabled: row.flag("enabled"),
        disabled_reason: row.optional_text("disabled_reason"),
        failing_since: row.optional_time("failing_since"),
        circuit_opened_at: row.optional_time("circuit_opened_at"),
        version: row.int("version"),
        created_at: row.time("created_at"),
        updated_at: row.time("updated_at"),
    }
}

pub(super) fn event(row: &Row) -> Event {
    Event {
        id: row.text("id"),
        event_type: row.text("type"),
        data: RawValue::from_string(row.text("data")).expect("data was read as JSON"),
        source: row.optional_text("source"),
        ordering_key: row.optional_text("ordering_key"),
        deliver_at: row.optional_time("deliver_at"),
        status: "queued",
        queued_in: None,
        created_at: row.time("created_at"),
        uid: row.text("uid"),
    }
}

pub(super) fn delivery(row: &Row) -> Delivery {
    let status = Status::parse(&row.text("status")).unwrap_or(Status::Pending);
    Delivery {
        id: row.text("id"),
        event_id: row.text("event_id"),
        event_type: row.text("event_type"),
        subscription_id: row.text("subscription_id"),
        status,
        attempts: row.int("attempts"),
        deferrals: row.int("deferrals"),
        // While it is processed, due_at is the end of the lease, which is nobody's next attempt.
        next_attempt_at: if status == Status::Processing { None } else { row.optional_time("due_at") },
        last_error: row.optional_text("last_error"),
        created_at: row.time("created_at"),
        updated_at: row.time("updated_at"),
    }
}

/// What an operator should look at first.
pub(super) fn most_urgent(statuses: impl Iterator<Item = Status>) -> &'static str {
    const URGENCY: [Status; 7] = [
        Status::Failed,
        Status::Retrying,
        Status::Throttled,
        Status::Processing,
        Status::Pending,
        Status::Cancelled,
        Status::Delivered,
    ];
    let rank = |status: Status| URGENCY.iter().position(|urgent| *urgent == status);
    statuses.min_by_key(|status| rank(*status)).map_or("unmatched", Status::as_str)
}
