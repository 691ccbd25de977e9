//! The table of `tidegate bench limits`: what a check over HTTP costs beside a handler that decides nothing, what it costs
//! on Redis beside the bare script, and beside each speed what was admitted too much or too little.
//!
//! `peers` has the rest of the table: the binary as users run it, over every protocol, beside throttlecrab-server.
//!
//! Client and server share the machine, the process and its runtime; both sides of a comparison run in turns, and the
//! best turn of each counts. Only ratios mean something elsewhere.

mod client;
pub mod peers;
mod server;

use std::{io, io::Write, time::Duration};

use gate::{
    Key,
    bench::{BenchError, Row, bare_checks, write_head},
};

use self::{
    client::{Load, Turn},
    server::Server,
};

/// Connections of the closed loop.
const CONNECTIONS: usize = 64;
/// Keys that are checked in turn.
const KEYS: usize = 10_000;
/// What the one hot key may do in a second.
const HOT_PER_SECOND: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct Options {
    /// Without it only memory is measured.
    pub redis_url: Option<String>,
    /// Time per measured turn.
    pub turn: Duration,
    /// Turns of each side.
    pub turns: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { redis_url: None, turn: Duration::from_millis(700), turns: 5 }
    }
}

/// Why a bench could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Gate(#[from] gate::Error),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("the database of the bench does not open")]
    Database(#[from] platform::db::Error),
    #[error("the limits of the bench do not start")]
    Limits(#[from] crate::Error),
    #[error("a call of the bench failed")]
    Io(#[from] io::Error),
}

/// Measures, and writes the table row by row as it goes.
pub async fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    write_head(out)?;
    let mut add = |row: Row| -> Result<(), Error> {
        row.write(out)?;
        rows.push(row);
        Ok(())
    };
    let memory = Server::start(None).await?;
    for row in in_memory(&memory, options).await? {
        add(row)?;
    }
    memory.stop().await;
    if let Some(url) = &options.redis_url {
        let shared = Server::start(Some(url)).await?;
        for row in in_redis(&shared, url, options).await? {
            add(row)?;
        }
        shared.stop().await;
    }
    Ok(rows)
}

async fn in_memory(server: &Server, options: &Options) -> Result<Vec<Row>, Error> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.turns {
        bare.push(client::closed_loop(server.bare, Load::spread(CONNECTIONS, KEYS), options.turn).await?);
        ours.push(client::closed_loop(server.ours, Load::spread(CONNECTIONS, KEYS), options.turn).await?);
    }
    let (bare, ours) = (best(bare), best(ours));
    let against = format!("a handler that answers the same bytes, {CONNECTIONS} connections");
    let mut rows = vec![
        row(against.clone(), &bare),
        Row {
            against: Some((against, ours.per_second() / bare.per_second())),
            over_under: Some((0.0, ours.missing())),
            ..row(format!("HTTP check in memory, {CONNECTIONS} connections"), &ours)
        },
    ];
    rows.push(half_load("HTTP check in memory", server, ours.per_second(), options).await?);
    rows.push(hot_key("in memory", server, options).await?);
    Ok(rows)
}

async fn in_redis(server: &Server, url: &str, options: &Options) -> Result<Vec<Row>, Error> {
    let keys = (0..KEYS).map(|n| Key::new(format!("default/k/key-{n}"))).collect::<Result<Vec<_>, _>>()?;
    let bare = bare_checks(url, CONNECTIONS, &keys, options.turn, options.turns).await?;
    let mut ours = Vec::new();
    for _ in 0..options.turns {
        ours.push(client::closed_loop(server.ours, Load::spread(CONNECTIONS, KEYS), options.turn).await?);
    }
    let ours = best(ours);
    let against = format!("bare script, pipelined {CONNECTIONS} deep");
    let mut rows = vec![
        Row { what: against.clone(), figure: bare, unit: "/s", ..Row::default() },
        Row {
            against: Some((against, ours.per_second() / bare)),
            over_under: Some((0.0, ours.missing())),
            ..row(format!("HTTP check in Redis, {CONNECTIONS} connections"), &ours)
        },
    ];
    rows.push(half_load("HTTP check in Redis", server, ours.per_second(), options).await?);
    rows.push(hot_key("in Redis", server, options).await?);
    Ok(rows)
}

/// At half of what it can do, from a schedule: a call that starts late counts from when it was due.
async fn half_load(what: &str, server: &Server, most_per_second: f64, options: &Options) -> Result<Row, Error> {
    let turn = client::open_loop(server.ours, Load::spread(CONNECTIONS, KEYS), most_per_second / 2.0, options.turn * 3);
    let turn = turn.await?;
    Ok(Row { over_under: Some((0.0, turn.missing())), ..row(format!("{what}, half of that on schedule"), &turn) })
}

/// One key above its limit: what passes is what the limit says.
async fn hot_key(place: &str, server: &Server, options: &Options) -> Result<Row, Error> {
    let lasting = options.turn.max(Duration::from_secs(2));
    let turn = client::closed_loop(server.ours, Load::hot(CONNECTIONS), lasting).await?;
    let owed = HOT_PER_SECOND as f64 * turn.elapsed.as_secs_f64();
    let bound = owed + HOT_PER_SECOND as f64;
    let admitted = turn.admitted as f64;
    let over_under = (((admitted - bound) / bound * 100.0).max(0.0), ((owed - admitted) / owed * 100.0).max(0.0));
    let what = format!("one hot key {place}, {HOT_PER_SECOND}/s allowed, {CONNECTIONS} connections");
    Ok(Row { over_under: Some(over_under), ..row(what, &turn) })
}

fn best(turns: Vec<Turn>) -> Turn {
    turns.into_iter().max_by(|a, b| a.per_second().total_cmp(&b.per_second())).unwrap_or_default()
}

fn row(what: String, turn: &Turn) -> Row {
    let (p50, p99) = (turn.quantile(0.5), turn.quantile(0.99));
    Row { what, figure: turn.per_second(), unit: "/s", p50, p99, ..Row::default() }
}
