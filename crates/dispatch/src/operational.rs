//! Operational events: what becomes of subscriptions and deliveries, told as events of their tenant.
//!
//! They are ordinary events: durable, signed, retried, listed. But they go only to subscriptions that name them by a glob
//! whose first segment is a word (`delivery.failed`, `circuit.*`), never to `*` or `**`: who takes everything did not ask
//! for them. A failing delivery of one raises no other, so they cannot feed themselves. One that nobody names is not made.

use std::sync::Arc;

use bytes::Bytes;
use platform::id;
use serde_json::Value;

use crate::{
    catalog::{Catalog, Endpoint},
    delivery::{Document, EventType},
    model::Ordering,
    store::{NewDelivery, NewEvent},
};

/// Their source; no other event may have it.
pub const SOURCE: &str = "tidegate";

/// What can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    SubscriptionDisabled,
    SubscriptionEnabled,
    DeliveryFailed,
    CircuitOpened,
    CircuitClosed,
}

impl Kind {
    pub fn event_type(self) -> &'static str {
        match self {
            Kind::SubscriptionDisabled => "subscription.disabled",
            Kind::SubscriptionEnabled => "subscription.enabled",
            Kind::DeliveryFailed => "delivery.failed",
            Kind::CircuitOpened => "circuit.opened",
            Kind::CircuitClosed => "circuit.closed",
        }
    }
}

/// The event, for whoever names it; `None` if nobody does. A subscription is not told that it is disabled itself: it would
/// not get it.
pub(crate) fn event(catalog: &Catalog, kind: Kind, about: &Endpoint, data: &Value) -> Option<NewEvent> {
    let event_type = EventType::parse("type", kind.event_type()).ok()?;
    let (uid, data) = (id::new("evt"), data.to_string());
    let document = Document::new(&uid, kind.event_type(), &data).with_source(Some(SOURCE));
    let is_told = |endpoint: &&Arc<Endpoint>| kind != Kind::SubscriptionDisabled || endpoint.id != about.id;
    let wanted = catalog.wanted(&about.tenant, &event_type, &document);
    let deliveries: Vec<NewDelivery> =
        wanted.iter().filter(is_told).map(|endpoint| delivery(endpoint, about)).collect();
    if deliveries.is_empty() {
        return None;
    }
    Some(NewEvent {
        id: uid.clone(),
        uid,
        tenant: Arc::clone(&about.tenant),
        event_type: kind.event_type().to_owned(),
        source: Some(SOURCE.to_owned()),
        // Where order is asked for, what is told of one subscription arrives in order.
        ordering_key: Some(about.id.to_string()),
        deliver_at: None,
        data: Bytes::from(data.into_bytes()),
        hash: [0; 32],
        created_at: None,
        trace: platform::telemetry::traceparent().map(Arc::from),
        deliveries,
    })
}

fn delivery(endpoint: &Arc<Endpoint>, about: &Endpoint) -> NewDelivery {
    let ordering_key = (endpoint.ordering == Ordering::Key).then(|| about.id.to_string());
    NewDelivery { id: id::new("dlv"), subscription: Arc::clone(&endpoint.id), ordering_key, place: None }
}
