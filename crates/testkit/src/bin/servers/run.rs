//! `servers run`: shared servers around one command, its output passed through as it comes, and a summary.

use std::{
    env, fs,
    io::{self, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::Instant,
};

use testkit::{
    Server, Unavailable, find, kafka,
    ledger::{self, Summary},
    postgres, redis,
};

use crate::tally::Tally;

const WRAPPER: &str = include_str!("run.sh");

/// Runs tests: a summary in the end, and a failure where none ran.
pub(crate) fn tests(program: &str, args: &[&str]) -> Result<ExitCode, String> {
    let (status, summary, tally) = run(Servers::start(&kafka::Settings::default(), &[])?, program, args)?;
    print!("{}", report(&summary, &tally));
    let code = code(status);
    if code == 0 && tally.passed + tally.failed == 0 {
        eprintln!("servers: no test ran");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::from(code.max(u8::from(tally.failed > 0))))
}

/// What a PostgreSQL that has been up for a while has done: its buffers are filled, and the files of its log, as many as it ever needs
/// between two checkpoints, are there to be used again. One that is new pays for each page and each file while it is measured: making
/// files was an eighth of its time.
const SETTLE_IN: [&str; 9] = [
    "CREATE TABLE settled (line text)",
    "INSERT INTO settled SELECT repeat('x', 1000) FROM generate_series(1, 1000000)",
    "CHECKPOINT",
    "TRUNCATE settled",
    "INSERT INTO settled SELECT repeat('x', 1000) FROM generate_series(1, 1000000)",
    "DROP TABLE settled",
    "CHECKPOINT",
    "DO $$ BEGIN FOR file IN 1..256 LOOP PERFORM pg_logical_emit_message(FALSE, 'settle', 'in'), pg_switch_wal(); END LOOP; END $$",
    "CHECKPOINT",
];

/// Runs anything else, such as a bench: on servers with the memory that one gives them for a load, and past their first minute.
pub(crate) fn command(program: &str, args: &[&str]) -> Result<ExitCode, String> {
    let kafka = kafka::Settings { heap_mb: 1024, ..kafka::Settings::default() };
    let servers = Servers::start(&kafka, &["shared_buffers=1GB", "max_wal_size=8GB", "min_wal_size=4GB"])?;
    if let Ok(postgres) = &servers.postgres {
        eprintln!("servers: PostgreSQL settles in (some 30 s)");
        for statement in SETTLE_IN {
            postgres.sql(statement);
        }
    }
    let (status, ..) = run(servers, program, args)?;
    Ok(ExitCode::from(code(status)))
}

/// As a shell would say it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn run(servers: Servers, program: &str, args: &[&str]) -> Result<(ExitStatus, Summary, Tally), String> {
    let folder = env::temp_dir().join(format!("testkit-run-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    let lines = folder.join("ledger");
    let mut command = Command::new("sh");
    command.args(["-c", WRAPPER, "servers-run"]).arg(&folder).arg(program).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command.env(ledger::VARIABLE, &lines).envs(servers.environment());
    let done = watch(command, &lines).map_err(|error| format!("{program} cannot be watched: {error}"));
    drop(servers);
    done
}

/// The wrapper's stdin is let go only when the command has ended and its ledger is read: that kills what is left of its
/// process group, which may still hold the other end of the output.
fn watch(mut command: Command, lines: &Path) -> io::Result<(ExitStatus, Summary, Tally)> {
    let mut child = command.spawn()?;
    let (stdin, output) = (child.stdin.take(), child.stdout.take());
    thread::scope(|scope| {
        let reader = scope.spawn(|| pass_on(output.ok_or(io::ErrorKind::BrokenPipe)?));
        let status = child.wait();
        let summary = Summary::read(lines).unwrap_or_default();
        drop(stdin);
        let tally = reader.join().map_err(|_| io::Error::other("the reader panicked"))?;
        Ok((status?, summary, tally?))
    })
}

/// Byte for byte and at once: progress must be seen while it happens.
fn pass_on(mut output: impl Read) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let mut buffer = [0; 8192];
    loop {
        let count = output.read(&mut buffer)?;
        if count == 0 {
            return Ok(tally);
        }
        let mut screen = io::stdout().lock();
        screen.write_all(&buffer[..count])?;
        screen.flush()?;
        tally.read(&buffer[..count]);
    }
}

/// A skipped test returns early, which the runner counts as passed; here it does not.
fn report(summary: &Summary, tally: &Tally) -> String {
    let [redis, postgres, kafka] = summary.used;
    let skips = summary.skipped.len();
    let mut text =
        format!("\nservers: {redis} tests used Redis, {postgres} PostgreSQL, {kafka} Kafka; {skips} skipped\n");
    for (test, reason) in &summary.skipped {
        text.push_str(&format!("skipped {test}: {reason}\n"));
    }
    let passed = tally.passed.saturating_sub(skips);
    text.push_str(&format!("{passed} passed, {} failed, {} skipped\n", tally.failed, skips + tally.ignored));
    text
}

/// The three shared servers, or why there is none. They end when this is dropped.
struct Servers {
    redis: Result<redis::Server, Unavailable>,
    postgres: Result<postgres::Server, Unavailable>,
    kafka: Result<kafka::Broker, Unavailable>,
}

impl Servers {
    fn start(kafka: &kafka::Settings, postgres: &[&str]) -> Result<Servers, String> {
        let start = Instant::now();
        let panicked = |_| "a start panicked".to_owned();
        let servers = thread::scope(|scope| {
            let redis = scope.spawn(redis::Server::start);
            let postgres = scope.spawn(|| postgres::Server::start_with(postgres));
            let kafka = kafka::Broker::start_with(kafka);
            let redis = redis.join().map_err(panicked)?;
            let postgres = postgres.join().map_err(panicked)?;
            Ok::<_, String>(Servers { redis, postgres, kafka })
        })?;
        for (server, address) in servers.addresses() {
            match address {
                Ok(address) => eprintln!("servers: {} on {address}", server.name()),
                Err(unavailable) => eprintln!("servers: {unavailable}"),
            }
        }
        eprintln!("servers: ready in {:.1} s", start.elapsed().as_secs_f64());
        Ok(servers)
    }

    fn addresses(&self) -> [(Server, Result<String, &Unavailable>); 3] {
        let address = |port: u16| format!("127.0.0.1:{port}");
        [
            (Server::Redis, self.redis.as_ref().map(|server| address(server.port()))),
            (Server::PostgreSql, self.postgres.as_ref().map(|server| address(server.port()))),
            (Server::Kafka, self.kafka.as_ref().map(|broker| address(broker.port()))),
        ]
    }

    fn environment(&self) -> [(&'static str, String); 3] {
        self.addresses().map(|(server, address)| {
            let value = address.unwrap_or_else(|unavailable| find::UNAVAILABLE.to_owned() + &unavailable.reason);
            (server.variable(), value)
        })
    }
}
