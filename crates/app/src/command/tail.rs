//! `tidegate tail`: deliveries as they happen. Asks twice a second for the newest, and shows what is new or has changed.

use std::{collections::BTreeMap, time::Duration};

use dispatch::delivery::Status;
use platform::shutdown::Tasks;
use serde::{Deserialize, de::IgnoredAny};
use time::{OffsetDateTime, macros::format_description};
use url::form_urlencoded;

use super::{
    client::{Client, Server},
    terminal::{self, Colour, Painter},
};
use crate::{cli, serve::Signals};

const INTERVAL: Duration = Duration::from_millis(500);
const PAGE: usize = 200;
/// At one look; what is older than that is counted as missed.
const MOST_PAGES: usize = cli::MOST_LINES / PAGE;
/// Deliveries whose state is remembered, the newest.
const MOST_KNOWN: usize = 10_000;

#[derive(Deserialize)]
struct Page {
    data: Vec<Delivery>,
    next: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Delivery {
    id: String,
    event_id: String,
    event_type: String,
    subscription_id: String,
    status: Status,
    attempts: i64,
    last_error: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    next_attempt_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

pub(super) async fn run(arguments: &cli::Tail) -> anyhow::Result<()> {
    let server = Server::new(&arguments.server, Tasks::new())?;
    let mut signals = Signals::listen()?;
    let painter = Painter::for_stdout();
    let (client, lines) = (server.client(), arguments.lines);
    let mut tail = Tail { client, query: query(arguments), lines, known: BTreeMap::new() };
    if let Some(id) = &arguments.subscription {
        tail.must_exist(id).await?;
    }
    let mut news = tail.look().await?;
    news.deliveries.drain(..news.deliveries.len().saturating_sub(lines));
    // What came before the first look was not missed.
    news.has_missed = false;
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        let mut text: String = news.deliveries.iter().map(|delivery| line(painter, delivery)).collect();
        if news.has_missed {
            text.push_str("… more came since the last look than is shown; a filter (--status, --type) helps\n");
        }
        if !terminal::show(&text)? {
            return Ok(());
        }
        tokio::select! {
            () = signals.next() => return Ok(()),
            _ = tick.tick() => (),
        }
        news = tokio::select! {
            () = signals.next() => return Ok(()),
            news = tail.look_until_answered() => news,
        };
    }
}

struct Tail {
    client: Client,
    query: String,
    /// Wanted of what happened before.
    lines: usize,
    /// What was shown of each delivery: its status and attempts.
    known: BTreeMap<String, (Status, i64)>,
}

/// What is new or has changed, the oldest first.
struct News {
    deliveries: Vec<Delivery>,
    has_missed: bool,
}

impl Tail {
    /// One that is not there would be waited for without a word.
    async fn must_exist(&mut self, subscription: &str) -> anyhow::Result<()> {
        let id: String = form_urlencoded::byte_serialize(subscription.as_bytes()).collect();
        self.client.get::<IgnoredAny>(&format!("/v1/subscriptions/{id}")).await.map(drop)
    }

    /// A server that restarts is waited for; it is said once.
    async fn look_until_answered(&mut self) -> News {
        let mut is_said = false;
        loop {
            match self.look().await {
                Ok(news) => return news,
                Err(error) if !is_said => {
                    is_said = true;
                    #[expect(clippy::print_stderr, reason = "a remark for the person at the terminal")]
                    {
                        eprintln!("tidegate: {error:#}; trying again");
                    }
                }
                Err(_) => (),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn look(&mut self) -> anyhow::Result<News> {
        let mut deliveries = Vec::new();
        let mut cursor: Option<String> = None;
        let mut has_missed = !self.known.is_empty();
        for _ in 0..MOST_PAGES {
            let after = cursor.map_or_else(String::new, |id| format!("&after={id}"));
            let page: Page = self.client.get(&format!("/v1/deliveries?limit={PAGE}{}{after}", self.query)).await?;
            let has_met_the_known = page.data.iter().any(|delivery| self.known.contains_key(&delivery.id));
            deliveries.extend(page.data.into_iter().filter(|delivery| self.is_news(delivery)));
            cursor = page.next;
            if has_met_the_known || cursor.is_none() {
                has_missed = false;
                break;
            }
            if self.known.is_empty() && deliveries.len() >= self.lines {
                break;
            }
        }
        for delivery in &deliveries {
            self.known.insert(delivery.id.clone(), (delivery.status, delivery.attempts));
        }
        while self.known.len() > MOST_KNOWN {
            self.known.pop_first();
        }
        deliveries.sort_by(|a, b| (a.updated_at, &a.id).cmp(&(b.updated_at, &b.id)));
        Ok(News { deliveries, has_missed })
    }

    fn is_news(&self, delivery: &Delivery) -> bool {
        self.known.get(&delivery.id) != Some(&(delivery.status, delivery.attempts))
    }
}

fn query(arguments: &cli::Tail) -> String {
    let filters = [
        ("status", arguments.status.map(Status::as_str)),
        ("subscription", arguments.subscription.as_deref()),
        ("type", arguments.event_type.as_deref()),
    ];
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in filters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("&{query}") }
}

fn line(painter: Painter, delivery: &Delivery) -> String {
    let colour = match delivery.status {
        Status::Delivered => Colour::Green,
        Status::Failed => Colour::Red,
        Status::Retrying | Status::Throttled => Colour::Yellow,
        Status::Pending | Status::Processing | Status::Cancelled => Colour::Dim,
    };
    let status = painter.paint(colour, &format!("{:10}", delivery.status.as_str()));
    let time = painter.paint(Colour::Dim, &clock(delivery.updated_at));
    let after = match (delivery.status, delivery.next_attempt_at) {
        (Status::Delivered, _) => {
            let took = Duration::try_from(delivery.updated_at - delivery.created_at).unwrap_or_default();
            format!("in {} ms", took.as_millis())
        }
        (_, Some(next)) => format!("next at {}", clock(next)),
        _ => String::new(),
    };
    let error = delivery.last_error.as_deref().filter(|_| delivery.status != Status::Delivered).unwrap_or_default();
    let [event_type, event_id, subscription, error] =
        [&delivery.event_type, &delivery.event_id, &delivery.subscription_id, error].map(terminal::harmless);
    let attempts = delivery.attempts;
    let text = format!("{event_type:24} {event_id:30} -> {subscription:30} attempt {attempts}  {after}  {error}");
    format!("{time}  {status} {}\n", text.trim_end())
}

fn clock(time: OffsetDateTime) -> String {
    time.format(format_description!("[hour]:[minute]:[second].[subsecond digits:3]")).unwrap_or_default()
}
