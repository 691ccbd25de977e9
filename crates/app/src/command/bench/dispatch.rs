//! `tidegate bench dispatch`: the whole way from intake to receiver, each part beside its bare limit in the same run.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use axum::{Router, extract::State, http::HeaderMap};
use bytes::Bytes;
use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use platform::{http_server, shutdown::Tasks};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{
    bare::{self, Client},
    cpu::Spent,
    fleet::{Build, Process, SinkState},
    rounds::{Rounds, Run},
    rows::{self, Row},
    stores::Stores,
};
use crate::{
    cli,
    command::{
        client::Server,
        produce::{
            load::{self, Load, Way},
            straight::Straight,
        },
        samples::Samples,
        sink, terminal,
    },
    config::Layers,
};

const PATIENCE: Duration = Duration::from_secs(60);
const IDLE_EVENTS: u64 = 300;
/// Between two bursts: the outcomes of the last one are written.
const REST: Duration = Duration::from_secs(1);
/// Other replicas know a new subscription within a second.
const SPREAD: Duration = Duration::from_secs(2);
/// Who make subscriptions at a time.
const SUBSCRIBERS: usize = 16;

struct Bench<'a> {
    arguments: &'a cli::BenchDispatch,
    tasks: Tasks,
    folder: tempfile::TempDir,
}

pub(super) async fn run(arguments: &cli::BenchDispatch) -> anyhow::Result<()> {
    let layers = arguments.source.layers()?;
    let folder = tempfile::tempdir().context("no folder for the bench")?;
    let bench = Bench { arguments, tasks: Tasks::new(), folder };
    rows::head()?;
    match layers.text("database.url") {
        Some(_) => bench.fleets(&layers).await,
        None => bench.embedded().await,
    }
}

/// Who receives: a sink, and one that never answers for the first few subscriptions.
struct Receivers {
    sink: Process,
    silent: Process,
    /// Part of the types that they want.
    run: String,
    /// Ids, in the order of their types.
    subscriptions: Vec<String>,
    hanging: u64,
}

/// What a fleet is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Plan<'a> {
    build: Build<'a>,
    /// So many of its receivers never answer.
    hanging: u64,
    workers: u32,
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} worker{}", self.workers, if self.workers == 1 { "" } else { "s" })?;
        if self.hanging > 0 {
            f.write_str(", 1 in 100 receivers never answers")?;
        }
        f.write_str(if self.build == Build::This { "" } else { ", the other build" })
    }
}

/// One process that takes in, others that deliver, and what they share.
struct Fleet<'a> {
    plan: Plan<'a>,
    processes: Vec<Process>,
    stores: Stores,
    receivers: Receivers,
    /// Of events that come through the API.
    rounds: Rounds,
    /// With Kafka: past the API, as a producer of another team writes them.
    straight: Option<Straight>,
    straight_rounds: Rounds,
}

