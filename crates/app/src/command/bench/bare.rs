//! The bare limits that dispatch is measured against: the client alone, a handler that only parses, the store alone.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::IntoResponse,
    routing::post,
};
use dispatch::{
    intake::EventIn,
    store::{Lease, NewEvent, Store},
};
use platform::{
    db::{self, Database},
    http_client::{self, Call, HttpClient, Target},
    http_server, id,
    shutdown::Tasks,
};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(15);
pub(super) const LIMITS: http_server::Limits = http_server::Limits {
    max_connections: 10_000,
    header_timeout: Duration::from_secs(60),
    request_timeout: Duration::from_secs(60),
    idle_timeout: Duration::from_secs(3600),
    max_body: 1 << 20,
    drain_timeout: Duration::ZERO,
};

/// Calls per second of the worker's own client, so many at a time, with the worker's bytes and no work around them.
pub(super) async fn client(sink: SocketAddr, calls: u64, at_once: u64, size: usize) -> anyhow::Result<f64> {
    let config = http_client::Config { allow_private: true, ..http_client::Config::default() };
    let client = HttpClient::new(config);
    let target = Target::parse(&format!("http://{sink}/"), true).map_err(|refused| anyhow::anyhow!(refused.detail))?;
    let target = Arc::new(target);
    let body = Bytes::from(format!(
        r#"{{"type":"order.created","timestamp":"2026-01-01T00:00:00Z","data":"{}"}}"#,
        "x".repeat(size)
    ));
    let mut callers = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..at_once {
        let (client, target, body) = (client.clone(), Arc::clone(&target), body.clone());
        callers.spawn(async move {
            for _ in 0..calls / at_once {
                let call =
                    Call { target: &target, headers: &headers(), body: body.clone(), deadline: DEADLINE, tls: None };
                client.post(call).await.context("the sink does not answer")?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

/// As many and as long as those of a delivery.
fn headers() -> [(HeaderName, HeaderValue); 5] {
    const SIGNATURE: &str = "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=";
    let id = HeaderValue::from_str(&id::new("bare")).expect("ids are plain text");
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::USER_AGENT, HeaderValue::from_static(concat!("Tidegate/", env!("CARGO_PKG_VERSION")))),
        (HeaderName::from_static("webhook-id"), id),
        (HeaderName::from_static("webhook-timestamp"), HeaderValue::from_static("1767225600")),
        (HeaderName::from_static("webhook-signature"), HeaderValue::from_static(SIGNATURE)),
    ]
}

/// A server whose handler reads an event as intake does, and answers as much, and does nothing else.
pub(super) fn handler(tasks: &Tasks) -> anyhow::Result<SocketAddr> {
    let listener = http_server::bind(([127, 0, 0, 1], 0).into()).context("no free port")?;
    let addr = listener.local_addr().context("no free port")?;
    let router = Router::new().route("/v1/events", post(parse));
    let router = http_server::with_limits(router, &LIMITS);
    tasks.spawn("bare handler", http_server::serve("bare", listener, router, LIMITS, tasks.clone()));
    Ok(addr)
}

async fn parse(body: Bytes) -> axum::response::Response {
    match serde_json::from_slice::<EventIn>(&body) {
        Ok(EventIn { id, event_type, data, .. }) => {
            let answer = serde_json::json!({"id": id, "type": event_type, "status": "queued"});
            drop(data);
            (StatusCode::ACCEPTED, Json(answer)).into_response()
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Rows per second of the store alone, in batches of a thousand.
pub(super) async fn store(database: &db::Config, events: u64, size: usize) -> anyhow::Result<f64> {
    const BATCH: u64 = 1000;
    let database = Database::connect(database).await?;
    database.migrate(crate::api::MIGRATIONS).await?;
    let store = Store::new(database);
    store.prepare_days().await?;
    let lease = Lease { owner: "bench".into(), length: Duration::from_secs(60) };
    let data = Bytes::from(format!("\"{}\"", "x".repeat(size.saturating_sub(2))));
    let tenant: Arc<str> = "default".into();
    let batches: Vec<Vec<NewEvent>> =
        (0..events.div_ceil(BATCH)).map(|_| (0..BATCH).map(|_| event(&tenant, &data)).collect()).collect();
    let count = batches.len() as u64 * BATCH;
    let started = Instant::now();
    for batch in batches {
        store.take_in(batch, &lease).await?;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

fn event(tenant: &Arc<str>, data: &Bytes) -> NewEvent {
    let uid = id::new("evt");
    NewEvent {
        id: format!("bare_{uid}"),
        uid,
        tenant: Arc::clone(tenant),
        event_type: "order.created.bare".to_owned(),
        source: None,
        ordering_key: None,
        deliver_at: None,
        data: data.clone(),
        hash: [7; 32],
        created_at: None,
        deliveries: Vec::new(),
    }
}

pub(super) fn sqlite(folder: &Path) -> db::Config {
    db::Config::Sqlite(folder.join("bare.db"))
}
