//! What this binary is put together from: every role's routes, schema and documentation.

use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use platform::{db::Migrations, health::Health};
use tenancy::Tenancy;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

/// Every crate's migrations, in the order of their dependencies.
pub(crate) const MIGRATIONS: &[Migrations] = &[tenancy::MIGRATIONS];

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Rate, concurrency, circuit and budget of everything you call, once for the whole fleet."),
    tags((name = "admin", description = "Tenants, keys, audit")),
    components(schemas(platform::health::Report)),
    modifiers(&Keys)
)]
struct Document;

struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        components
            .add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-api-key"))));
        let either = ["bearer", "api_key"].map(|name| SecurityRequirement::new(name, Vec::<String>::new()));
        openapi.security = Some(either.into());
    }
}

fn tenancy_routes() -> OpenApiRouter<Tenancy> {
    OpenApiRouter::with_openapi(Document::openapi()).merge(tenancy::routes())
}

/// The OpenAPI document of every role in this binary.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    tenancy_routes().into_openapi()
}

/// Everything on the API listener: roles behind the door, health and documentation before it.
pub(crate) fn routes(tenancy: &Tenancy, health: &Health) -> Router {
    let (guarded, document) = tenancy_routes().with_state(tenancy.clone()).split_for_parts();
    let document = document.to_json().unwrap_or_default();
    let json = [(header::CONTENT_TYPE, "application/json")];
    tenancy
        .door()
        .guard(guarded)
        .merge(health.routes())
        .route("/openapi.json", get(move || std::future::ready((json, document.clone()))))
        .route("/docs", get(docs))
}

/// One page, no asset from another host, nothing to install.
async fn docs() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(include_str!("docs.html")))
}
