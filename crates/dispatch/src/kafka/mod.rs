//! Kafka as the fast lane: intake writes records, workers turn them into rows and deliver.
//!
//! A record is durable when the API says 202. Its offset is committed after its rows are written, never before; from then
//! on the rows alone count, so a slow destination holds up no partition and a rebalance loses nothing. Reading a record
//! again changes nothing: its id is known. Without the cargo feature `kafka` only the configuration is here.

#[cfg(not(feature = "kafka"))]
mod absent;
#[cfg(feature = "kafka")]
mod client;
pub mod config;
#[cfg(feature = "kafka")]
mod consumer;
#[cfg(feature = "kafka")]
mod lag;
mod ours;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
pub mod record;
#[cfg(feature = "kafka")]
mod take;
#[cfg(feature = "kafka")]
mod tenants;
#[cfg(feature = "kafka")]
mod tracker;

#[cfg(not(feature = "kafka"))]
pub use self::absent::Producer;
pub use self::config::Config;
#[cfg(feature = "kafka")]
pub use self::{client::delete_topic, producer::Producer};
#[cfg(feature = "kafka")]
pub(crate) use self::{consumer::consume, take::Taking};

/// The shape of the records that this version writes, and reads.
pub const VERSION: u32 = 1;

/// An event on its way into the topic.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Of the record's shape: [`VERSION`].
    pub version: u32,
    pub tenant: &'a str,
    /// Equal keys keep their order.
    pub key: &'a str,
    /// Set where the value holds none.
    pub id: Option<&'a str>,
    /// The event as JSON, as the API takes it.
    pub value: &'a [u8],
    /// Of the subscriptions, as its taker knew them.
    pub catalog_version: i64,
    pub traceparent: Option<String>,
}
