//! `cargo run --release -p gate --features bench --example bench -- [redis-url]`: the gate's own figures.

use std::error::Error;

use gate::bench::{Options, run};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options { redis_url: std::env::args().nth(1), ..Options::default() };
    run(&options, &mut std::io::stdout()).await?;
    Ok(())
}
