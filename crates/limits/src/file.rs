//! Rules in files: read, checked, and followed within a second.
//!
//! A file is read again and again and compared as a whole, so it does not matter how it changes: written in place, renamed
//! over, or swapped behind a link as Kubernetes does. A file that became wrong keeps the old rules and says why, once. So does
//! one that became empty: who writes in place may truncate first. So does a folder: its volume may not be mounted.

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use platform::config::Invalid;
use serde::Deserialize;

use crate::{
    config::Config,
    envoy::{self, Domains},
    rule::{Algorithm, RuleSet, Source, Written},
};

/// The longest file of rules that is read.
const MOST_BYTES: u64 = 16 << 20;

/// What is wrong in a file, and where.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) line: u64,
    pub(crate) field: String,
    pub(crate) problem: String,
}

impl Mistake {
    pub(crate) fn new(line: u64, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Mistake { line, field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "line {}: {}", self.line, self.problem),
            field => write!(f, "line {}: {field}: {}", self.line, self.problem),
        }
    }
}

/// The texts of the files, as they are on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Vec<(PathBuf, String)>);

impl Texts {
    /// Is there nothing but white space? Who wants no rules says so: `rule = []`, or a comment.
    pub(crate) fn is_blank(&self) -> bool {
        self.0.iter().all(|(_, text)| text.trim().is_empty())
    }
}

/// The files of one kind: their place, and how their texts become rules.
#[derive(Clone, Debug)]
pub(crate) struct Files<T> {
    /// The setting that names them.
    pub(crate) key: &'static str,
    pub(crate) path: PathBuf,
    /// May the path be a folder of YAML files?
    pub(crate) may_be_folder: bool,
    pub(crate) read: fn(&Texts, Algorithm) -> Result<T, String>,
    pub(crate) algorithm: Algorithm,
}

impl<T> Files<T> {
    /// The rules on disk.
    pub(crate) fn load(&self) -> Result<(Texts, T), Invalid> {
        let texts = self.texts().map_err(|problem| Invalid::new(self.key, problem))?;
        let rules = self.parse(&texts)?;
        Ok((texts, rules))
    }

    pub(crate) fn parse(&self, texts: &Texts) -> Result<T, Invalid> {
        (self.read)(texts, self.algorithm).map_err(|problem| Invalid::new(self.key, problem))
    }

    /// Reads the file, or every YAML file of the folder in the order of their names.
    pub(crate) fn texts(&self) -> Result<Texts, String> {
        let unreadable = |path: &Path, error: &io::Error| format!("{} could not be read: {error}", path.display());
        let metadata = fs::metadata(&self.path).map_err(|error| unreadable(&self.path, &error))?;
        let mut paths = vec![self.path.clone()];
        if metadata.is_dir() {
            if !self.may_be_folder {
                return Err(format!("{} is a folder: name a file", self.path.display()));
            }
            let entries = fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let entries = entries.map_err(|error| unreadable(&self.path, &error))?;
            let is_yaml = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml");
            paths = entries.into_iter().map(|entry| entry.path()).filter(is_yaml).collect();
            paths.sort();
            if paths.is_empty() {
                return Err(format!("{} has no file that ends in .yaml or .yml", self.path.display()));
            }
        }
        let text = |path: PathBuf| {
            let length = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?.len();
            if length > MOST_BYTES {
                return Err(format!("{} is larger than {MOST_BYTES} bytes", path.display()));
            }
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            Ok((path, text))
        };
        paths.into_iter().map(text).collect::<Result<_, _>>().map(Texts)
    }
}

/// The two kinds of files that the settings name.
pub(crate) fn rules(config: &Config) -> Option<Files<RuleSet>> {
    let path = config.rules_file.clone()?;
    let (key, read, algorithm) = ("limits.rules_file", read_rules, config.envoy_algorithm);
    Some(Files { key, path, may_be_folder: false, read, algorithm })
}

pub(crate) fn envoy(config: &Config) -> Option<Files<Domains>> {
    let path = config.envoy_file.clone()?;
    let (key, read, algorithm) = ("limits.envoy_file", read_envoy, config.envoy_algorithm);
    Some(Files { key, path, may_be_folder: true, read, algorithm })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesIn {
    #[serde(default)]
    rule: Vec<toml::Spanned<Written>>,
}

fn read_rules(texts: &Texts, _: Algorithm) -> Result<RuleSet, String> {
    let (mut rules, mut ids) = (Vec::new(), HashMap::new());
    for (path, text) in &texts.0 {
        let told = |mistake: Mistake| format!("{} {mistake}", path.display());
        let file: RulesIn = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(text, span.start));
            told(Mistake::new(line, "", error.message()))
        })?;
        for written in file.rule {
            let line = line_at(text, written.span().start);
            let written = written.into_inner();
            if let Some(id) = &written.id
                && let Some(first) = ids.insert(id.clone(), line)
            {
                let problem = format!("the rule in line {first} has the id {id:?} already: choose another");
                return Err(told(Mistake::new(line, "id", problem)));
            }
            let name = written.id.clone().unwrap_or_else(|| written.key.clone());
            let rule = written.check(name.into(), Source::File);
            rules.push(Arc::new(rule.map_err(|wrong| told(Mistake::new(line, wrong.key, wrong.problem)))?));
        }
    }
    Ok(RuleSet::new(rules))
}

fn read_envoy(texts: &Texts, algorithm: Algorithm) -> Result<Domains, String> {
    let mut domains = Domains::default();
    for (path, text) in &texts.0 {
        let told = |mistake: Mistake| format!("{} {mistake}", path.display());
        let (name, domain) = envoy::parse(text, algorithm).map_err(told)?;
        let problem = format!("another file describes the domain {name:?} already: join the two");
        if !domains.insert(name, domain) {
            return Err(told(Mistake::new(1, "domain", problem)));
        }
    }
    Ok(domains)
}

fn line_at(text: &str, offset: usize) -> u64 {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}
