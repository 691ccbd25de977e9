//! The HTTP API of limits: decisions, keys, rules.

mod answer;
mod check;
mod keys;
mod lane;
mod precondition;
mod question;
mod reserve;
mod rules;

use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::lane::CheckLane;
use crate::Limits;

/// To be put behind the door.
pub fn routes() -> OpenApiRouter<Limits> {
    OpenApiRouter::new()
        .routes(routes!(check::check))
        .routes(routes!(check::check_batch))
        .routes(routes!(check::peek))
        .routes(routes!(reserve::reserve))
        .routes(routes!(reserve::settle))
        .routes(routes!(check::reset))
        .routes(routes!(keys::list))
        .routes(routes!(keys::explain))
        .routes(routes!(rules::create, rules::list))
        .routes(routes!(rules::get, rules::put, rules::delete))
}