impl Bench<'_> {
    /// This one, and the one that it is compared to.
    fn builds(&self) -> Vec<Build<'_>> {
        [Some(Build::This), self.arguments.beside.as_deref().map(Build::Other)].into_iter().flatten().collect()
    }

    /// One process, no servers. What is compared runs in turns.
    async fn embedded(&self) -> anyhow::Result<()> {
        let cli::BenchDispatch { events, subscriptions, size, rounds, .. } = *self.arguments;
        let mut servers = Vec::new();
        for (place, build) in self.builds().into_iter().enumerate() {
            let folder = self.folder.path().join(format!("data{place}"));
            let server = [Process::serve(build, "api,worker", &Stores::default(), &folder).await?];
            if self.arguments.stored > 0 {
                self.deliver(&server, self.arguments.stored, subscriptions.min(1000)).await?;
            }
            servers.push(server);
        }
        let (hypers_depth, own_depth) = (self.best_depth(Client::Hyper).await?, self.best_depth(Client::Own).await?);
        let (mut hypers, mut own) = (Rounds::default(), Rounds::default());
        let mut delivered = vec![Rounds::default(); servers.len()];
        for _ in 0..rounds {
            // What was delivered last is still being written.
            tokio::time::sleep(REST).await;
            hypers.0.push(self.bare_client(Client::Hyper, hypers_depth).await?);
            own.0.push(self.bare_client(Client::Own, own_depth).await?);
            for (server, rounds) in servers.iter().zip(&mut delivered) {
                tokio::time::sleep(REST).await;
                rounds.0.push(self.deliver(server, events, subscriptions).await?);
            }
        }
        hypers.row(format!("hyper's client, bare, {hypers_depth} at a time")).print()?;
        own.row(bare_client(own_depth)).against("hyper's client", own.times(&hypers), 1.0).print()?;
        let row = delivered[0].row("events in and delivered, SQLite");
        row.clone().against("hyper's client", delivered[0].times(&hypers), 0.4).print()?;
        Row { note: String::new(), ..row }.against("our own client", delivered[0].times(&own), 0.4).print()?;
        self.others("events in and delivered, SQLite", &delivered)?;

        let handler = Process::bare_intake().await?;
        let (mut bare, mut taken) = (Rounds::default(), vec![Rounds::default(); servers.len()]);
        for _ in 0..rounds {
            bare.add(self.send(&handler.server(&self.tasks)?, events, 1, 64).await?);
            for ([server], rounds) in servers.iter().zip(&mut taken) {
                rounds.add(self.send(&server.server(&self.tasks)?, events, 1, 64).await?);
            }
        }
        drop(handler);
        bare.row("bare handler that only parses, 64 callers").print()?;
        taken[0].row("single events in, 64 callers").against("bare handler", taken[0].times(&bare), 0.35).print()?;
        self.others("single events in, 64 callers", &taken)?;

        let [server] = servers.swap_remove(0);
        drop(servers);
        let store = bare::store(&bare::sqlite(self.folder.path()), events, size).await?;
        Row::rate("bare store, rows in batches of 1,000", store).print()?;
        let ours = self.send(&server.server(&self.tasks)?, events, 1000, 4).await?;
        Row::rate("NDJSON in, 1,000 a request, 4 callers", ours).against("bare store", ours / store, 0.5).print()?;
        self.idle(&server).await
    }

    /// Several processes on shared servers: one takes in, 1, 2 and 3 deliver. All fleets are up and have their bursts in turns,
    /// seconds apart and every other time the other way round, because a machine's minutes differ more than its fleets do.
    async fn fleets(&self, layers: &Layers) -> anyhow::Result<()> {
        let cli::BenchDispatch { ref workers, without_hanging, subscriptions, rounds, .. } = *self.arguments;
        let at_once = self.best_depth(Client::Own).await?;
        Rounds(vec![self.bare_client(Client::Own, at_once).await?]).row(bare_client(at_once)).print()?;
        let fewest = workers.iter().copied().min().unwrap_or(1);
        let hanging = (!without_hanging && subscriptions >= 100).then_some((fewest, subscriptions / 100));
        let plans: Vec<Plan<'_>> = workers
            .iter()
            .map(|many| (*many, 0))
            .chain(hanging)
            .flat_map(|(workers, hanging)| self.builds().into_iter().map(move |build| Plan { build, hanging, workers }))
            .collect();
        let mut fleets = Vec::new();
        let measured = self.take_turns(layers, plans, rounds, &mut fleets).await;
        // Whoever writes to a topic makes it anew when it is gone.
        self.tasks.stop(Duration::ZERO).await;
        // Also after a failure: they are on somebody's servers.
        for Fleet { processes, stores, straight, .. } in fleets {
            drop((processes, straight));
            stores.remove(layers).await?;
        }
        measured
    }

    async fn take_turns<'b>(
        &self,
        layers: &Layers,
        plans: Vec<Plan<'b>>,
        rounds: u32,
        fleets: &mut Vec<Fleet<'b>>,
    ) -> anyhow::Result<()> {
        let bar = ProgressBar::new((u64::from(rounds) + 1) * plans.len() as u64);
        for plan in plans {
            fleets.push(self.fleet(layers, plan).await?);
            bar.inc(1);
        }
        for _ in 0..rounds {
            for fleet in fleets.iter_mut() {
                let api = fleet.processes[0].server(&self.tasks)?;
                let run = self.round(fleet, &Way::Api(&api)).await?;
                fleet.rounds.0.push(run);
                if let Some(straight) = fleet.straight.clone() {
                    let run = self.round(fleet, &Way::Topic(&straight)).await?;
                    fleet.straight_rounds.0.push(run);
                }
                bar.inc(1);
            }
            fleets.reverse();
        }
        bar.finish_and_clear();
        fleets.sort_by_key(|fleet| fleet.plan);
        table("straight into Kafka and delivered", fleets, |fleet| {
            fleet.straight.as_ref().map(|_| fleet.straight_rounds.clone())
        })?;
        table("in through the API and delivered", fleets, |fleet| Some(fleet.rounds.clone()))?;
        table("of these, once all were accepted", fleets, |fleet| fleet.rounds.rest())
    }

    /// The rounds of the other build, if there is one.
    fn others(&self, what: &str, rounds: &[Rounds]) -> anyhow::Result<()> {
        let [ours, theirs] = rounds else { return Ok(()) };
        theirs.row(format!("{what}, the other build")).print()?;
        beside(what, ours, theirs)
    }

    async fn round(&self, fleet: &mut Fleet<'_>, way: &Way<'_>) -> anyhow::Result<Run> {
        tokio::time::sleep(REST).await;
        let events = self.arguments.events;
        if fleet.plan.hanging > 0 {
            self.hang(&fleet.processes, &mut fleet.receivers, fleet.plan.hanging).await?;
        }
        self.burst(&fleet.processes, &fleet.receivers, events, way).await
    }

    /// The first few subscriptions give way to new ones that never answer: those that hung before are not called any more.
    async fn hang(&self, fleet: &[Process], receivers: &mut Receivers, hanging: u64) -> anyhow::Result<()> {
        let Receivers { silent, run, subscriptions, .. } = receivers;
        let (mut client, arguments) = (fleet[0].server(&self.tasks)?.client(), self.produce(0, 1, 1, 1));
        for (place, id) in (0..hanging).zip(subscriptions) {
            client.delete(&format!("/v1/subscriptions/{id}")).await?;
            *id = subscribe(&mut client, &silent.url(), &load::event_type(&arguments, run, place)).await?;
        }
        receivers.hanging = hanging;
        tokio::time::sleep(SPREAD).await;
        Ok(())
    }

    /// What a process, its connections, its memory and each of its subscriptions cost once is no part of its rate: a fleet serves
    /// for months. So it serves as much before as it will when it is measured.
    async fn fleet<'b>(&self, layers: &Layers, plan: Plan<'b>) -> anyhow::Result<Fleet<'b>> {
        let stores = Stores::fresh(layers).await?;
        let folder = self.folder.path();
        let mut processes = vec![Process::serve(plan.build, "api", &stores, folder).await?];
        let share = stores.with_threads_of(plan.workers);
        for _ in 0..plan.workers {
            processes.push(Process::serve(plan.build, "worker", &share, folder).await?);
        }
        let receivers = self.receivers(&processes, self.arguments.subscriptions).await?;
        let api = processes[0].server(&self.tasks)?;
        self.burst(&processes, &receivers, self.arguments.events, &Way::Api(&api)).await?;
        let layers = stores.layers(layers)?;
        let straight = match layers.text("kafka.brokers") {
            Some(_) => Some(Straight::open(&layers, self.arguments.size, None, &self.tasks).await?),
            None => None,
        };
        let (rounds, straight_rounds) = (Rounds::default(), Rounds::default());
        Ok(Fleet { plan, processes, stores, receivers, rounds, straight, straight_rounds })
    }

    /// With how many calls at a time a bare client is fastest.
    async fn best_depth(&self, client: Client) -> anyhow::Result<u64> {
        let mut best = (0.0, 0);
        for at_once in [32, 64, 128] {
            let reached = self.bare_client(client, at_once).await?.per_second;
            best = if reached > best.0 { (reached, at_once) } else { best };
        }
        Ok(best.1)
    }

    /// What a client could do if it had nothing else to do.
    async fn bare_client(&self, client: Client, at_once: u64) -> anyhow::Result<Run> {
        let sink = Process::sink(&[]).await?;
        let now = || Spent::now(&[("receiver", sink.cpu())], &[]);
        let (events, before) = (self.arguments.events, now());
        let per_second = bare::client(client, sink.addr, events, at_once, self.arguments.size).await?;
        Ok(Run { spent: now().since(&before), count: events, ..Run::rate(per_second) })
    }

    /// Events for subscriptions that are made for them.
    async fn deliver(&self, server: &[Process], events: u64, subscriptions: u64) -> anyhow::Result<Run> {
        let receivers = self.receivers(server, subscriptions).await?;
        self.burst(server, &receivers, events, &Way::Api(&server[0].server(&self.tasks)?)).await
    }

    async fn receivers(&self, fleet: &[Process], subscriptions: u64) -> anyhow::Result<Receivers> {
        let (sink, silent) = (Process::sink(&[]).await?, Process::sink(&["--hang"]).await?);
        let server = fleet[0].server(&self.tasks)?;
        let (arguments, run) = (self.produce(0, subscriptions, 1, 1), format!("{:08x}", fastrand::u32(..)));
        let made = try_join_all((0..).take(SUBSCRIBERS).map(async |first| {
            let (mut client, mut ids) = (server.client(), Vec::new());
            for place in (first..subscriptions).step_by(SUBSCRIBERS) {
                let event_type = load::event_type(&arguments, &run, place);
                ids.push((place, subscribe(&mut client, &sink.url(), &event_type).await?));
            }
            anyhow::Ok(ids)
        }));
        let mut ids = made.await?.concat();
        ids.sort_unstable();
        tokio::time::sleep(SPREAD).await;
        let subscriptions = ids.into_iter().map(|(_, id)| id).collect();
        Ok(Receivers { sink, silent, run, subscriptions, hanging: 0 })
    }

    /// Sends events, one to each of the subscriptions in turn, and waits for all but those that hang.
    async fn burst(&self, fleet: &[Process], receivers: &Receivers, events: u64, way: &Way<'_>) -> anyhow::Result<Run> {
        let Receivers { sink, run, subscriptions, hanging, .. } = receivers;
        let subscriptions = subscriptions.len() as u64;
        let arguments = self.produce(events, subscriptions, 500, 8);
        let sending = Load::new(&arguments, run).under_ids_of(format!("{:08x}", fastrand::u32(..)));
        let expected = (0..events).filter(|number| number % subscriptions >= *hanging).count() as u64;
        let counts = async || sink.server(&self.tasks)?.client().get::<SinkState>(sink::COUNTS).await;
        let before = counts().await?;
        let before_it = spent(fleet, sink);
        let started = Instant::now();
        let sent = async {
            let sent = sending.send(way, &ProgressBar::hidden(), &self.tasks).await?;
            if sent.accepted != events {
                bail!("{} of {events} were accepted: {}", sent.accepted, sent.problem.unwrap_or_default());
            }
            anyhow::Ok((counts().await?.distinct, Instant::now()))
        };
        let ((meanwhile, accepted), ended) = tokio::try_join!(sent, self.arrivals(sink, before.distinct + expected))?;
        let spent = spent(fleet, sink).since(&before_it);
        let state: SinkState = sink.server(&self.tasks)?.client().get("/").await?;
        let rest = (expected + before.distinct).saturating_sub(meanwhile);
        // A last few tell no rate.
        let rest_per_second = (rest > expected / 10).then(|| rest as f64 / (ended - accepted).as_secs_f64());
        Ok(Run {
            rest_per_second,
            spent,
            count: events,
            note: format!("; {}{} duplicates", latency(&state), state.duplicates - before.duplicates),
            ..Run::rate(expected as f64 / (ended - started).as_secs_f64())
        })
    }

    /// Waits until so many different events have come to the sink.
    async fn arrivals(&self, sink: &Process, expected: u64) -> anyhow::Result<Instant> {
        let mut client = sink.server(&self.tasks)?.client();
        let (mut seen, mut last) = (0, Instant::now());
        loop {
            let state: SinkState = client.get(sink::COUNTS).await?;
            let now = Instant::now();
            if state.distinct >= expected {
                return Ok(now);
            }
            if state.distinct > seen {
                (seen, last) = (state.distinct, now);
            } else if now - last > PATIENCE {
                bail!("{} of {expected} were delivered, then nothing for {PATIENCE:?}", state.distinct);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Events that nobody subscribed to: intake alone.
    async fn send(&self, server: &Server, events: u64, batch: u64, concurrency: u32) -> anyhow::Result<f64> {
        let arguments = self.produce(events, 0, batch, concurrency);
        let run = format!("{:08x}", fastrand::u32(..));
        let sent = Load::new(&arguments, &run).send(&Way::Api(server), &ProgressBar::hidden(), &Tasks::new()).await?;
        if sent.accepted != events {
            bail!("{} of {events} were accepted: {}", sent.accepted, sent.problem.unwrap_or_default());
        }
        Ok(events as f64 / sent.took.as_secs_f64())
    }

    /// One event after the other, from before it is sent to when its receiver has it.
    async fn idle(&self, server: &Process) -> anyhow::Result<()> {
        let (sender, mut arrived) = mpsc::channel::<Instant>(1);
        let listener = http_server::bind(([127, 0, 0, 1], 0).into()).context("no free port")?;
        let url = format!("http://{}", listener.local_addr().context("no free port")?);
        let router = Router::new().fallback(note).with_state(Arc::new(sender));
        self.tasks.spawn("receiver", http_server::serve("bench", listener, router, bare::LIMITS, self.tasks.clone()));
        let mut client = server.server(&self.tasks)?.client();
        subscribe(&mut client, &url, "idle.event").await?;
        let data = "x".repeat(self.arguments.size);
        let mut samples = Samples::default();
        for _ in 0..IDLE_EVENTS {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let body = json!({"type": "idle.event", "data": data}).to_string();
            let started = Instant::now();
            let answer = client.post("/v1/events", "application/json", body.into()).await?;
            answer.read::<Value>()?;
            let at = timeout(PATIENCE, arrived.recv()).await.context("an event did not arrive")?;
            samples.add(at.context("the receiver ended")?.saturating_duration_since(started));
        }
        let percentiles = Samples::percentiles([&samples]);
        let row = Row {
            what: format!("idle, from sent to received, {IDLE_EVENTS} events one by one"),
            figure: terminal::percentiles(percentiles),
            note: "bars: p50 5 ms, p99 25 ms".to_owned(),
            ..Row::default()
        };
        row.print()
    }

    fn produce(&self, events: u64, subscriptions: u64, batch: u64, concurrency: u32) -> cli::Produce {
        cli::Produce {
            events,
            subscriptions,
            batch: Some(batch),
            concurrency: Some(concurrency),
            size: self.arguments.size,
            patience: PATIENCE,
            ..cli::Produce::plain()
        }
    }
}

/// Every fleet beside the smallest of its build. Nothing if there were no such rounds.
fn table<'a>(
    what: &str,
    fleets: &'a [Fleet<'_>],
    rounds: impl Fn(&'a Fleet<'_>) -> Option<Rounds>,
) -> anyhow::Result<()> {
    let all: Option<Vec<(Plan<'_>, Rounds)>> = fleets.iter().map(|fleet| Some((fleet.plan, rounds(fleet)?))).collect();
    let all = all.unwrap_or_default();
    for (plan, ours) in &all {
        let row = ours.row(format!("{what}, {plan}"));
        let (smallest, its) =
            all.iter().find(|(other, _)| other.build == plan.build).map_or((plan, ours), |(plan, its)| (plan, its));
        let row = if std::ptr::eq(ours, its) {
            row
        } else {
            row.against(&smallest.to_string(), ours.times(its), if plan.hanging == 0 { 1.0 } else { 0.9 })
        };
        row.print()?;
        let same = |(other, _): &&(Plan<'_>, Rounds)| *other == Plan { build: Build::This, ..*plan };
        if plan.build != Build::This
            && let Some((_, of_this)) = all.iter().find(same)
        {
            beside(&format!("{what}, {plan}"), of_this, ours)?;
        }
    }
    Ok(())
}

/// This build against the other.
fn beside(what: &str, ours: &Rounds, theirs: &Rounds) -> anyhow::Result<()> {
    Row { note: String::new(), ..ours.row(format!("{what}: this build")) }
        .against("the other build", ours.times(theirs), 1.0)
        .print()
}

/// So far, by all who take part in a burst.
fn spent(fleet: &[Process], sink: &Process) -> Spent {
    let workers: f64 = fleet[1..].iter().map(Process::cpu).sum();
    let first = if fleet.len() > 1 { "intake" } else { "server" };
    let processes = [(first, fleet[0].cpu()), ("workers", workers), ("receiver", sink.cpu())];
    Spent::now(&processes, &[("PostgreSQL", "postgres"), ("Redis", "redis-server"), ("Kafka", "java")])
}

fn bare_client(at_once: u64) -> String {
    format!("our own client, bare, {at_once} at a time")
}

async fn note(State(sender): State<Arc<mpsc::Sender<Instant>>>, headers: HeaderMap) {
    if headers.contains_key("webhook-id") {
        // A receiver that nobody listens to any more has nothing to note.
        sender.send(Instant::now()).await.ok();
    }
}

/// Returns its id.
async fn subscribe(client: &mut crate::command::client::Client, url: &str, event_type: &str) -> anyhow::Result<String> {
    let subscription = json!({
        "url": url, "event_types": [event_type], "rate_limit": 10_000, "max_concurrency": 1000, "timeout": "5s",
    });
    let answer = client.post("/v1/subscriptions", "application/json", Bytes::from(subscription.to_string())).await?;
    let made = answer.read::<Value>().context("a subscription could not be made")?;
    Ok(made["id"].as_str().unwrap_or_default().to_owned())
}

/// Of all that a fleet's sink has got so far.
fn latency(state: &SinkState) -> String {
    let ms = |us: u32| format!("{:.0} ms", f64::from(us) / 1000.0);
    state.latency_us.map_or_else(String::new, |[p50, p99, max]| {
        format!("accepted to received p50 {}, p99 {}, max {}; ", ms(p50), ms(p99), ms(max))
    })
}
