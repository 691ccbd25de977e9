//! `/v1/subscriptions`: where events go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode};
use platform::{
    config::{Invalid, Span},
    db,
    http::{Json, Page, PageQuery, Path, Query, cursor_of_chosen, object},
    http_client::{Reachable, Target},
    id,
    problem::{Chain, Problem},
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use utoipa::ToSchema;

use super::operate::gate_of;
use crate::{
    Dispatch,
    catalog::{Endpoint, OpenSecrets, header},
    delivery::{Filter, MAX_LIVE, Matcher, RetrySchedule, SigningSecret, Written},
    error::Error,
    guard::Guarded,
    model::{Ordering, Settings, Shown, Signatures, Standing, Subscription},
    store::records::SubscriptionRow,
    tls::Tls,
};

/// Of a description.
const LONGEST_DESCRIPTION: usize = 1000;
const MOST_HEADERS: usize = 50;
/// In place of a header's value.
const HIDDEN: &str = "***";
/// Each try that fails is another's that succeeded.
pub(super) const MOST_TRIES: usize = 50;

/// A subscription as it is sent in: to create one, `url` and `event_types` are needed; to change one, what changes.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscriptionIn {
    /// Chosen by you (lower-case letters, digits, `-` and `_`), or made here.
    #[schema(min_length = 1, max_length = 64)]
    id: Option<String>,
    #[schema(example = "https://example.com/hooks", max_length = 2048)]
    url: Option<String>,
    /// Globs over event types: `*` is one segment, `**` any number.
    #[schema(example = json!(["order.*"]), min_items = 1, max_items = 100)]
    event_types: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Written>)]
    filter: Option<Option<Written>>,
    #[serde(default, deserialize_with = "present")]
    /// At most 1000 bytes.
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// Sent with every call, at most 50. Kept sealed, shown only as names; in a change the value `***` keeps the one that is there.
    headers: Option<BTreeMap<String, String>>,
    /// An authority or a client certificate of its own; `null` takes them away.
    #[serde(default, deserialize_with = "present_object")]
    #[schema(value_type = Option<Tls>)]
    tls: Option<Option<Tls>>,
    /// Calls per second at most.
    #[schema(example = 100, minimum = 1, maximum = 10_000)]
    rate_limit: Option<u32>,
    /// Calls at one time at most.
    #[schema(example = 100, minimum = 1, maximum = 10_000)]
    max_concurrency: Option<u32>,
    /// For one whole call, `100ms` to `30s`.
    #[schema(value_type = Option<String>, example = "15s")]
    timeout: Option<Span>,
    /// Waits between attempts, each `1ms` to `7days`. None: one attempt.
    #[schema(value_type = Option<Vec<String>>, max_items = 20, example = json!(["5s", "5m", "30m"]))]
    retry_schedule: Option<RetrySchedule>,
    ordering: Option<Ordering>,
    signatures: Option<Signatures>,
    /// `false` pauses it, as `POST …/pause` does.
    enabled: Option<bool>,
    /// Your own signing secret (`whsec_…`); made here if absent. Only when creating.
    secret: Option<String>,
}

/// Tells `null` (take it away) from absent (leave it).
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn present_object<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    object(deserializer).map(Some)
}

impl SubscriptionIn {
    /// The settings with these changes, checked.
    fn apply(&self, settings: Settings, reachable: &Reachable) -> Result<Settings, Error> {
        let settings = Settings {
            url: self.url.clone().unwrap_or(settings.url),
            event_types: self.event_types.clone().unwrap_or(settings.event_types),
            filter: self.filter.clone().map_or(settings.filter, |written| written.map(|Written(json)| json)),
            description: self.description.clone().unwrap_or(settings.description),
            rate_limit: self.rate_limit.unwrap_or(settings.rate_limit),
            max_concurrency: self.max_concurrency.unwrap_or(settings.max_concurrency),
            timeout: self.timeout.unwrap_or(settings.timeout),
            retry_schedule: self.retry_schedule.clone().unwrap_or(settings.retry_schedule),
            ordering: self.ordering.unwrap_or(settings.ordering),
            signatures: self.signatures.unwrap_or(settings.signatures),
        };
        Target::parse(&settings.url, reachable)?;
        if let Some(Some(description)) = &self.description
            && description.len() > LONGEST_DESCRIPTION
        {
            return Err(Invalid::new("description", format!("it has at most {LONGEST_DESCRIPTION} bytes")).into());
        }
        Matcher::parse("event_types", &settings.event_types)?;
        if let Some(filter) = &settings.filter {
            Filter::new("filter", filter)?;
        }
        settings.timeout.within("timeout", Duration::from_millis(100), Duration::from_secs(30))?;
        for (field, value, most) in
            [("rate_limit", settings.rate_limit, 10_000), ("max_concurrency", settings.max_concurrency, 10_000)]
        {
            if value == 0 || value > most {
                return Err(Invalid::new(field, format!("{value} is out of range: use 1 to {most}")).into());
            }
        }
        Guarded::new("", "x", settings.rate_limit, settings.max_concurrency)?;
        Ok(settings)
    }

