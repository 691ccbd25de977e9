//! Takes events in and delivers them to subscribers as signed webhooks, with retries and a record of every attempt.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`delivery`] | the rules: who receives an event, how it is signed, what follows an attempt (pure) |
//! | [`intake`] | from a request to a durable event with its deliveries |
//! | [`kafka`] | records into the topic, and from there to rows |
//! | [`worker`] | claims, lanes, calls, outcomes |
//! | [`operational`] | what becomes of subscriptions and deliveries, told as events |
//! | [`job`] | replay, cancel and purge of many deliveries, in the background |
//! | [`catalog`] | the subscriptions in memory, compiled |
//! | `rotation` | secrets sealed anew, for another master key |
//! | [`store`] | rows, in SQLite and PostgreSQL |

mod announce;
mod batch;
pub mod catalog;
mod clock;
pub mod config;
pub mod delivery;
pub mod error;
pub mod guard;
mod http;
pub mod intake;
pub mod job;
pub mod kafka;
mod metrics;
pub mod model;
pub mod operational;
pub mod place;
mod rotation;
pub mod stall;
pub mod store;
pub mod tls;
pub mod worker;

use std::{sync::Arc, time::Duration};

use gate::gate::Gate;
use platform::{
    db::Database,
    http_client::{HttpClient, Reachable},
    id,
    problem::Chain,
    shutdown::Tasks,
};
use tenancy::vault::Vault;

use self::{
    announce::{Announcer, Workers},
    catalog::Catalog,
    error::Error,
    intake::Intake,
    job::runner::Runner,
    kafka::Producer,
    rotation::Rotation,
    store::{Lease, OnlyWorker, Store},
    worker::{Deps, Worker},
};
pub use self::{
    config::Config,
    http::{EventLane, routes},
    store::{MIGRATIONS, records::end_tenant},
};

/// What dispatch stands on.
pub struct Parts {
    pub database: Database,
    pub vault: Vault,
    pub gate: Gate,
    pub client: HttpClient,
    /// Events go through Kafka; otherwise they queue in the database.
    pub kafka: Option<kafka::Config>,
    /// This process delivers, and does not only take events in.
    pub is_worker: bool,
}

/// The role. Cheap to clone.
#[derive(Clone)]
pub struct Dispatch {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    store: Store,
    catalog: Catalog,
    lease: Lease,
    intake: Intake,
    producer: Option<Producer>,
    worker: Option<Worker>,
    jobs: Option<Runner>,
    gate: Gate,
    reachable: Reachable,
    tasks: Tasks,
    _only_worker: Option<OnlyWorker>,
}

impl Dispatch {
    /// Reads the subscriptions and starts the worker; fails if the database does.
    pub async fn start(config: Config, parts: Parts, tasks: &Tasks) -> Result<Self, Error> {
        let Parts { database, vault, gate, client, kafka, is_worker } = parts;
        let tenants = tenancy::Store::new(database.clone());
        let store = Store::new(database);
        match store.prepare_days().await {
            // Others may make them until they are needed; upkeep says every hour that they lack.
            Err(Error::NoDay { has_today: true, .. }) => (),
            prepared => prepared?,
        }
        let reachable = client.reachable().clone();
        let catalog = Catalog::new(store.clone(), vault.clone(), reachable.clone());
        catalog.refresh().await?;
        catalog.follow(tasks);
        Rotation { store: store.clone(), tenants: tenants.clone(), vault }.follow(tasks);
        // Derived, never set by hand: two processes with one name would fence each other.
        let lease = Lease { owner: id::new("wrk").into(), length: config.lease };
        let only_worker = if is_worker { Some(store.begin_work().await?) } else { None };
        let worker = is_worker.then(|| {
            let deps = Deps {
                store: store.clone(),
                catalog: catalog.clone(),
                client,
                gate: gate.clone(),
                lease: lease.clone(),
                config: config.clone(),
            };
            Worker::start(deps, tasks)
        });
        let jobs = worker.clone().map(|worker| {
            Runner::start(store.clone(), catalog.clone(), worker, lease.clone(), config.poll_interval, tasks)
        });
        let producer = match &kafka {
            Some(kafka) => Some(Producer::start(kafka.clone(), config.max_event, tasks).await?),
            None => None,
        };
        let workers = Workers { here: worker.clone(), elsewhere: Announcer::start(store.postgres(), tasks) };
        if let Some(worker) = &worker {
            announce::listen(store.postgres(), worker.clone(), tasks);
        }
        let intake = Intake::start(
            store.clone(),
            catalog.clone(),
            workers.clone(),
            lease.clone(),
            &config,
            producer.clone(),
            tasks,
        );
        #[cfg(feature = "kafka")]
        if let (Some(kafka), Some(_)) = (kafka, &worker) {
            let (store, catalog, intake) = (store.clone(), catalog.clone(), intake.clone());
            let (topic, max_event) = (kafka.topic.as_str().into(), config.max_event);
            let lease = lease.clone();
            let taking = kafka::Taking { store, tenants, catalog, intake, workers, lease, topic, max_event };
            kafka::consume(kafka, taking, tasks)?;
        }
        let _only_worker = only_worker;
        let tasks = tasks.clone();
        let inner = Inner {
            config,
            store,
            catalog,
            lease,
            intake,
            producer,
            worker,
            jobs,
            gate,
            reachable,
            tasks,
            _only_worker,
        };
        let dispatch = Dispatch { inner: Arc::new(inner) };
        dispatch.keep_up();
        Ok(dispatch)
    }

