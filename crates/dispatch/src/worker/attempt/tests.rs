//! What is said of a delivery that is put off without a word of the gate: each has a reason.

use std::{collections::BTreeMap, net::TcpListener};

use gate::{Backend, gate::Gate};
use platform::{
    http_client::{HttpClient, Reachable},
    secret::Secret,
    shutdown::Tasks,
};
use tempfile::TempDir;
use tenancy::vault::Vault;
use testkit::eventually;

use super::*;
use crate::{
    catalog::Catalog,
    delivery::SigningSecret,
    store::{
        Lease, Store,
        search::DeliveryFilter,
        tests::{claim, event, open, take_in},
    },
    worker::{Deps, Worker},
};

const LATER: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(10);

/// A store in which `sub_1` takes everything. It is called one at a time, and never answers.
struct Ground {
    store: Store,
    catalog: Catalog,
    _receiver: TcpListener,
    _folder: TempDir,
}

impl Ground {
    async fn new() -> Self {
        let (folder, receiver) = (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let store = open("", folder.path()).await;
        let catalog =
            Catalog::new(store.clone(), Vault::new(&Secret::new("00".repeat(32))).unwrap(), Reachable::loopback());
        let settings = serde_json::from_value(serde_json::json!({
            "url": format!("http://{}/", receiver.local_addr().unwrap()), "event_types": ["**"], "rate_limit": 1,
            "max_concurrency": 1, "timeout": "15s", "retry_schedule": [], "ordering": "none",
        }));
        let sealed = vec![
            catalog.seal("acme", "sub_1", "sec_1", SigningSecret::generate().text()),
            catalog.seal_headers("acme", "sub_1", &BTreeMap::new()),
            catalog.seal_tls("acme", "sub_1", None),
        ];
        let made = store.create_subscription("dev", "acme", "sub_1", &settings.unwrap(), true, sealed).await;
        made.unwrap().unwrap();
        catalog.refresh().await.unwrap();
        Ground { store, catalog, _receiver: receiver, _folder: folder }
    }

    fn worker(&self) -> (Worker, Tasks) {
        let tasks = Tasks::new();
        let deps = Deps {
            store: self.store.clone(),
            catalog: self.catalog.clone(),
            client: HttpClient::new(platform::http_client::Config {
                reachable: Reachable::loopback(),
                ..Default::default()
            }),
            gate: Gate::new(&Backend::memory()),
            lease: Lease { owner: "w".into(), length: LEASE },
            config: crate::config::Config {
                poll_interval: Duration::from_secs(1),
                batch_size: 100,
                lease: LEASE,
                max_in_flight: 100,
                max_events: 10,
                max_event: 1000,
                retention: Duration::from_secs(86_400),
                allow_networks: Vec::new(),
            },
        };
        (Worker::start(deps, &tasks), tasks)
    }

    /// Of how many deliveries this was said last.
    async fn said(&self, reason: &str) -> usize {
        let all = self.store.deliveries("acme", &DeliveryFilter::default(), None, 10).await.unwrap();
        all.iter().filter(|one| one.last_error.as_deref() == Some(reason)).count()
    }
}

/// One is called, a few wait for it, and there is no room for the rest.
#[tokio::test]
async fn what_finds_its_lane_full_says_so_and_so_does_what_a_stopped_worker_gives_back() {
    let ground = Ground::new().await;
    let (worker, tasks) = ground.worker();
    take_in(&ground.store, vec![event("a", 10)]).await;
    worker.wake();
    eventually(LATER, "the rest to be put off", async || ground.said(LANE_FULL).await > 0).await;
    tasks.stopping().cancel();
    eventually(LATER, "those that waited to be given back", async || ground.said(GIVEN_BACK).await > 0).await;
}

#[tokio::test]
async fn what_waited_through_half_of_its_lease_says_so() {
    let ground = Ground::new().await;
    take_in(&ground.store, vec![event("a", 1)]).await;
    let claimed = claim(&ground.store, "w").await.remove(0);
    let (worker, _tasks) = ground.worker();
    let long_ago = Instant::now().checked_sub(LEASE).unwrap();
    worker.inner.offer(worker.inner.lanes.job(claimed, long_ago));
    eventually(LATER, "it to be put off", async || ground.said(TOO_LATE).await == 1).await;
}
