//! The units of Envoy's limits.

use std::time::Duration;

use serde::Deserialize;

/// As in Envoy ratelimit a month has 30 days and a year 365; for real months there are calendar quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    #[serde(alias = "SECOND")]
    Second,
    #[serde(alias = "MINUTE")]
    Minute,
    #[serde(alias = "HOUR")]
    Hour,
    #[serde(alias = "DAY")]
    Day,
    #[serde(alias = "WEEK")]
    Week,
    #[serde(alias = "MONTH")]
    Month,
    #[serde(alias = "YEAR")]
    Year,
}

impl Unit {
    pub fn length(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
        })
    }
}