    /// Partitions ahead, and the end of what is too old, once an hour.
    fn keep_up(&self) {
        let (dispatch, stopping) = (self.clone(), self.inner.tasks.stopping().clone());
        self.inner.tasks.spawn("dispatch upkeep", async move {
            let mut tick = tokio::time::interval(Duration::from_secs(3600));
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                let Inner { store, config, .. } = &*dispatch.inner;
                if let Err(error) = store.prepare_days().await {
                    tracing::warn!(error = %Chain(&error), "Not all tables of the coming days are there, and without a day's tables its events are not taken. It is looked at again in an hour.");
                }
                let done = async {
                    store.forget_jobs(config.retention).await?;
                    store.forget(config.retention).await
                };
                match done.await {
                    Ok(0) => (),
                    Ok(gone) => tracing::info!(gone, "Old records are gone."),
                    Err(error) if error.is_forbidden() => {
                        tracing::warn!(error = %Chain(&error), "This role of PostgreSQL may not drop the tables of days older than dispatch.retention. A process whose role owns them does it for all.");
                    }
                    Err(error) => tracing::warn!(error = %Chain(&error), "Upkeep failed; it runs again in an hour."),
                }
            }
        });
    }

    /// Does Kafka answer? `None` where events queue in the database anyway.
    pub fn kafka(&self) -> Option<&Producer> {
        self.inner.producer.as_ref()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    pub(crate) fn intake(&self) -> &Intake {
        &self.inner.intake
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn reachable(&self) -> &Reachable {
        &self.inner.reachable
    }

    /// A subscription that Tidegate had disabled is on again, by hand. That is committed, whatever becomes of the word of it.
    pub(crate) async fn tell_of_enabling(&self, tenant: &str, id: &str) {
        let Inner { store, catalog, lease, .. } = &*self.inner;
        let Some(endpoint) = catalog.endpoint(tenant, id) else { return };
        let data = serde_json::json!({"subscription_id": id});
        let Some(event) = operational::event(catalog, operational::Kind::SubscriptionEnabled, &endpoint, &data) else {
            return;
        };
        match store.take_in(vec![event], lease).await {
            Ok(_) => self.wake(),
            Err(error) => {
                tracing::warn!(subscription = id, error = %Chain(&error), "Nobody is told that it is enabled again.");
            }
        }
    }

    /// Its circuit was about another URL, and is closed: said and told as if a call had closed it.
    pub(crate) async fn note_closed_circuit(&self, tenant: &str, id: &str) {
        let Inner { store, catalog, .. } = &*self.inner;
        let Some(endpoint) = catalog.endpoint(tenant, id) else { return };
        let data = serde_json::json!({"subscription_id": id});
        let raises = operational::event(catalog, operational::Kind::CircuitClosed, &endpoint, &data);
        let noted = match store.mark_circuit(tenant, id, false, raises).await {
            Ok(false) => return,
            Ok(true) => catalog.refresh().await,
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            tracing::warn!(subscription = id, error = %Chain(&error), "A circuit is closed; its next calls tell of it.");
        }
        self.wake();
    }

    /// Cancels what waits for a subscription that was deleted. If this ends half-way, a worker cancels the rest when it is due.
    pub(crate) fn cancel_all_of(&self, tenant: &str, id: &str) {
        let Inner { store, tasks, .. } = &*self.inner;
        let (store, stopping) = (store.clone(), tasks.stopping().clone());
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        tasks.spawn("deleted subscription", async move {
            if let Some(Err(error)) = stopping.run_until_cancelled(store.cancel_all_of(&tenant, &id)).await {
                tracing::warn!(
                    subscription = id, error = %Chain(&error),
                    "Not all that waited for a deleted subscription was cancelled yet."
                );
            }
        });
    }

    /// A job was made.
    pub(crate) fn wake_jobs(&self) {
        if let Some(jobs) = &self.inner.jobs {
            jobs.wake();
        }
    }

    /// Something became due by hand.
    pub(crate) fn wake(&self) {
        if let Some(worker) = &self.inner.worker {
            worker.wake();
        }
    }
}
