//! The keeper of the rules: puts those of the files and those of the database into one book, and follows both.
//!
//! Other replicas' changes are seen within [`REFRESH`], our own at once. What cannot be read leaves the old rules in force.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use platform::{db, shutdown::Tasks};
use time::OffsetDateTime;

use crate::{
    config::Config,
    engine::{Book, Engine},
    envoy::Domains,
    error::Error,
    file::{self, Files, Texts},
    metrics::RULES_REFUSED,
    rule::{Pattern, Rule, RuleSet, Source, tried_with},
    store::{Change, Place, RuleRow, Store},
};

/// How long a change may go unnoticed.
const REFRESH: Duration = Duration::from_millis(400);
/// How long the row of a deleted rule is kept for replicas that were cut off from the database.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const UPKEEP: Duration = Duration::from_secs(3600);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    engine: Engine,
    rules: Option<Followed<RuleSet>>,
    envoy: Option<Followed<Domains>>,
    parts: Mutex<Parts>,
    /// How far the rows were read. One refresh at a time: the later one finds nothing left to do.
    read: tokio::sync::Mutex<Place>,
}

/// Files, and what was last read of them.
struct Followed<T> {
    files: Files<T>,
    last: Mutex<Result<Texts, String>>,
}

/// A tenant's rules by id, each with when it was made.
type Own = HashMap<Box<str>, (OffsetDateTime, Arc<Rule>)>;

/// What books are made from.
#[derive(Default)]
struct Parts {
    /// By tenant.
    own: HashMap<Arc<str>, Own>,
    sets: HashMap<Arc<str>, Arc<RuleSet>>,
    file: Arc<RuleSet>,
    envoy: Arc<Domains>,
}

impl Keeper {
    /// Reads all rules; what is wrong in a file is an error here, at the start.
    pub(crate) async fn start(config: &Config, store: Store, engine: Engine, tasks: &Tasks) -> Result<Self, Error> {
        let mut parts = Parts::default();
        let rules = match file::rules(config) {
            Some(files) => {
                let (texts, rules) = files.load()?;
                parts.file = Arc::new(rules);
                Some(Followed { files, last: Mutex::new(Ok(texts)) })
            }
            None => None,
        };
        let envoy = match file::envoy(config) {
            Some(files) => {
                let (texts, domains) = files.load()?;
                parts.envoy = Arc::new(domains);
                Some(Followed { files, last: Mutex::new(Ok(texts)) })
            }
            None => None,
        };
        let inner =
            Inner { store, engine, rules, envoy, parts: Mutex::new(parts), read: tokio::sync::Mutex::default() };
        let keeper = Keeper { inner: Arc::new(inner) };
        keeper.publish();
        keeper.refresh().await?;
        keeper.follow(tasks);
        Ok(keeper)
    }

    /// Reads what changed in the database since the last time.
    pub(crate) async fn refresh(&self) -> Result<(), db::Error> {
        let mut read = self.inner.read.lock().await;
        while let (changes, Some(last)) = self.inner.store.changes(&read).await? {
            // All of a page at once: whoever asked may leave before the next.
            self.inner.parts.lock().take(changes);
            *read = last;
            self.publish();
        }
        Ok(())
    }

    /// How many patterns may have to be tried on one key if this tenant had such a rule.
    pub(crate) fn tried_with(&self, tenant: &str, id: &str, new: &Pattern) -> usize {
        let parts = self.inner.parts.lock();
        let others = parts.own.get(tenant).into_iter().flatten().filter(|(other, _)| ***other != *id);
        tried_with(new, others.map(|(_, (_, rule))| &rule.pattern))
    }