    /// `before`, or what was sent in its place, checked. A value that was shown as hidden stays what it was.
    fn checked_headers(&self, before: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Error> {
        let Some(mut headers) = self.headers.clone() else { return Ok(before) };
        if headers.len() > MOST_HEADERS {
            return Err(Invalid::new("headers", format!("at most {MOST_HEADERS} headers")).into());
        }
        for (name, value) in headers.iter_mut().filter(|(_, value)| *value == HIDDEN) {
            let kept = before.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let fix = "*** stands for the value that is there, and there is none: write the value";
            *value = kept.ok_or_else(|| Invalid::new(format!("headers.{name}"), fix))?.1.clone();
        }
        for (name, value) in &headers {
            header(name, value)?;
            if headers.keys().any(|other| other < name && other.eq_ignore_ascii_case(name)) {
                let problem = "it is there already in other letters: names of headers are the same in either case";
                return Err(Invalid::new(format!("headers.{name}"), problem).into());
            }
        }
        Ok(headers)
    }

    /// `before`, or what was sent in its place, checked.
    fn checked_tls(&self, before: Option<Tls>, url: &str, reachable: &Reachable) -> Result<Option<Tls>, Error> {
        let tls = self.tls.clone().unwrap_or(before);
        if let Some(tls) = &tls {
            tls.identity()?;
            // Checked before, and its scheme may be in any letters.
            if !Target::parse(url, reachable)?.is_https() {
                let fix = "it has no use without an https URL: change the url, or take tls away with null";
                return Err(Invalid::new("tls", fix).into());
            }
        }
        Ok(tls)
    }
}

fn defaults() -> Settings {
    Settings {
        url: String::new(),
        event_types: Vec::new(),
        filter: None,
        description: None,
        rate_limit: Settings::DEFAULT_RATE,
        max_concurrency: Settings::DEFAULT_CONCURRENCY,
        timeout: Span(Settings::DEFAULT_TIMEOUT),
        retry_schedule: RetrySchedule::default(),
        ordering: Ordering::None,
        signatures: Signatures::Symmetric,
    }
}

/// Create a subscription
///
/// The answer holds the signing secret, once.
#[utoipa::path(post, path = "/v1/subscriptions", tag = "subscriptions", request_body = SubscriptionIn, responses(
    (status = 201, body = Subscription), (status = 409, description = "the id is taken", body = Problem)))]
pub(super) async fn create(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Json(new): Json<SubscriptionIn>,
) -> Result<(StatusCode, Json<Subscription>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    if new.url.is_none() {
        return Err(Problem::invalid("url", "url is needed: where should events go?"));
    }
    if new.event_types.is_none() {
        return Err(Problem::invalid("event_types", "event_types is needed: [\"**\"] means all"));
    }
    let settings = new.apply(defaults(), dispatch.reachable())?;
    let headers = new.checked_headers(BTreeMap::new())?;
    let tls = new.checked_tls(None, &settings.url, dispatch.reachable())?;
    let secret = match &new.secret {
        Some(text) => SigningSecret::parse("secret", text).map_err(Error::from)?,
        None => SigningSecret::generate(),
    };
    let id = match new.id {
        Some(id) => id::check(&id).map_err(|problem| Problem::invalid("id", problem))?.to_owned(),
        None => id::new("sub"),
    };
    let tenant = &*caller.tenant;
    let catalog = dispatch.catalog();
    let mut sealed = vec![
        catalog.seal(tenant, &id, &id::new("sec"), secret.text()),
        catalog.seal_headers(tenant, &id, &headers),
        catalog.seal_tls(tenant, &id, tls.as_ref()),
    ];
    if settings.signatures == Signatures::Both {
        sealed.push(catalog.seal_new_key(tenant, &id));
    }
    let created = dispatch
        .store()
        .create_subscription(&caller.actor, tenant, &id, &settings, new.enabled.unwrap_or(true), sealed)
        .await;
    let row = created.map_err(|error| {
        if error.is_duplicate() {
            let detail = format!("there is, or was, a subscription {id:?}: choose another id");
            return Problem::conflict("subscription_exists", detail).field("id");
        }
        error.into()
    })?;
    let row = row.ok_or_else(|| Problem::not_found("tenant", tenant))?;
    let shown = show(&dispatch, tenant, row).await;
    Ok((StatusCode::CREATED, Json(Subscription { secret: Some(secret.text().expose().to_owned()), ..shown })))
}

