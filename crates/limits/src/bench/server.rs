//! The servers under measurement: limits as they are served, and a handler that answers the same bytes.
//!
//! Both stand on the same accept loop and the same layers; limits also stand behind the door, as in production.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue},
    response::Response,
    routing::post,
};
use gate::Backend;
use platform::{
    db::{self, Database},
    http_server,
    shutdown::Tasks,
};
use tenancy::{Tenancy, config::Doors};

use super::{Error, HOT_PER_SECOND};
use crate::{
    Config, Limits, Parts,
    engine::Book,
    rule::{Algorithm, RuleSet, Source, Written},
};

pub(super) struct Server {
    pub(super) bare: SocketAddr,
    pub(super) ours: SocketAddr,
    tasks: Tasks,
    shared: Backend,
    folder: PathBuf,
}

const HTTP: http_server::Limits = http_server::Limits {
    max_connections: 10_000,
    header_timeout: Duration::from_secs(15),
    request_timeout: Duration::from_secs(30),
    max_body: 1 << 20,
    drain_timeout: Duration::from_secs(1),
};

impl Server {
    pub(super) async fn start(redis_url: Option<&str>) -> Result<Server, Error> {
        let tasks = Tasks::new();
        let shared = match redis_url {
            Some(url) => {
                let prefix = format!("bench-{}:", platform::id::new("run"));
                let redis = gate::redis::Config { prefix, ..gate::redis::Config::new(url) };
                Backend::redis_with(redis, gate::fallback::Config::default(), gate::Clock::System)?
            }
            None => Backend::memory(),
        };
        let folder = std::env::temp_dir().join(platform::id::new("tidegate-bench"));
        std::fs::create_dir(&folder)?;
        let database = Database::connect(&db::Config::Sqlite(folder.join("bench.db"))).await?;
        database.migrate(&[tenancy::MIGRATIONS, crate::MIGRATIONS]).await?;
        let config =
            Config { rules_file: None, envoy_file: None, envoy_algorithm: Algorithm::FixedWindow, log_sample: 0.0 };
        let parts = Parts { database: database.clone(), shared: shared.clone() };
        let limits = Limits::start(&config, parts, &tasks).await?;
        limits.engine().replace(book()?);
        let routes = Router::from(crate::routes().with_state(limits));
        let guarded = Tenancy::new(&Doors::Dev, database, tasks.clone()).door().guard(routes);
        let bare = Router::new().route("/v1/limits/check", post(same_bytes));
        Ok(Server { bare: serve(bare, &tasks)?, ours: serve(guarded, &tasks)?, tasks, shared, folder })
    }

    pub(super) async fn stop(self) {
        self.tasks.stop(Duration::from_secs(5)).await;
        self.shared.shutdown().await;
        // What cannot be removed lies in the folder for temporary files.
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn serve(router: Router, tasks: &Tasks) -> Result<SocketAddr, Error> {
    let listener = http_server::bind(([127, 0, 0, 1], 0).into())?;
    let addr = listener.local_addr()?;
    let router = http_server::with_limits(router, &HTTP);
    tasks.spawn("bench listener", http_server::serve("bench", listener, router, HTTP, tasks.clone()));
    Ok(addr)
}

/// A rule for many keys that never refuses, and one hot key.
fn book() -> Result<Book, Error> {
    let written = |key: &str, limit: u64| {
        let rule = serde_json::json!({"key": key, "limit": limit, "window": "1s"});
        let written: Written = serde_json::from_value(rule).expect("a plain rule is readable");
        written.check(key.into(), Source::File).map(Arc::new).map_err(crate::Error::from)
    };
    let rules = [written("key-*", 1_000_000)?, written("hot", HOT_PER_SECOND)?];
    Ok(Book { file: Arc::new(RuleSet::new(rules)), ..Book::default() })
}

/// Reads the body and decides nothing.
async fn same_bytes(_: Bytes) -> Response {
    const BODY: &str = "{\"allowed\":true,\"limit\":1000000,\"remaining\":999999,\"retry_after_ms\":0,\"reset_after_ms\":1,\"rule\":\"key-*\",\"degraded\":false}";
    const HEADERS: [(&str, &str); 6] = [
        ("content-type", "application/json"),
        ("ratelimit-policy", "\"key-*\";q=1000000;w=1"),
        ("ratelimit", "\"key-*\";r=999999;t=1"),
        ("x-ratelimit-limit", "1000000"),
        ("x-ratelimit-remaining", "999999"),
        ("x-ratelimit-reset", "1"),
    ];
    let mut response = Response::new(Body::from(BODY));
    response.headers_mut().reserve(HEADERS.len());
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
