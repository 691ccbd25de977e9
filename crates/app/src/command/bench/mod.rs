//! `tidegate bench`: the tables of docs/performance.md. Each figure stands beside the bare limit of the same run.

mod bare;
mod cpu;
mod dispatch;
mod fleet;
mod rounds;
mod rows;
mod stores;

use anyhow::Context;

use crate::{
    cli::{self, Bench, Source},
    config::Config,
    serve,
};

pub(super) async fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Gate(source) => gate(source).await,
        Bench::Limits { source, only } => limits(source, *only).await,
        Bench::Dispatch(arguments) => dispatch::run(arguments).await,
        Bench::BareIntake { addr } => bare::serve_intake(*addr).await,
        Bench::Bare { http, grpc } => limits::bench::serve_bare(*http, *grpc).await.context("a handler failed"),
    }
}

async fn gate(source: &Source) -> anyhow::Result<()> {
    let redis_url = Config::load(&source.layers()?)?.redis.map(|redis| redis.server.url);
    let options = gate::bench::Options { redis_url, ..gate::bench::Options::default() };
    gate::bench::run(&options, &mut std::io::stdout()).await.context("the bench did not end")?;
    Ok(())
}

async fn limits(source: &Source, only: Option<limits::bench::Section>) -> anyhow::Result<()> {
    let redis_url = Config::load(&source.layers()?)?.redis.map(|redis| redis.server.url);
    serve::allow_many_files();
    let options = limits::bench::Options {
        only,
        program: std::env::current_exe().context("this binary does not know where it lies")?,
        throttlecrab: cli::throttlecrab(),
        redis_url,
        turn: std::time::Duration::from_millis(400),
        turns: 10,
    };
    limits::bench::run(&options, &mut std::io::stdout()).await.context("the bench did not end")?;
    Ok(())
}