/// List subscriptions
#[utoipa::path(get, path = "/v1/subscriptions", tag = "subscriptions", params(PageQuery), responses((status = 200, body = Page<Subscription>)))]
pub(super) async fn list(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<Subscription>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let (limit, after) = (page.limit()?, cursor_of_chosen(page.after.as_deref())?);
    let rows = dispatch.store().subscriptions(&caller.tenant, after, limit + 1).await?;
    let mut data = Vec::with_capacity(rows.len());
    for row in rows {
        data.push(shown(&dispatch, &caller.tenant, row).await?);
    }
    Ok(Json(Page::from_rows(data, limit, |subscription| &subscription.id)))
}

/// Get a subscription
#[utoipa::path(get, path = "/v1/subscriptions/{subscription}", tag = "subscriptions", responses(
    (status = 200, body = Subscription), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Subscription>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let row = found(&dispatch, &caller, &id).await?;
    let shown = shown(&dispatch, &caller.tenant, row).await?;
    let gate = match dispatch.catalog().endpoint(&caller.tenant, &id) {
        Some(endpoint) => Some(gate_of(&dispatch, &endpoint).await),
        None => None,
    };
    Ok(Json(Subscription { gate, ..shown }))
}

/// Change a subscription
///
/// Where the `url` changes, its circuit closes: what its calls found out was about another.
#[utoipa::path(patch, path = "/v1/subscriptions/{subscription}", tag = "subscriptions", request_body = SubscriptionIn, responses(
    (status = 200, body = Subscription), (status = 404, body = Problem),
    (status = 409, description = "too many secrets still sign for the key that `v1a` needs, others keep changing it, or this version cannot read it", body = Problem)))]
pub(super) async fn update(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    Json(change): Json<SubscriptionIn>,
) -> Result<Json<Subscription>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    if change.id.is_some() || change.secret.is_some() {
        let field = if change.id.is_some() { "id" } else { "secret" };
        return Err(Problem::invalid(field, format!("{field} cannot be changed here")));
    }
    let tenant = &*caller.tenant;
    let catalog = dispatch.catalog();
    // What others change meanwhile is changed, too: then it is read again.
    for _ in 0..MOST_TRIES {
        let row = readable(&dispatch, &caller, &id).await?;
        let is_disabled = row.disabled_reason.is_some();
        let settings = change.apply(row.settings.clone(), dispatch.reachable())?;
        let secrets = catalog.secrets(tenant, &id).await?;
        let is_key_missing = settings.signatures == Signatures::Both && !secrets.has_lasting_key();
        require_room(&secrets, usize::from(is_key_missing))?;
        let headers = change.checked_headers(secrets.headers)?;
        let tls = change.checked_tls(secrets.tls, &settings.url, dispatch.reachable())?;
        let mut sealed = vec![catalog.seal_headers(tenant, &id, &headers), catalog.seal_tls(tenant, &id, tls.as_ref())];
        if is_key_missing {
            sealed.push(catalog.seal_new_key(tenant, &id));
        }
        let store = dispatch.store();
        let updated = store.update_subscription(&caller.actor, &row, &settings, change.enabled, sealed).await?;
        let Some(now) = updated else { continue };
        let is_told = now.enabled && is_disabled;
        if settings.url != row.settings.url {
            forget_circuit(&dispatch, &now, &settings).await?;
        }
        let shown = show(&dispatch, tenant, now).await;
        if is_told {
            dispatch.tell_of_enabling(tenant, &id).await;
        }
        return Ok(Json(shown));
    }
    Err(busy())
}

