//! Replies of scripts: one integer, or a small array of integers that are never negative.

use redis::Value;

use crate::Error;

pub(crate) fn integer(value: &Value) -> Result<u64, Error> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| Error::UnexpectedReply),
        _ => Err(Error::UnexpectedReply),
    }
}

pub(crate) fn integers(value: &Value) -> Result<Vec<u64>, Error> {
    match value {
        Value::Array(values) => values.iter().map(integer).collect(),
        _ => Err(Error::UnexpectedReply),
    }
}

/// A count that fits 32 bits, as every limit does.
pub(crate) fn small(number: u64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::UnexpectedReply)
}
