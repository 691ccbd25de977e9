//! The HTTP API of dispatch: events, subscriptions, deliveries, jobs.

mod deliveries;
mod events;
mod explain;
mod jobs;
mod lane;
mod operate;
mod rejected;
mod subscriptions;

pub use self::lane::EventLane;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::Dispatch;

/// To be put behind the door.
pub fn routes() -> OpenApiRouter<Dispatch> {
    OpenApiRouter::new()
        .merge(events::routes())
        .routes(routes!(explain::explain))
        .merge(jobs::routes())
        .merge(operate::routes())
        .routes(routes!(subscriptions::create, subscriptions::list))
        .routes(routes!(subscriptions::get, subscriptions::update, subscriptions::delete))
        .routes(routes!(rejected::list))
        .routes(routes!(rejected::get, rejected::delete))
        .routes(routes!(rejected::retry))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::get))
        .routes(routes!(deliveries::attempts))
        .routes(routes!(deliveries::all_attempts))
        .routes(routes!(deliveries::retry))
        .routes(routes!(deliveries::cancel))
}
