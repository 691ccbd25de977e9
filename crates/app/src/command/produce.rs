//! `tidegate produce`: sends events, waits until they are delivered, and says what became of them.
//!
//! Every event has an id of its own, so sending it again after a lost connection is harmless. What was delivered is read
//! from the API, not guessed from the sink; its times are the server's.

pub(super) mod load;
#[cfg(feature = "kafka")]
pub(super) mod straight;
mod watch;

use std::{pin::pin, time::Duration};

use anyhow::{Context, anyhow, bail};
use axum::http::StatusCode;
use bytes::Bytes;
use dispatch::delivery::{event_type::EventType, signature::SigningSecret};
use platform::{config::Invalid, shutdown::Tasks};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use url::{Host, Url};

use self::{
    load::{Load, Sent, Way},
    watch::{Delivered, Watch},
};
use super::{
    client::{Client, Server},
    print, terminal,
};
use crate::{
    cli,
    serve::{Signals, allow_many_files},
};

/// Before the run and the number of an event. A sink reads them.
pub(super) const ID_PREFIX: &str = "prd_";
/// Failures end within a minute, instead of the day that real receivers get.
const RETRY_SCHEDULE: [&str; 5] = ["1s", "2s", "5s", "10s", "30s"];
/// Other replicas know a new subscription within a second.
const SPREAD: Duration = Duration::from_secs(2);
/// What a bar tells of things that are counted.
const COUNTED: &str = "{human_pos}/{human_len}  {rate}  {eta} left";

pub(super) async fn run(arguments: &cli::Produce) -> anyhow::Result<()> {
    let tasks = Tasks::new();
    let server = Server::new(&arguments.server, tasks.clone())?;
    EventType::parse("--type", &arguments.event_type)?;
    allow_many_files();
    let mut signals = Signals::listen()?;
    let mut produce = Produce::new(arguments, server)?;
    let outcome = {
        let mut work = pin!(produce.work(&tasks));
        tokio::select! {
            outcome = &mut work => outcome,
            () = signals.next() => {
                tasks.leave();
                tokio::select! { outcome = work => outcome, () = signals.next() => Err(anyhow!("stopped again")) }
            }
        }
    };
    let cleaned = tokio::select! {
        // Where there is nothing to clean up, a second signal finds it done.
        biased;
        cleaned = produce.clean_up() => cleaned,
        () = signals.next() => Err(anyhow!("stopped again")),
    };
    let cleaned = cleaned.with_context(|| produce.left());
    if let (Err(_), Err(left)) = (&outcome, &cleaned) {
        // The last word is for why the run failed.
        terminal::note(&format!("tidegate: {left:#}"));
    }
    outcome.and(cleaned)
}

struct Produce<'a> {
    arguments: &'a cli::Produce,
    server: Server,
    client: Client,
    run: String,
    /// Those that were made and not deleted.
    subscriptions: Vec<Subscription>,
}

#[derive(Deserialize)]
struct Subscription {
    id: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

/// The shape of a list, to know a Tidegate by.
#[derive(Deserialize)]
struct Listing {
    #[serde(rename = "data")]
    _data: Vec<IgnoredAny>,
}

impl<'a> Produce<'a> {
    fn new(arguments: &'a cli::Produce, server: Server) -> Result<Self, Invalid> {
        if let Some(secret) = &arguments.secret {
            SigningSecret::parse("--secret", secret)?;
        }
        let client = server.client();
        let run = format!("{:08x}", fastrand::u32(..));
        Ok(Produce { arguments, server, client, run, subscriptions: Vec::new() })
    }

