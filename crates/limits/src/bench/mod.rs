//! The table of `tidegate bench limits`: the service as users run it, over each protocol, beside bare handlers that decide
//! nothing, beside throttlecrab-server, and on Redis beside the bare script. Next to each speed stands what was admitted too
//! much or too little, and in *against* what we want to reach.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`servers`], [`bare`] | ours, throttlecrab-server and the bare handlers, each a process of its own |
//! | [`load`] | closed loops and schedules over connections that stay open |
//! | [`resp`], [`grpc`], [`http`] | a client and the rows of each protocol |
//!
//! What is compared runs in many short turns in turn, and the best of each side counts: fair to both on a busy machine.

mod bare;
mod grpc;
mod http;
mod load;
mod resp;
mod servers;

use std::{
    io::{self, Write},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

pub use self::bare::serve as serve_bare;
use self::servers::{Bare, Ours, Throttlecrab};
use gate::{
    Key,
    bench::{BenchError as GateError, Row, bare_checks, write_head},
};

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Http,
    Grpc,
    Resp,
    /// All three, on Redis.
    Redis,
}

impl FromStr for Section {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Section, BenchError> {
        match text {
            "http" => Ok(Section::Http),
            "grpc" => Ok(Section::Grpc),
            "resp" => Ok(Section::Resp),
            "redis" => Ok(Section::Redis),
            _ => Err(BenchError::NoSection),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// One section, or all.
    pub only: Option<Section>,
    /// This binary.
    pub program: PathBuf,
    /// throttlecrab-server; its rows are left out where it cannot be started.
    pub throttlecrab: PathBuf,
    /// Without it only memory is measured.
    pub redis_url: Option<String>,
    /// Time per measured turn.
    pub turn: Duration,
    /// Turns of each side.
    pub turns: usize,
}

/// Why a bench could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("the sections are http, grpc, resp and redis")]
    NoSection,
    #[error("{0} did not start")]
    NotStarted(&'static str),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("a limit is refused")]
    Limit(#[from] gate::Error),
    #[error("a call over gRPC failed")]
    Grpc(#[from] h2::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Measures, and writes the table row by row as it goes.
pub async fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<Vec<Row>, BenchError> {
    write_head(out)?;
    let ours = Ours::start(&options.program, None).await?;
    let bare = Bare::start(&options.program).await?;
    let peer = Throttlecrab::start(&options.throttlecrab).await;
    let mut rows = Vec::new();
    let mut add = |measured: Vec<Row>| -> Result<(), BenchError> {
        for row in measured {
            row.write(out)?;
            rows.push(row);
        }
        Ok(())
    };
    let has = |section| options.only.is_none_or(|only| only == section);
    if has(Section::Http) {
        add(http::measure(options, &ours, &bare, peer.as_ref()).await?)?;
    }
    if has(Section::Grpc) {
        add(grpc::measure(options, &ours, &bare, peer.as_ref()).await?)?;
    }
    if has(Section::Resp) {
        add(resp::measure(options, &ours, peer.as_ref()).await?)?;
    }
    let has_peer = peer.is_some();
    drop((ours, bare, peer));
    if let Some(url) = options.redis_url.as_ref().filter(|_| has(Section::Redis)) {
        let shared = Ours::start(&options.program, Some(url)).await?;
        add(http::measure_shared(options, &shared, url).await?)?;
        add(grpc::measure_shared(options, &shared, url).await?)?;
        add(resp::measure_shared(options, &shared, url).await?)?;
    }
    if !has_peer {
        writeln!(out, "\nthrottlecrab-server is not here, so its rows are missing: cargo install throttlecrab-server")?;
    }
    Ok(rows)
}

/// What Redis does when the limiter's script is sent bare, in pipelines so deep.
async fn bare_script(url: &str, depth: usize, options: &Options) -> Result<f64, BenchError> {
    let keys = (0..load::KEYS).map(|n| Key::new(format!("user-{n:07}"))).collect::<Result<Vec<_>, _>>()?;
    Ok(bare_checks(url, depth, &keys, options.turn, options.turns).await?)
}
