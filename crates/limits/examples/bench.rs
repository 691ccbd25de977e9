//! The HTTP part of `tidegate bench limits`, without the rest of the binary around it: a shorter build while tuning.

use limits::bench::{Options, run};

#[tokio::main]
async fn main() -> Result<(), limits::bench::Error> {
    let options = Options { redis_url: std::env::args().nth(1), ..Options::default() };
    run(&options, &mut std::io::stdout()).await.map(drop)
}
