//! `servers`: the servers behind the tests and for local work, as a command for the Makefile.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a command of the test harness speaks to its user and measures its own waits"
)]

mod local;
mod run;
mod tally;

use std::{env, process::ExitCode};

const HELP: &str = "\
Real Redis, PostgreSQL and Kafka, for tests and for local work.

Usage:
  servers run -- <command>..   start all three for the command, count the tests that used them, leave nothing running;
                               fails where no test ran
  servers with -- <command>..  the same for a command that is no test run, such as a bench: with more memory for PostgreSQL
                               and Kafka, and past their first minute
  servers up   [options]       start them for local work and print the environment to use; does nothing where they run
  servers down [options]       stop what `up` started
  servers fetch                only fetch Kafka into the cache folder, so that the rest works offline

Options of up and down (give both the same):
  --data <folder>         where data, logs and pid files lie     [default: target/servers]
  --redis-port <port>     [default: 6390]
  --postgres-port <port>  [default: 5490]
  --kafka-port <port>     [default: 9390; the controller takes the next one]
  --wipe                  down only: remove the data too

Example:
  servers run -- cargo test --workspace
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["run", "--", program, args @ ..] => run::tests(program, args),
        ["with", "--", program, args @ ..] => run::command(program, args),
        ["up", options @ ..] => local::up(options),
        ["down", options @ ..] => local::down(options),
        ["fetch"] => testkit::kafka::jars::fetch().map(|folder| {
            println!("servers: Kafka {} is in {}", testkit::kafka::jars::VERSION, folder.display());
            ExitCode::SUCCESS
        }),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(format!("these arguments make no sense: {}\n\n{HELP}", args.join(" "))),
    };
    done.unwrap_or_else(|error| {
        eprintln!("servers: {error}");
        ExitCode::from(2)
    })
}