    async fn work(&mut self, tasks: &Tasks) -> anyhow::Result<()> {
        let stopping = tasks.leaving();
        let before = || anyhow!("stopped before the first event was sent");
        stopping.run_until_cancelled(self.subscribe()).await.ok_or_else(before)??;
        let bar = terminal::progress(self.arguments.events, "accepted", COUNTED);
        let load = Load::new(self.arguments, &self.run);
        #[cfg(feature = "kafka")]
        let straight = match &self.arguments.kafka {
            Some(brokers) => Some(stopping.run_until_cancelled(self.straight(brokers)).await.ok_or_else(before)??),
            None => None,
        };
        #[cfg(feature = "kafka")]
        let way = straight.as_ref().map_or(Way::Api(&self.server), Way::Topic);
        #[cfg(not(feature = "kafka"))]
        let way = Way::Api(&self.server);
        let sent = load.send(&way, &bar, tasks).await?;
        bar.finish_and_clear();
        if stopping.is_cancelled() || self.arguments.no_wait || self.subscriptions.is_empty() {
            print(&summary(self.arguments, &sent, None))?;
            unstopped(tasks)?;
            return conclude(self.arguments.events, &sent, None);
        }
        let bar = terminal::progress(sent.accepted, "delivered", COUNTED);
        let ids = self.subscriptions.iter().map(|subscription| subscription.id.clone()).collect();
        let since = self.subscriptions[0].created_at;
        let watch = Watch::new(ids, since, sent.accepted, self.arguments.patience);
        let delivered = watch.until_all_ended(&mut self.client, &bar, tasks).await?;
        bar.finish_and_clear();
        print(&summary(self.arguments, &sent, Some(&delivered)))?;
        unstopped(tasks)?;
        conclude(self.arguments.events, &sent, Some(&delivered))
    }

    #[cfg(feature = "kafka")]
    async fn straight(&self, brokers: &str) -> anyhow::Result<straight::Straight> {
        let layers = cli::Source::default().layers()?.with_flag("--kafka", "kafka.brokers", Some(brokers))?;
        let tenant = self.arguments.server.tenant.as_deref();
        straight::Straight::open(&layers, self.arguments.size, tenant, self.server.tasks()).await
    }

