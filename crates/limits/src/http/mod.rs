//! The HTTP API of limits.

use utoipa_axum::router::OpenApiRouter;

use crate::Limits;

/// To be put behind the door.
pub fn routes() -> OpenApiRouter<Limits> {
    OpenApiRouter::new()
}