/// Delete a subscription
///
/// What waits for it is cancelled in the background; what was delivered stays on record.
#[utoipa::path(delete, path = "/v1/subscriptions/{subscription}", tag = "subscriptions", responses((status = 204), (status = 404, body = Problem)))]
pub(super) async fn delete(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::DispatchWrite)?;
    if !dispatch.store().delete_subscription(&caller.actor, &caller.tenant, &id).await? {
        return Err(Problem::not_found("subscription", &id));
    }
    dispatch.cancel_all_of(&caller.tenant, &id);
    catch_up(&dispatch, &id).await;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn found(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<SubscriptionRow<Shown>, Problem> {
    let row = dispatch.store().subscription(&caller.tenant, id).await?;
    row.ok_or_else(|| Problem::not_found("subscription", id))
}

/// For what needs its settings. Those that another version wrote are no fault of ours, nor of the caller.
pub(super) async fn readable(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<SubscriptionRow, Problem> {
    let row = dispatch.store().readable_subscription(&caller.tenant, id).await.map_err(|error| match error {
        db::Error::Unreadable(..) => unreadable(id),
        error => error.into(),
    })?;
    row.ok_or_else(|| Problem::not_found("subscription", id))
}

fn unreadable(id: &str) -> Problem {
    let detail = format!(
        "the subscription {id:?} was written by another version, and this one cannot read it: ask a replica of that version, or delete \
         the subscription and make it anew"
    );
    Problem::conflict("unusable_subscription", detail)
}

/// For what needs it as it is used here.
pub(super) async fn compiled(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<Arc<Endpoint>, Problem> {
    let (catalog, tenant) = (dispatch.catalog(), &*caller.tenant);
    readable(dispatch, caller, id).await?;
    if catalog.endpoint(tenant, id).is_none() {
        // Another replica may just have made it.
        catalog.refresh().await?;
    }
    catalog.endpoint(tenant, id).ok_or_else(|| match catalog.is_unusable(tenant, id) {
        true => unreadable(id),
        false => Problem::not_found("subscription", id),
    })
}

/// What its calls found out was about another URL.
async fn forget_circuit(dispatch: &Dispatch, row: &SubscriptionRow<Shown>, settings: &Settings) -> Result<(), Problem> {
    let guarded = Guarded::new(&row.tenant, &row.id, settings.rate_limit, settings.max_concurrency)?;
    if let Err(error) = dispatch.gate().breaker().automatic(&guarded.key).await {
        tracing::warn!(
            subscription = row.id, error = %Chain(&error),
            "A circuit was not closed; its next calls decide."
        );
        return Ok(());
    }
    dispatch.note_closed_circuit(&row.tenant, &row.id).await;
    Ok(())
}

/// Others change it as fast as it is read.
pub(super) fn busy() -> Problem {
    Problem::conflict("busy_subscription", "others keep changing this subscription: try again")
}

/// Is there room for so many more secrets and keys? As of a version of the subscription: to add some changes it.
pub(super) fn require_room(secrets: &OpenSecrets, more: usize) -> Result<(), Problem> {
    if more == 0 || secrets.live() + more <= MAX_LIVE {
        return Ok(());
    }
    let detail = format!(
        "at most {MAX_LIVE} secrets and keys sign at a time: wait until old ones end, 24 hours after they were replaced"
    );
    Err(Problem::conflict("too_many_secrets", detail))
}

/// After a change, which is committed whatever the database does now. A caller who was told that it failed would change it again, and
/// would never see a secret that is shown once.
async fn catch_up(dispatch: &Dispatch, subscription: &str) {
    if let Err(error) = dispatch.catalog().refresh().await {
        tracing::warn!(subscription, error = %Chain(&error), "A change is seen by this replica a little later.");
    }
}

/// After a change: brings the catalog up to date, and shows the result.
pub(super) async fn show(dispatch: &Dispatch, tenant: &str, row: SubscriptionRow<Shown>) -> Subscription {
    catch_up(dispatch, &row.id).await;
    let secrets = dispatch.catalog().secrets(tenant, &row.id).await;
    let is_unusable = matches!(&secrets, Err(error) if !error.is_transient());
    view(dispatch, tenant, row, secrets.ok(), is_unusable)
}

async fn shown(dispatch: &Dispatch, tenant: &str, row: SubscriptionRow<Shown>) -> Result<Subscription, Problem> {
    let secrets = match dispatch.catalog().secrets(tenant, &row.id).await {
        Ok(secrets) => Some(secrets),
        Err(Error::Database(error)) => return Err(error.into()),
        // What is not secret can be shown all the same.
        Err(_) => None,
    };
    let is_unusable = secrets.is_none();
    Ok(view(dispatch, tenant, row, secrets, is_unusable))
}

fn view(
    dispatch: &Dispatch,
    tenant: &str,
    row: SubscriptionRow<Shown>,
    secrets: Option<OpenSecrets>,
    is_unusable: bool,
) -> Subscription {
    let (is_foreign, is_asymmetric) = match &row.settings {
        Shown::Known(settings) => (false, settings.signatures == Signatures::Both),
        Shown::Foreign(_) => (true, false),
    };
    let is_unusable = is_unusable || is_foreign || dispatch.catalog().is_unusable(tenant, &row.id);
    let public_keys = secrets.as_ref().filter(|_| is_asymmetric).map(OpenSecrets::public_keys);
    let (headers, tls) = secrets.map(|secrets| (secrets.headers, secrets.tls)).unwrap_or_default();
    Subscription {
        headers: headers.into_keys().map(|name| (name, HIDDEN.to_owned())).collect(),
        tls: tls.as_ref().map(Tls::view),
        state: match is_unusable {
            true => Standing::Unusable,
            false => Standing::of(row.enabled, row.disabled_reason.as_deref()),
        },
        id: row.id,
        settings: row.settings,
        enabled: row.enabled,
        disabled_reason: row.disabled_reason,
        failing_since: row.failing_since,
        created_at: row.created_at,
        updated_at: row.updated_at,
        public_keys: public_keys.unwrap_or_default(),
        secret: None,
        gate: None,
    }
}
