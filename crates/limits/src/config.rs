//! The section `[limits]`.

use std::path::PathBuf;

use platform::config::Invalid;
use serde::Deserialize;

use crate::{file, rule::Algorithm};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub rules_file: PathBuf,
    pub envoy_file: PathBuf,
    pub envoy_algorithm: Algorithm,
    pub log_sample: f64,
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Rules of every tenant, in TOML.
    pub rules_file: Option<PathBuf>,
    /// Envoy ratelimit's own YAML: a file, or a folder of them.
    pub envoy_file: Option<PathBuf>,
    /// How limits of that YAML count.
    pub envoy_algorithm: Algorithm,
    /// The part of the decisions that is written to the log.
    pub log_sample: f64,
}

impl TryFrom<File> for Config {
    type Error = Invalid;

    fn try_from(written: File) -> Result<Self, Invalid> {
        if !(0.0..=1.0).contains(&written.log_sample) {
            let problem = format!("{} is out of range: use 0 (nothing) to 1 (every decision)", written.log_sample);
            return Err(Invalid::new("limits.log_sample", problem));
        }
        let named = |path: PathBuf| (!path.as_os_str().is_empty()).then_some(path);
        let config = Config {
            rules_file: named(written.rules_file),
            envoy_file: named(written.envoy_file),
            envoy_algorithm: written.envoy_algorithm,
            log_sample: written.log_sample,
        };
        // A wrong file is found before anything starts; from then on it is followed.
        if let Some(files) = file::rules(&config) {
            files.load()?;
        }
        if let Some(files) = file::envoy(&config) {
            files.load()?;
        }
        Ok(config)
    }
}
