//! The stores of one run: a database, a prefix and a topic that nobody else uses.

use anyhow::{Context, bail};
use dispatch::kafka::delete_topic;
use platform::{
    db::{self, Database},
    secret::Secret,
};
use url::Url;

use crate::{
    command::runtime,
    config::{self, Layers},
};

/// None: SQLite and memory.
#[derive(Clone, Default)]
pub(super) struct Stores {
    /// As they are set in the environment of a process.
    pub variables: Vec<(&'static str, String)>,
    database: Option<(Url, String)>,
}

impl Stores {
    /// Beside those that the configuration names, and on the same servers.
    pub(super) async fn fresh(layers: &Layers) -> anyhow::Result<Self> {
        let name = format!("tidegate_bench_{:08x}", fastrand::u32(..));
        let url = layers.text("database.url").context("database.url is not set")?;
        let mut url = Url::parse(&url).context("database.url is not a URL")?;
        execute(&url, &format!("CREATE DATABASE {name}")).await?;
        let server = url.clone();
        url.set_path(&name);
        let mut variables = vec![("DATABASE_URL", url.to_string())];
        if let Some(redis) = layers.text("redis.url") {
            variables.extend([("REDIS_URL", redis), ("TIDEGATE__REDIS__PREFIX", format!("{name}:"))]);
        }
        if let Some(brokers) = layers.text("kafka.brokers") {
            variables.extend([
                ("KAFKA_BROKERS", brokers),
                ("KAFKA_TOPIC", format!("{name}.events")),
                ("KAFKA_CONSUMER_GROUP", name.clone()),
            ]);
        }
        Ok(Stores { variables, database: Some((server, name)) })
    }

    /// The configuration of a process on these.
    pub(super) fn layers(&self, layers: &Layers) -> anyhow::Result<Layers> {
        let variables = self.variables.iter().map(|(name, value)| ((*name).to_owned(), value));
        Ok(layers.clone().with_environment(variables)?)
    }

    /// For one of so many workers: they share the machine's cores, as each would its own container's.
    pub(super) fn with_threads_of(&self, workers: u32) -> Self {
        let threads = (runtime::cores() / workers as usize).max(1);
        let mut stores = self.clone();
        stores.variables.push(("TOKIO_WORKER_THREADS", threads.to_string()));
        stores
    }

    /// Once no process uses them any more. `layers`: those that they were made beside.
    pub(super) async fn remove(&self, layers: &Layers) -> anyhow::Result<()> {
        let Some((server, name)) = &self.database else { return Ok(()) };
        let dropped = execute(server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        if layers.text("kafka.brokers").is_some() {
            let kafka = config::kafka_only(&self.layers(layers)?)?;
            delete_topic(&kafka).await.with_context(|| format!("the topic {} is still there", kafka.topic))?;
        }
        dropped
    }
}

async fn execute(server: &Url, statement: &str) -> anyhow::Result<()> {
    let file = db::File { url: Secret::new(server.to_string()), pool_size: 2, ca_file: String::new() };
    let config = db::Config::new(&file, std::path::Path::new("."))?;
    let Database::Postgres(database) = Database::connect(&config).await? else {
        bail!("database.url names no PostgreSQL");
    };
    database.client().await?.batch_execute(statement).await.with_context(|| statement.to_owned())
}
