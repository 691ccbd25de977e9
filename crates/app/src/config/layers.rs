//! Layers: compiled-in defaults < file < environment < flags, with a memory of who said what.

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

use platform::config::Invalid;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::DEFAULT;

/// The short names of the environment, and the keys they mean.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("ADDR", "server.addr"),
    ("OPS_ADDR", "server.ops_addr"),
    ("GRPC_ADDR", "server.grpc_addr"),
    ("RESP_ADDR", "server.resp_addr"),
    ("TIDEGATE_ADMIN_KEY", "security.admin_key"),
    ("TIDEGATE_MASTER_KEY", "security.master_key"),
    ("DATABASE_URL", "database.url"),
    ("REDIS_URL", "redis.url"),
    ("USE_DISTRIBUTED_CB", "redis.share_circuits"),
    ("KAFKA_BROKERS", "kafka.brokers"),
    ("KAFKA_TOPIC", "kafka.topic"),
    ("KAFKA_CONSUMER_GROUP", "kafka.consumer_group"),
    ("RETRY_POLL_INTERVAL", "dispatch.retry_poll_interval"),
    ("RETRY_BATCH_SIZE", "dispatch.retry_batch_size"),
    ("SHUTDOWN_DELAY", "shutdown.delay"),
    ("DRAIN_TIMEOUT", "shutdown.drain_timeout"),
    ("SHUTDOWN_TIMEOUT", "shutdown.timeout"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
];
const PREFIX: &str = "TIDEGATE_";
const LONG_PREFIX: &str = "TIDEGATE__";
/// Never printed, whatever they hold.
const SECRETS: &[&str] = &[
    "security.admin_key",
    "security.master_key",
    "database.url",
    "redis.url",
    "kafka.password",
    "kafka.key_password",
    "kafka.client",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{source_name}: {problem}")]
    At { source_name: String, problem: String },
    #[error("the file {path} could not be read ({error}): check the path after --config")]
    Unreadable { path: String, error: std::io::Error },
    #[error("environment variable {0}: its value is not UTF-8 text: set it again, or unset it")]
    NotText(String),
}

/// All layers, merged.
#[derive(Clone)]
pub(crate) struct Layers {
    table: Table,
    /// Which layer set a key; absent means the default.
    sources: BTreeMap<String, String>,
}

impl Layers {
    pub(crate) fn defaults() -> Self {
        let table = DEFAULT.parse().expect("config/default.toml parses: a test proves it");
        Layers { table, sources: BTreeMap::new() }
    }