    fn follow(&self, tasks: &Tasks) {
        let (keeper, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("limit rules", async move {
            let mut tick = tokio::time::interval(REFRESH);
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                if let Err(error) = keeper.refresh().await {
                    tracing::warn!(%error, "Limit rules could not be read; the last known ones are used.");
                }
                let files = keeper.clone();
                // A folder on a slow disk must not hold up the runtime.
                if tokio::task::spawn_blocking(move || files.reread()).await.is_err() {
                    tracing::error!("Reading the files of rules panicked; the last known rules are used.");
                }
            }
        });
        let (store, stopping) = (self.inner.store.clone(), tasks.stopping().clone());
        tasks.spawn("deleted limit rules", async move {
            let mut tick = tokio::time::interval(UPKEEP);
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                if let Err(error) = store.forget_deleted(KEPT).await {
                    tracing::warn!(%error, "Deleted limit rules could not be forgotten.");
                }
            }
        });
    }

    /// Takes over what changed in the files.
    fn reread(&self) {
        let Inner { rules, envoy, parts, .. } = &*self.inner;
        let mut has_changed = false;
        let has_rules = !parts.lock().file.is_empty();
        if let Some(set) = rules.as_ref().and_then(|rules| rules.changed(has_rules)) {
            parts.lock().file = Arc::new(set);
            has_changed = true;
        }
        // Envoy's files name a domain: an empty one is wrong anyway.
        if let Some(domains) = envoy.as_ref().and_then(|envoy| envoy.changed(false)) {
            parts.lock().envoy = Arc::new(domains);
            has_changed = true;
        }
        if has_changed {
            self.publish();
        }
    }

    fn publish(&self) {
        let parts = self.inner.parts.lock();
        let (file, envoy) = (Arc::clone(&parts.file), Arc::clone(&parts.envoy));
        self.inner.engine.replace(Book { tenants: parts.sets.clone(), file, envoy });
    }
}

impl<T> Followed<T> {
    /// The rules on disk, if they are other than before and right. Where there were rules, an empty file is not.
    fn changed(&self, has_rules: bool) -> Option<T> {
        let texts = self.files.texts();
        let mut last = self.last.lock();
        if texts == *last {
            return None;
        }
        let parsed = texts.as_ref().map_err(Clone::clone).and_then(|texts| match has_rules && texts.is_blank() {
            true => Err(format!("{} is empty: if no rules are meant, write `rule = []`", self.files.path.display())),
            false => self.files.parse(texts).map_err(|invalid| invalid.problem),
        });
        *last = texts;
        metrics::gauge!(RULES_REFUSED, "setting" => self.files.key).set(if parsed.is_err() { 1.0 } else { 0.0 });
        match parsed {
            Ok(rules) => {
                tracing::info!(setting = self.files.key, "The rules were read again.");
                Some(rules)
            }
            Err(problem) => {
                tracing::warn!(setting = self.files.key, %problem, "The new rules are wrong; the old ones stay in force.");
                None
            }
        }
    }
}

impl Parts {
    fn take(&mut self, changes: Vec<Change>) {
        let mut touched = HashSet::new();
        for change in changes {
            let (tenant, id, rule) = match change {
                Change::Written(row) => {
                    (row.tenant.clone(), row.id.clone(), row.compile().map(|rule| (row.created_at, rule)))
                }
                Change::Deleted { tenant, id } => (tenant, id, None),
            };
            let tenant: Arc<str> = tenant.into();
            let own = self.own.entry(Arc::clone(&tenant)).or_default();
            match rule {
                Some(rule) => drop(own.insert(id.into(), rule)),
                None => drop(own.remove(id.as_str())),
            }
            touched.insert(tenant);
        }
        for tenant in touched {
            match self.own.get(&tenant).filter(|own| !own.is_empty()) {
                Some(own) => drop(self.sets.insert(tenant, Arc::new(in_order(own)))),
                None => {
                    self.own.remove(&tenant);
                    self.sets.remove(&tenant);
                }
            }
        }
    }
}

/// The one made first comes first; of the same moment, the one whose id does.
fn in_order(own: &Own) -> RuleSet {
    let mut rules: Vec<_> = own.iter().map(|(id, (made_at, rule))| (made_at, id, rule)).collect();
    rules.sort_unstable_by_key(|(made_at, id, _)| (*made_at, *id));
    RuleSet::new(rules.into_iter().map(|(_, _, rule)| Arc::clone(rule)))
}

impl RuleRow {
    /// What was checked at write time compiles; a row that does not (another version wrote it) is left out, loudly.
    fn compile(&self) -> Option<Arc<Rule>> {
        let rule = self.written.compile(self.id.as_str().into(), Source::Api);
        let told = |error: &platform::config::Invalid| {
            tracing::error!(rule = self.id, %error, "A stored rule cannot be used.");
        };
        rule.inspect_err(told).ok().map(Arc::new)
    }
}
