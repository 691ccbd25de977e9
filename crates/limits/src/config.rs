//! The section `[limits]`.

use std::path::PathBuf;

use platform::config::Invalid;
use serde::Deserialize;

use crate::rule::Algorithm;

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

    fn try_from(file: File) -> Result<Self, Invalid> {
        if !(0.0..=1.0).contains(&file.log_sample) {
            let problem = format!("{} is out of range: use 0 (nothing) to 1 (every decision)", file.log_sample);
            return Err(Invalid::new("limits.log_sample", problem));
        }
        let named = |path: PathBuf| (!path.as_os_str().is_empty()).then_some(path);
        Ok(Config {
            rules_file: named(file.rules_file),
            envoy_file: named(file.envoy_file),
            envoy_algorithm: file.envoy_algorithm,
            log_sample: file.log_sample,
        })
    }
}