    async fn subscribe(&mut self) -> anyhow::Result<()> {
        let arguments = self.arguments;
        if arguments.subscriptions == 0 && arguments.is_straight() {
            return Ok(());
        }
        // Where nothing runs yet, Tidegate comes first and the sink second.
        self.client.get::<Listing>("/v1/subscriptions?limit=1").await?;
        if arguments.subscriptions == 0 {
            return Ok(());
        }
        check_sink(&arguments.sink).await?;
        let bar = terminal::progress(arguments.subscriptions, "subscriptions", COUNTED);
        for place in 0..arguments.subscriptions {
            let mut subscription = json!({
                "url": arguments.sink,
                "event_types": [load::event_type(arguments, &self.run, place)],
                "description": format!("tidegate produce, run {}", self.run),
                "rate_limit": arguments.rate_limit,
                "max_concurrency": arguments.max_concurrency,
                "retry_schedule": RETRY_SCHEDULE,
            });
            if let Some(secret) = &arguments.secret {
                subscription["secret"] = secret.as_str().into();
            }
            let body = Bytes::from(subscription.to_string());
            let answer = self.client.post("/v1/subscriptions", "application/json", body).await?;
            self.subscriptions.push(answer.read().context("a subscription could not be made")?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        if !is_loopback(&arguments.server.url) || arguments.is_straight() {
            tokio::time::sleep(SPREAD).await;
        }
        Ok(())
    }

    /// Takes the subscriptions away again, also after a failure.
    async fn clean_up(&mut self) -> anyhow::Result<()> {
        if self.arguments.keep || self.arguments.no_wait {
            return Ok(());
        }
        // The connection may be in the middle of an exchange that was given up.
        self.client = self.server.client();
        let mut refusal = None;
        for place in (0..self.subscriptions.len()).rev() {
            let path = format!("/v1/subscriptions/{}", self.subscriptions[place].id);
            // A server that is silent about one is silent about all, and each would be waited for.
            let answer = self.client.delete(&path).await?;
            // Somebody else may have deleted it.
            if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
                self.subscriptions.remove(place);
            } else {
                refusal.get_or_insert_with(|| answer.refusal());
            }
        }
        refusal.map_or(Ok(()), |why| Err(anyhow!(why)))
    }

    fn left(&self) -> String {
        let ids: Vec<&str> = self.subscriptions.iter().map(|subscription| subscription.id.as_str()).collect();
        format!("these subscriptions are left, delete them by hand: {}", ids.join(", "))
    }
}

fn unstopped(tasks: &Tasks) -> anyhow::Result<()> {
    if tasks.leaving().is_cancelled() { Err(anyhow!("stopped before the end")) } else { Ok(()) }
}

/// A sink that was never started is the most likely mistake of all. Only this machine's can be looked for.
async fn check_sink(sink: &str) -> anyhow::Result<()> {
    if !is_loopback(sink) {
        return Ok(());
    }
    let addresses = Url::parse(sink).ok().and_then(|url| url.socket_addrs(|| None).ok()).unwrap_or_default();
    TcpStream::connect(addresses.as_slice()).await.with_context(|| {
        format!("nothing listens at {sink}: start `tidegate sink` in another terminal, or name a receiver with --sink")
    })?;
    Ok(())
}

fn is_loopback(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn summary(arguments: &cli::Produce, sent: &Sent, delivered: Option<&Delivered>) -> String {
    let number = terminal::count;
    let over = |many: u64, span: Duration| {
        format!("{}   {} over {:.1} s", number(many), terminal::rate(many, span), span.as_secs_f64())
    };
    let mut rows = vec![("accepted", over(sent.accepted, sent.took))];
    if sent.rejected > 0 {
        rows.push(("rejected", number(sent.rejected)));
    }
    if let Some(delivered) = delivered {
        rows.push(("delivered", over(delivered.delivered, delivered.span())));
        rows.push(("failed", number(delivered.failed)));
        for (name, many) in [("cancelled", delivered.cancelled), ("waiting", delivered.waiting(sent.accepted))] {
            if many > 0 {
                rows.push((name, number(many)));
            }
        }
    }
    if sent.resent > 0 {
        rows.push((
            "resent",
            format!("{} requests, after a lost connection or a refusal for now", number(sent.resent)),
        ));
    }
    let per = match arguments.batch() {
        1 => "an event".to_owned(),
        many => format!("{many} events"),
    };
    rows.push(("intake", format!("{}   per request of {per}", terminal::percentiles(sent.latencies))));
    if let Some(delivered) = delivered {
        let latencies = terminal::percentiles(delivered.latencies());
        rows.push(("delivery", format!("{latencies}   from accepted to delivered")));
    }
    terminal::table(&rows)
}

/// Success is nothing less than every event accepted, and every accepted one delivered.
fn conclude(events: u64, sent: &Sent, delivered: Option<&Delivered>) -> anyhow::Result<()> {
    let number = terminal::count;
    if sent.accepted != events {
        let why = sent.problem.as_deref().unwrap_or("no reason was given");
        bail!("{} of {} events were accepted; the first refusal: {why}", number(sent.accepted), number(events));
    }
    if let Some(delivered) = delivered
        && delivered.delivered != sent.accepted
    {
        let problem = delivered.problem.as_deref().unwrap_or("they wait for their turn");
        let (delivered, accepted) = (number(delivered.delivered), number(sent.accepted));
        bail!(
            "{delivered} of {accepted} accepted events were delivered. Of the others, one says: {problem}. With --keep their subscriptions stay, and `curl …/v1/deliveries` and `tidegate tail` show each of them"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        produce: cli::Produce,
    }

    /// They had been taken out of the list before they were deleted, so that nobody could name them.
    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_deleted_is_named() {
        let Flags { produce: arguments } = Flags::parse_from(["produce"]);
        let mut produce = Produce::new(&arguments, Server::nowhere()).unwrap();
        for id in ["sub_1", "sub_2"] {
            produce.subscriptions.push(Subscription { id: id.to_owned(), created_at: OffsetDateTime::UNIX_EPOCH });
        }
        let error = produce.clean_up().await.unwrap_err();
        assert!(error.to_string().contains("no Tidegate answers"), "{error:#}");
        assert!(produce.left().ends_with("by hand: sub_1, sub_2"), "{}", produce.left());
    }
}
