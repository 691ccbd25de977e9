//! What this binary is put together from: every role's routes, schema and documentation.

use std::sync::OnceLock;

use axum::{
    Router,
    http::{Method, StatusCode, Uri, header},
    response::{Html, IntoResponse},
    routing::{any, get},
};
use dispatch::Dispatch;
use limits::{
    Limits,
    gates::{self, Gates},
};
use platform::{
    db::Migrations,
    health::{self, Health},
    problem::Problem,
    telemetry::Telemetry,
};
use tenancy::{Ending, Tenancy};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Object, Ref, RefOr, Required, Response, ResponseBuilder, Type,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

/// What this process serves: nothing of a role that it does not have.
pub(crate) struct Roles {
    pub dispatch: Option<Dispatch>,
    pub limits: Option<Limits>,
    pub gates: Option<Gates>,
}

/// Which roles' routes: of this process, or of a document.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    pub api: bool,
    pub limits: bool,
}

impl Served {
    pub(crate) const ALL: Served = Served { api: true, limits: true };

    /// Tenants and keys come with either role: a fleet of limits alone has callers, too.
    fn admin(self) -> bool {
        self.api || self.limits
    }
}

impl Roles {
    fn served(&self) -> Served {
        Served { api: self.dispatch.is_some(), limits: self.limits.is_some() }
    }
}

/// Every crate's migrations, in the order of their dependencies.
pub(crate) const MIGRATIONS: &[Migrations] =
    &[tenancy::MIGRATIONS, dispatch::MIGRATIONS, limits::MIGRATIONS, gates::MIGRATIONS];

/// What every role ends with a tenant.
pub(crate) const ENDINGS: &[Ending] = &[dispatch::end_tenant, limits::end_tenant, gates::end_tenant];

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Rate, concurrency, circuit and budget of everything you call, once for the whole fleet."),
    tags((name = "events", description = "Events"), (name = "subscriptions", description = "Subscriptions"), (name = "deliveries", description = "Deliveries"), (name = "rejected", description = "Records of the topic that could not become events"), (name = "jobs", description = "Replay, cancel and purge in the background"), (name = "limits", description = "Limits"), (name = "gates", description = "Gates: rate, circuit and concurrency of what you call"), (name = "admin", description = "Tenants, keys, audit"), (name = "health", description = "Health")),
    components(schemas(Problem)),
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

/// The OpenAPI document of these roles.
pub(crate) fn document(served: Served) -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    for (is_served, _, part) in parts(served) {
        if is_served {
            document.merge(part);
        }
    }
    for operation in operations(&mut document) {
        operation.parameters.get_or_insert_default().push(RefOr::T(tenant()));
    }
    document.merge(health::routes().into_openapi());
    for operation in operations(&mut document) {
        for (status, response) in &mut operation.responses.responses {
            if let RefOr::T(response) = response {
                complete(status, response);
            }
        }
        operation.responses.responses.insert("default".to_owned(), RefOr::T(any_problem("what is wrong, and the fix")));
    }
    document
}

fn operations(document: &mut utoipa::openapi::OpenApi) -> impl Iterator<Item = &mut Operation> {
    document.paths.paths.values_mut().flat_map(|path| {
        [&mut path.get, &mut path.post, &mut path.put, &mut path.patch, &mut path.delete].into_iter().flatten()
    })
}

/// Behind the door everything is done for a tenant.
fn tenant() -> Parameter {
    ParameterBuilder::new()
        .name("X-Tenant")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("The tenant that the admin key acts for (`default`); any other key has its own."))
        .schema(Some(Object::with_type(Type::String)))
        .build()
}

