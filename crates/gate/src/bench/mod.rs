//! The table of `tidegate bench gate`: speed, and beside each speed what was admitted too much or too little.
//!
//! Everything that is compared runs in one process and one run, in many short turns, and the best turn of each side
//! counts: that is fair to both on a machine with other work. Only ratios mean something elsewhere.

mod memory;
mod rounds;
mod shared;
mod table;

use std::io::{self, Write};
use std::time::Duration;

pub use self::shared::bare_checks;
pub use self::table::{Row, write_head};

use crate::Error;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Without it only memory is measured.
    pub redis_url: Option<String>,
    /// Time per measured turn.
    pub turn: Duration,
    /// Turns of each side.
    pub turns: usize,
    /// Keys in the test of memory per key.
    pub many_keys: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { redis_url: None, turn: Duration::from_millis(150), turns: 15, many_keys: 1_000_000 }
    }
}

/// Why a bench could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Gate(#[from] Error),
    #[error("redis refused what the bench needs")]
    Redis(#[from] redis::RedisError),
    #[error("the table could not be written")]
    Write(#[from] io::Error),
}

/// Measures, and writes the table row by row as it goes.
pub async fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    table::write_head(out)?;
    let mut add = |row: Row| -> Result<(), BenchError> {
        row.write(out)?;
        rows.push(row);
        Ok(())
    };
    for row in memory::measure(options) {
        add(row)?;
    }
    if let Some(url) = &options.redis_url {
        for row in shared::measure(url, options).await? {
            add(row)?;
        }
    }
    Ok(rows)
}
