//! What this process depends on: which of it a replica with these roles cannot do without.

use std::time::Duration;

use dispatch::Dispatch;
use gate::Backend;
use platform::{
    db::{self, Database},
    health::Health,
    shutdown::Tasks,
};

use crate::config::{Config, Role};

/// A write that is refused for longer than a restart or a failover takes is for someone to look at.
const STALLED: Duration = Duration::from_secs(30);

/// Every dependency of this process, and whether it can do without.
pub(crate) fn of(config: &Config, database: &Database, shared: &Backend, dispatch: &Dispatch, tasks: &Tasks) -> Health {
    let takes_events = config.roles.contains(&Role::Api);
    let (database, kafka) = (database.clone(), dispatch.kafka().cloned());
    // Events alone can be taken in without it: they go to Kafka, while Kafka is there.
    let takes_events_alone =
        takes_events && !config.roles.contains(&Role::Worker) && !config.roles.contains(&Role::Limits);
    let is_enough = kafka.clone().filter(|_| takes_events_alone);
    let needs_database = move || is_enough.as_ref().is_none_or(|kafka| kafka.falls_back() && kafka.is_away());
    let mut health = Health::builder().required_while("database", needs_database, move || {
        let database = database.clone();
        async move { database.ping().await.map_err(|error| unfit(&error).to_owned()) }
    });
    if config.redis.is_some() {
        let shared = shared.clone();
        health = health.optional("redis", move || {
            let shared = shared.clone();
            async move { redis_is_fit(&shared).await.map_err(str::to_owned) }
        });
    }
    if config.roles.contains(&Role::Worker) {
        let stalls = dispatch.store().stalls().clone();
        health = health.optional("writes", move || {
            let stalled = stalls.longest().filter(|stalled| *stalled > STALLED);
            async move { stalled.map_or(Ok(()), |stalled| Err(stalled_for(stalled))) }
        });
    }
    if let Some(kafka) = kafka {
        // A replica that takes events in cannot do so without Kafka, unless they may queue in the database meanwhile.
        let is_required = takes_events && !kafka.falls_back();
        let check = move || {
            let is_away = kafka.is_away();
            async move { if is_away { Err("Kafka does not answer".to_owned()) } else { Ok(()) } }
        };
        health = if is_required { health.required("kafka", check) } else { health.optional("kafka", check) };
    }
    health.build(tasks.clone())
}

fn unfit(error: &db::Error) -> &'static str {
    if error.is_of_the_disk() {
        "the database takes no writes: make room on its disk, and see that it can be written"
    } else {
        "the database does not answer"
    }
}

fn stalled_for(stalled: Duration) -> String {
    let seconds = stalled.as_secs();
    format!("the database has refused to write records or outcomes for {seconds} s; the log has the cause")
}

/// It answers, and it does not throw away what it was given to remember.
async fn redis_is_fit(shared: &Backend) -> Result<(), &'static str> {
    shared.ping().await.map_err(|_| "Redis does not answer; limits are decided locally")?;
    if shared.fallback().may_evict() {
        return Err(
            "Redis evicts keys when it is full; set its maxmemory-policy to noeviction: until then each process \
             decides alone about whatever holds permits",
        );
    }
    Ok(())
}