/// Every part of the API: is it served, which roles have it, and its document.
fn parts(served: Served) -> [(bool, &'static str, utoipa::openapi::OpenApi); 4] {
    [
        (served.api, "api", dispatch::routes().into_openapi()),
        (served.limits, "limits", limits::routes().into_openapi()),
        (served.limits, "limits", gates::routes().into_openapi()),
        (served.admin(), "api or limits", tenancy::routes().into_openapi()),
    ]
}

/// Errors have one shape, and every answer has a description.
fn complete(status: &str, response: &mut Response) {
    if response.description.is_empty() {
        let status = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        response.description = status.and_then(|status| status.canonical_reason()).unwrap_or_default().to_lowercase();
    }
    // A refusal that was asked for as 429 is an answer like any other.
    if status.starts_with('4') && status != "429" {
        let is_problem = |content: &RefOr<Content>| matches!(content, RefOr::T(content) if content.schema == Some(Ref::from_schema_name("Problem").into()));
        let mut problem = any_problem(&response.description);
        let content = std::mem::take(&mut response.content).into_iter();
        problem.content.extend(content.filter(|(_, content)| !is_problem(content)));
        *response = problem;
    }
}

fn any_problem(description: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new().description(description).content("application/problem+json", content).build()
}

/// Everything on the API listener: the roles of this process behind the door, health and documentation before it.
pub(crate) fn routes(tenancy: &Tenancy, roles: &Roles, health: &Health) -> Router {
    let served = roles.served();
    let mut guarded = Router::new();
    if served.admin() {
        guarded = guarded.merge(Router::from(tenancy::routes().with_state(tenancy.clone())));
    }
    if let Some(dispatch) = &roles.dispatch {
        guarded = guarded.merge(Router::from(dispatch::routes().with_state(dispatch.clone())));
    }
    if let Some(limits) = &roles.limits {
        guarded = guarded.merge(Router::from(limits::routes().with_state(limits.clone())));
    }
    if let Some(gates) = &roles.gates {
        guarded = guarded.merge(Router::from(gates::routes().with_state(gates.clone())));
    }
    let routes = tenancy.door().guard(guarded).merge(health_routes(health)).merge(elsewhere(served));
    if served.admin() {
        return routes.route("/openapi.json", get(move || openapi(served))).route("/docs", get(docs));
    }
    let documentation = ["/openapi.json", "/docs"].map(str::to_owned);
    routes.merge(served_by("api or limits", documentation))
}

/// The routes of the roles that this process does not have.
fn elsewhere(served: Served) -> Router {
    let absent = parts(served).into_iter().filter(|(is_served, ..)| !is_served);
    absent.fold(Router::new(), |router, (_, roles, part)| router.merge(served_by(roles, part.paths.paths.into_keys())))
}

fn served_by(roles: &'static str, paths: impl IntoIterator<Item = String>) -> Router {
    let answer = move |method: Method, uri: Uri| async move {
        let detail = format!("{method} {} is not served by this process: ask one with the role {roles}", uri.path());
        Problem::new(StatusCode::NOT_FOUND, "other_role", detail)
    };
    paths.into_iter().fold(Router::new(), |router, path| router.route(&path, any(answer)))
}

/// Everything on the ops listener.
pub(crate) fn ops_routes(telemetry: &Telemetry, health: &Health) -> Router {
    telemetry.routes().merge(health_routes(health))
}

fn health_routes(health: &Health) -> Router {
    health::routes().with_state(health.clone()).into()
}

/// Made when first asked for: most processes never are, and it takes megabytes.
async fn openapi(served: Served) -> impl IntoResponse {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| document(served).to_json().expect("the document is plain data"));
    ([(header::CONTENT_TYPE, "application/json")], text.as_str())
}

/// One page, no asset from another host, nothing to install.
async fn docs() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(include_str!("docs.html")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Parts are merged by name: of two schemas with one name, clients would see the first for both.
    #[test]
    fn no_two_parts_mean_different_things_by_one_name() {
        let mut known = BTreeMap::new();
        let documents = parts(Served::ALL).map(|(_, _, document)| document);
        for document in documents.into_iter().chain([health::routes().into_openapi()]) {
            for (name, schema) in document.components.unwrap_or_default().schemas {
                let schema = serde_json::to_value(schema).unwrap();
                assert_eq!(known.entry(name.clone()).or_insert_with(|| schema.clone()), &schema, "{name}");
            }
        }
    }
}
