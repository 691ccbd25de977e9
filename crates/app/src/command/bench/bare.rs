//! The bare limits that dispatch is measured against: the client alone, a handler that only parses, the store alone.

use std::{future::Future, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header},
    response::IntoResponse,
    routing::{get, post},
};
use dispatch::{
    intake::EventIn,
    store::{Lease, NewEvent, Store},
};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use platform::{
    db::{self, Database},
    http_client::{self, Call, HttpClient, Reachable, Target},
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

/// Who calls.
#[derive(Clone, Copy)]
pub(super) enum Client {
    /// hyper's pooled client: what a program has that takes a well-known one and adds nothing.
    Hyper,
    /// The worker's own, which guards every address and is faster all the same.
    Own,
}

/// Calls per second of a client, so many at a time, with the worker's bytes and no work around them.
pub(super) async fn client(
    client: Client,
    sink: SocketAddr,
    calls: u64,
    at_once: u64,
    size: usize,
) -> anyhow::Result<f64> {
    let body = Bytes::from(format!(
        r#"{{"type":"order.created","timestamp":"2026-01-01T00:00:00Z","data":"{}"}}"#,
        "x".repeat(size)
    ));
    match client {
        Client::Hyper => {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            #[expect(
                clippy::disallowed_methods,
                reason = "a measure for the client that is guarded; calls nobody but the sink"
            )]
            let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
            let uri: Uri = format!("http://{sink}/").parse().context("the sink's address makes no URL")?;
            let call = move || {
                let (client, uri, body) = (client.clone(), uri.clone(), body.clone());
                async move {
                    let mut request = Request::post(uri).body(Full::new(body))?;
                    request.headers_mut().extend(headers());
                    let answer = client.request(request).await.context("the sink does not answer")?;
                    answer.into_body().collect().await.context("the sink does not end its answer")?;
                    anyhow::Ok(())
                }
            };
            per_second(calls, at_once, call).await
        }
        Client::Own => {
            let reachable = Reachable::loopback();
            let config = http_client::Config { reachable, ..http_client::Config::default() };
            let client = HttpClient::new(config);
            let target = Target::parse(&format!("http://{sink}/"), client.reachable());
            let target = Arc::new(target.map_err(|refused| anyhow::anyhow!(refused.detail))?);
            let call = move || {
                let (client, target, body) = (client.clone(), Arc::clone(&target), body.clone());
                async move {
                    let call = Call { target: &target, headers: &headers(), body, deadline: DEADLINE, tls: None };
                    client.post(call).await.context("the sink does not answer")?;
                    anyhow::Ok(())
                }
            };
            per_second(calls, at_once, call).await
        }
    }
}

async fn per_second<F>(calls: u64, at_once: u64, call: impl Fn() -> F + Clone + Send + 'static) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let mut callers = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..at_once {
        let call = call.clone();
        callers.spawn(async move {
            for _ in 0..calls / at_once {
                call().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok((calls / at_once * at_once) as f64 / started.elapsed().as_secs_f64())
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

/// A server whose handler reads an event as intake does, and answers as much, and does nothing else. Serves until it is killed.
pub(super) async fn serve_intake(addr: SocketAddr) -> anyhow::Result<()> {
    let listener = http_server::bind(addr).with_context(|| format!("{addr} is taken"))?;
    let router = Router::new().route("/", get(async || Json(true))).route("/v1/events", post(parse));
    let router = http_server::with_limits(router, &LIMITS);
    http_server::serve("bare", listener, router, LIMITS, Tasks::new()).await;
    Ok(())
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
        trace: None,
        deliveries: Vec::new(),
    }
}

pub(super) fn sqlite(folder: &Path) -> db::Config {
    db::Config::Sqlite(folder.join("bare.db"))
}
