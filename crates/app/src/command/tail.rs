//! `tidegate tail`: deliveries as they happen. Asks twice a second for the newest, and shows what is new or has changed.
//!
//! The list is newest first, and a delivery may change long after it has left the first pages: those that are known and
//! not over are asked for one by one. In one status the list is read as far as it goes, because what enters it may be
//! old.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use dispatch::delivery::Status;
use platform::shutdown::Tasks;
use serde::{Deserialize, de::IgnoredAny};
use time::{OffsetDateTime, macros::format_description};
use url::form_urlencoded;

use super::{
    client::{Client, Server, until_answered},
    terminal::{self, Colour, Painter},
};
use crate::{cli, serve::Signals};

const INTERVAL: Duration = Duration::from_millis(500);
const PAGE: usize = 200;
/// At one look; what is older than that is counted as missed.
const MOST_PAGES: usize = cli::MOST_LINES / PAGE;
/// Deliveries whose state is remembered: those that are not over before the others, and the newest.
const MOST_KNOWN: usize = 10_000;
/// Deliveries that are asked for by themselves at one look.
const MOST_ASKED: usize = 50;

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
    let mut tail = Tail::new(client, arguments);
    let begun = async {
        if let Some(id) = &arguments.subscription {
            tail.must_exist(id).await?;
        }
        tail.begin().await
    };
    let mut news = tokio::select! {
        begun = begun => begun?,
        () = signals.next() => return Ok(()),
    };
    news.deliveries.drain(..news.deliveries.len().saturating_sub(lines));
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
            news = tail.look_until_answered() => news?,
        };
    }
}

struct Tail {
    client: Client,
    status: Option<Status>,
    /// Subscription and type.
    query: String,
    /// Wanted of what happened before.
    lines: usize,
    /// What was shown of each delivery: its status and attempts.
    known: BTreeMap<String, (Status, i64)>,
    /// The last change that had happened when this began, by the server's clock.
    began_at: Option<OffsetDateTime>,
    /// The last delivery that was asked for by itself.
    asked: String,
}

/// What is new or has changed, the oldest first.
struct News {
    deliveries: Vec<Delivery>,
    has_missed: bool,
}

impl Tail {
    fn new(client: Client, arguments: &cli::Tail) -> Self {
        Tail {
            client,
            status: arguments.status,
            query: query(arguments),
            lines: arguments.lines,
            known: BTreeMap::new(),
            began_at: None,
            asked: String::new(),
        }
    }

    /// One that is not there would be waited for without a word.
    async fn must_exist(&mut self, subscription: &str) -> anyhow::Result<()> {
        let id: String = form_urlencoded::byte_serialize(subscription.as_bytes()).collect();
        self.client.get::<IgnoredAny>(&format!("/v1/subscriptions/{id}")).await.map(drop)
    }

    async fn look_until_answered(&mut self) -> anyhow::Result<News> {
        let say = |error: &anyhow::Error| terminal::note(&format!("tidegate: {error:#}; trying again"));
        until_answered(INTERVAL, say, async || self.look(false).await).await
    }

    /// The first look. What was not over before is followed, too, the newest of each status.
    async fn begin(&mut self) -> anyhow::Result<News> {
        let mut open = Vec::new();
        if self.status.is_none() {
            for status in Status::ALL.into_iter().filter(|status| !status.is_final()) {
                open.extend(self.page(Some(status), None).await?.data);
            }
        }
        let news = self.look(true).await?;
        self.began_at = news.deliveries.iter().chain(&open).map(|delivery| delivery.updated_at).max();
        for delivery in open {
            self.known.entry(delivery.id).or_insert((delivery.status, delivery.attempts));
        }
        Ok(news)
    }

    async fn look(&mut self, is_first: bool) -> anyhow::Result<News> {
        let mut seen: Vec<Delivery> = Vec::new();
        let mut cursor: Option<String> = None;
        // What came before the first look is not missed. After one at an empty list nothing is known, and all is new.
        let mut has_met_the_known = is_first;
        for _ in 0..MOST_PAGES {
            let page = self.page(self.status, cursor.as_deref()).await?;
            has_met_the_known |= page.data.iter().any(|delivery| self.known.contains_key(&delivery.id));
            seen.extend(page.data);
            cursor = page.next;
            let is_enough = self.status.is_none()
                && has_met_the_known
                && (!is_first || seen.len() >= self.lines)
                && self.unseen(&seen, "").count() <= MOST_ASKED;
            if is_enough || cursor.is_none() {
                break;
            }
        }
        let has_missed = !has_met_the_known && cursor.is_some();
        self.ask_one_by_one(&mut seen).await?;
        let mut deliveries: Vec<Delivery> = seen.iter().filter(|delivery| self.is_news(delivery)).cloned().collect();
        deliveries.retain(|delivery| self.status.is_none_or(|status| delivery.status == status));
        self.remember(&seen);
        deliveries.sort_by(|a, b| (a.updated_at, &a.id).cmp(&(b.updated_at, &b.id)));
        Ok(News { deliveries, has_missed })
    }

    async fn page(&mut self, status: Option<Status>, after: Option<&str>) -> anyhow::Result<Page> {
        let status = status.map_or_else(String::new, |status| format!("&status={status}"));
        let after = after.map_or_else(String::new, |id| format!("&after={id}"));
        self.client.get(&format!("/v1/deliveries?limit={PAGE}{}{status}{after}", self.query)).await
    }

    /// Known, not over, and not among these.
    fn unseen<'a>(&'a self, seen: &[Delivery], after: &str) -> impl Iterator<Item = &'a String> {
        let seen: BTreeSet<String> = seen.iter().map(|delivery| delivery.id.clone()).collect();
        let open =
            self.known.range::<str, _>((Excluded(after), Unbounded)).filter(|(_, (status, _))| !status.is_final());
        open.map(|(id, _)| id).filter(move |id| !seen.contains(id.as_str()))
    }

    /// The next few of those that the list did not hold; from the first one on when all had their turn.
    async fn ask_one_by_one(&mut self, seen: &mut Vec<Delivery>) -> anyhow::Result<()> {
        let next: Vec<String> = self.unseen(seen, &self.asked).take(MOST_ASKED).cloned().collect();
        for id in &next {
            match self.client.find(&format!("/v1/deliveries/{id}")).await? {
                Some(delivery) => seen.push(delivery),
                // Older than retention by now.
                None => drop(self.known.remove(id)),
            }
        }
        self.asked = if next.len() < MOST_ASKED { String::new() } else { next.last().cloned().unwrap_or_default() };
        Ok(())
    }

    fn remember(&mut self, seen: &[Delivery]) {
        for delivery in seen {
            self.known.insert(delivery.id.clone(), (delivery.status, delivery.attempts));
        }
        let mut excess = self.known.len().saturating_sub(MOST_KNOWN);
        self.known.retain(|_, (status, _)| {
            let goes = excess > 0 && status.is_final();
            excess -= usize::from(goes);
            !goes
        });
        while self.known.len() > MOST_KNOWN {
            self.known.pop_first();
        }
    }

    /// What is not known and has not changed since this began was only out of sight.
    fn is_news(&self, delivery: &Delivery) -> bool {
        match self.known.get(&delivery.id) {
            Some(shown) => *shown != (delivery.status, delivery.attempts),
            None => self.began_at.is_none_or(|began| delivery.updated_at >= began),
        }
    }
}

fn query(arguments: &cli::Tail) -> String {
    let filters = [("subscription", arguments.subscription.as_deref()), ("type", arguments.event_type.as_deref())];
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