    pub(crate) fn with_file(mut self, path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| Error::Unreadable { path: name.clone(), error })?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            // The error's own text quotes the line, which may hold a secret.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let problem = format!("not TOML: line {}: {}", before.matches('\n').count() + 1, one_line(error.message()));
            Error::At { source_name: name.clone(), problem }
        })?;
        let mut leaves = Vec::new();
        collect_leaves(&table, "", &mut leaves);
        for (key, value) in leaves {
            let is_empty_section = value.is_table() && self.section(&key).is_some();
            if is_empty_section {
                continue;
            }
            self.set(&key, value, format!("{key} in {name}"))?;
        }
        Ok(self)
    }

    /// The long names first, the short ones over them.
    pub(crate) fn with_environment<V: Into<OsString>>(
        mut self,
        variables: impl Iterator<Item = (String, V)>,
    ) -> Result<Self, Error> {
        let variables: BTreeMap<String, OsString> = variables.map(|(name, value)| (name, value.into())).collect();
        // Passed over, an admin key that is not text would leave the door open.
        let text = |name: &str, value: &OsString| {
            let text = value.clone().into_string().map_err(|_| Error::NotText(name.to_owned()))?;
            // Secrets made from files end with a newline. One of nothing else stays, to be refused: it was set.
            let line = text.trim_end_matches(['\r', '\n']);
            Ok(if line.is_empty() { text } else { line.to_owned() })
        };
        for (name, value) in &variables {
            if let Some(path) = name.strip_prefix(LONG_PREFIX) {
                let key = path.replace("__", ".").to_lowercase();
                self.set_text(&key, &text(name, value)?, format!("environment variable {name}"))?;
            } else if let Some(meant) = self.misspelt(name) {
                let problem = format!("there is no such setting; did you mean {meant}?");
                return Err(Error::At { source_name: format!("environment variable {name}"), problem });
            }
        }
        for (name, key) in SHORT_NAMES {
            // `REDIS_URL=` in a compose file means "not set".
            if let Some(value) = variables.get(*name).filter(|value| !value.is_empty()) {
                self.set_text(key, &text(name, value)?, format!("environment variable {name}"))?;
            }
        }
        Ok(self)
    }

    pub(crate) fn with_flag(mut self, flag: &str, key: &str, text: Option<&str>) -> Result<Self, Error> {
        if let Some(text) = text {
            self.set_text(key, text, format!("flag {flag}"))?;
        }
        Ok(self)
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_path_to_error::deserialize(self.table.clone()).map_err(|error| {
            let key = error.path().to_string();
            let key = key.split('[').next().unwrap_or_default();
            self.blame(Invalid::new(key, one_line(error.inner().message())))
        })
    }

    /// A key as it would be written in the environment; `None` if it is empty.
    #[cfg(feature = "bench")]
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        let (section, name) = key.split_once('.')?;
        let text = match self.table.get(section)?.get(name)? {
            Value::String(text) => text.clone(),
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        (!text.is_empty()).then_some(text)
    }

    /// Says where a bad value came from.
    pub(crate) fn blame(&self, invalid: Invalid) -> Error {
        let source = self.sources.get(&invalid.key).cloned().unwrap_or_else(|| "configuration".to_owned());
        let problem = if source.starts_with(&invalid.key) {
            invalid.problem
        } else {
            format!("{}: {}", invalid.key, invalid.problem)
        };
        Error::At { source_name: source, problem }
    }

    /// Everything as it will be used, secrets hidden, with where each changed key came from.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.table {
            text.push_str(&format!("[{section}]\n"));
            for (name, value) in keys.as_table().into_iter().flatten() {
                let key = format!("{section}.{name}");
                let is_empty = value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
                let is_hidden = SECRETS.contains(&key.as_str()) && !is_empty;
                let value = if is_hidden { "\"***\"".to_owned() } else { value.to_string() };
                let source = self.sources.get(&key).map_or(String::new(), |source| format!("  # {source}"));
                text.push_str(&format!("{name} = {value}{source}\n"));
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len() + 1);
        text
    }

    /// A text from the environment or a flag takes the type of the default it replaces.
    fn set_text(&mut self, key: &str, text: &str, source: String) -> Result<(), Error> {
        let wrong = |expected: &str| Error::At {
            source_name: source.clone(),
            problem: format!("{key}: {text:?} is not {expected}"),
        };
        let value = match self.default(key, &source)? {
            Value::Integer(_) => Value::Integer(text.parse().map_err(|_| wrong("a whole number"))?),
            Value::Float(_) => Value::Float(text.parse().map_err(|_| wrong("a number"))?),
            Value::Boolean(_) => Value::Boolean(text.parse().map_err(|_| wrong("true or false"))?),
            Value::Array(_) if text.contains(',') && text.split(',').all(|item| item.trim().is_empty()) => {
                return Err(wrong("a list: it has commas and nothing between them"));
            }
            Value::Array(_) => Value::Array(
                text.split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(|item| Value::String(item.to_owned()))
                    .collect(),
            ),
            _ => Value::String(text.to_owned()),
        };
        self.set(key, value, source)
    }

    fn set(&mut self, key: &str, value: Value, source: String) -> Result<(), Error> {
        let default = self.default(key, &source)?;
        if !value.same_type(default) {
            let problem = format!(
                "{key}: expected {} {}, got {} {}",
                article(default),
                default.type_str(),
                article(&value),
                value.type_str()
            );
            return Err(Error::At { source_name: source, problem });
        }
        *default = value;
        self.sources.insert(key.to_owned(), source);
        Ok(())
    }

    fn default(&mut self, key: &str, source: &str) -> Result<&mut Value, Error> {
        let is_known = key
            .split_once('.')
            .is_some_and(|(section, name)| self.section(section).is_some_and(|keys| keys.contains_key(name)));
        if !is_known {
            let problem = match self.nearest(key) {
                Some(near) => format!("there is no key {key:?}; did you mean {near:?}?"),
                None => format!("there is no key {key:?}; `tidegate config print` lists all"),
            };
            return Err(Error::At { source_name: source.to_owned(), problem });
        }
        let (section, name) = key.split_once('.').expect("a known key has a section");
        Ok(&mut self.table[section][name])
    }

    fn section(&self, name: &str) -> Option<&Table> {
        self.table.get(name).and_then(Value::as_table)
    }

    /// The variable that this one is nearly. An admin key under another name would leave the door open. Most others of
    /// our prefix are none of ours: Kubernetes makes `TIDEGATE_PORT`, `TIDEGATE_SERVICE_HOST` and more for a service
    /// `tidegate`.
    fn misspelt(&self, name: &str) -> Option<String> {
        const TYPOS: usize = 2;
        let upper = name.to_ascii_uppercase();
        // The slip may be in the prefix itself.
        if !upper.starts_with(&PREFIX[..3]) || SHORT_NAMES.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let mut keys = Vec::new();
        collect_leaves(&self.table, "", &mut keys);
        let long = keys.iter().map(|(key, _)| format!("{LONG_PREFIX}{}", key.replace('.', "__").to_uppercase()));
        let short = SHORT_NAMES.iter().map(|(known, _)| (*known).to_owned()).filter(|known| known.starts_with(PREFIX));
        // Single underscores for double ones are a slip, too.
        let distance = |known: &str| strsim::osa_distance(&known.replace("__", "_"), &upper.replace("__", "_"));
        let near = short.chain(long).map(|known| (distance(&known), known)).min_by_key(|(distance, _)| *distance);
        near.filter(|(distance, _)| *distance <= TYPOS).map(|(_, known)| known)
    }

    fn nearest(&self, key: &str) -> Option<String> {
        let mut known = Vec::new();
        collect_leaves(&self.table, "", &mut known);
        let best = known
            .into_iter()
            .map(|(known, _)| (strsim::jaro_winkler(&known, key), known))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(likeness, _)| *likeness > 0.8).map(|(_, known)| known)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn article(value: &Value) -> &'static str {
    if matches!(value, Value::Integer(_) | Value::Array(_)) { "an" } else { "a" }
}

/// All `section.key`s with their values. An empty table is a leaf, so that an unknown empty section is noticed too.
fn collect_leaves(table: &Table, prefix: &str, leaves: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) if !inner.is_empty() => collect_leaves(inner, &key, leaves),
            _ => leaves.push((key, value.clone())),
        }
    }
}
