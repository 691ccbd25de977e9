//! What stands in for Kafka in a binary that was built without it. No value of these types can exist.

use platform::shutdown::Tasks;
use time::OffsetDateTime;

use super::{Config, Outgoing};
use crate::error::Error;

#[derive(Clone)]
pub enum Producer {}

impl Producer {
    pub async fn start(_: Config, _: usize, _: &Tasks) -> Result<Self, Error> {
        Err(Error::NoKafka)
    }

    pub fn falls_back(&self) -> bool {
        match *self {}
    }

    pub fn is_away(&self) -> bool {
        match *self {}
    }

    pub async fn send(&self, _: &Outgoing<'_>) -> Result<OffsetDateTime, Error> {
        match *self {}
    }

    pub async fn send_all(&self, _: &[Outgoing<'_>]) -> Vec<Result<OffsetDateTime, Error>> {
        match *self {}
    }

    pub async fn probe(&self) -> Result<(), Error> {
        match *self {}
    }
}
