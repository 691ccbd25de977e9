//! The section `[dispatch]`.

use std::time::Duration;

use platform::{
    config::{Invalid, Size, Span, TEN_YEARS},
    http_client::Network,
};
use serde::Deserialize;

/// No replica may be configured to hold a delivery for longer.
pub const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub retry_poll_interval: Span,
    pub retry_batch_size: u32,
    pub lease: Span,
    pub max_in_flight: usize,
    pub max_events: usize,
    pub max_event: Size,
    pub retention: Span,
    pub allow_networks: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Look for due deliveries at least this often.
    pub poll_interval: Duration,
    /// Claim at most this many at a time.
    pub batch_size: u32,
    /// How long a claimed delivery belongs to its worker.
    pub lease: Duration,
    /// Calls of this process at one time.
    pub max_in_flight: usize,
    /// Events of one request.
    pub max_events: usize,
    /// Bytes of one event.
    pub max_event: usize,
    /// How long events and their deliveries are kept.
    pub retention: Duration,
    /// Private networks that webhooks may go to.
    pub allow_networks: Vec<Network>,
}

impl TryFrom<File> for Config {
    type Error = Invalid;

    fn try_from(file: File) -> Result<Self, Invalid> {
        let count = |key: &str, value: usize, most: usize| match value {
            1.. if value <= most => Ok(value),
            _ => Err(Invalid::new(key, format!("{value} is out of range: use 1 to {most}"))),
        };
        let (short, day) = (Duration::from_millis(10), Duration::from_secs(86_400));
        let Size(max_event) = file.max_event;
        let network = |text: &String| Network::parse("dispatch.allow_networks", text);
        count("dispatch.retry_batch_size", file.retry_batch_size as usize, 10_000)?;
        Ok(Config {
            poll_interval: file.retry_poll_interval.within("dispatch.retry_poll_interval", short, day)?,
            batch_size: file.retry_batch_size,
            lease: file.lease.within("dispatch.lease", Duration::from_secs(5), LONGEST_LEASE)?,
            max_in_flight: count("dispatch.max_in_flight", file.max_in_flight, 100_000)?,
            max_events: count("dispatch.max_events", file.max_events, 100_000)?,
            max_event: count("dispatch.max_event", max_event, 16 << 20)?,
            retention: file.retention.within("dispatch.retention", day, TEN_YEARS)?,
            allow_networks: file.allow_networks.iter().map(network).collect::<Result<_, _>>()?,
        })
    }
}
