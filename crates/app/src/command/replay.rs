//! `tidegate replay`: starts a job that sends deliveries again, and shows its progress. The job needs nobody to watch it:
//! Ctrl-C ends the watching alone.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use dispatch::{delivery::Status, job::State};
use platform::shutdown::Tasks;
use serde::Deserialize;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::{
    client::{Client, Server, until_answered},
    print, terminal,
};
use crate::{cli, serve::Signals};

const INTERVAL: Duration = Duration::from_millis(200);
/// Steps of the bar: a job's progress is a share.
const STEPS: u64 = 1000;

#[derive(Deserialize)]
struct Job {
    id: String,
    kind: String,
    state: State,
    progress: f64,
    dry_run: bool,
    scanned: u64,
    requeued: u64,
    created: u64,
    cancelled: u64,
    deleted: u64,
    skipped: u64,
    error: Option<String>,
}

pub(super) async fn run(arguments: &cli::Replay) -> anyhow::Result<()> {
    let server = Server::new(&arguments.server, Tasks::new())?;
    let mut client = server.client();
    let mut signals = Signals::listen()?;
    let job = tokio::select! {
        job = begin(&mut client, arguments) => job?,
        () = signals.next() => bail!("the server had not answered yet: what was asked of it may be done all the same"),
    };
    if arguments.cancel.is_some() {
        return print(&format!("The job {} is cancelled.\n{}", job.id, summary(&job)));
    }
    let id = job.id.clone();
    tokio::select! {
        outcome = follow(&mut client, job) => outcome,
        () = signals.next() => {
            let how = format!("  tidegate replay --follow {id}\n  tidegate replay --cancel {id}\n");
            print(&format!("The job {id} goes on without you. To follow or to stop it:\n{how}"))
        }
    }
}

/// The job that is spoken of: cancelled, there already, or new.
async fn begin(client: &mut Client, arguments: &cli::Replay) -> anyhow::Result<Job> {
    match (&arguments.cancel, &arguments.follow) {
        (Some(id), _) => post(client, &format!("{}/cancel", path(id)), String::new()).await,
        (None, Some(id)) => client.get(&path(id)).await,
        (None, None) => post(client, "/v1/jobs", order(arguments)?).await,
    }
}

fn path(id: &str) -> String {
    format!("/v1/jobs/{id}")
}

async fn post(client: &mut Client, path: &str, body: String) -> anyhow::Result<Job> {
    client.post(path, "application/json", Bytes::from(body)).await?.read()
}

/// What is asked for, as the API takes it.
fn order(arguments: &cli::Replay) -> anyhow::Result<String> {
    let mut order = json!({"kind": "replay", "dry_run": arguments.dry_run, "missing": arguments.missing});
    if !arguments.deliveries.is_empty() {
        order["deliveries"] = json!(arguments.deliveries);
    }
    if let Some(subscription) = &arguments.subscription {
        order["subscription"] = json!(subscription);
    }
    if !arguments.status.is_empty() {
        order["status"] = arguments.status.iter().copied().map(Status::as_str).collect();
    }
    if !arguments.event_types.is_empty() {
        order["event_types"] = json!(arguments.event_types);
    }
    for (name, moment) in [("since", arguments.since), ("until", arguments.until)] {
        if let Some(moment) = moment {
            order[name] = moment.format(&Rfc3339).context("a time cannot be written")?.into();
        }
    }
    Ok(order.to_string())
}

/// A server that restarts is waited for, and the job goes on with it.
async fn follow(client: &mut Client, mut job: Job) -> anyhow::Result<()> {
    let bar = terminal::progress(STEPS, "replay", "{percent}%  {msg} looked at");
    while !job.state.has_ended() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the bar's steps")]
        bar.set_position((job.progress.clamp(0.0, 1.0) * STEPS as f64) as u64);
        bar.set_message(format!("{} of {}", terminal::count(job.requeued + job.created), terminal::count(job.scanned)));
        tokio::time::sleep(INTERVAL).await;
        let say = |error: &anyhow::Error| {
            let text = format!("tidegate: {error:#}; the job {} goes on where it can, asking for it again", job.id);
            bar.suspend(|| terminal::note(&text));
        };
        let now = until_answered(INTERVAL, say, async || client.get::<Job>(&path(&job.id)).await).await;
        job = now.with_context(|| format!("the job {} cannot be followed any further", job.id))?;
    }
    bar.finish_and_clear();
    print(&summary(&job))?;
    match job.state {
        State::Failed => bail!("the job {} failed: {}", job.id, job.error.unwrap_or_default()),
        State::Cancelled => bail!("the job {} was cancelled before its end", job.id),
        State::Pending | State::Running | State::Done => Ok(()),
    }
}

fn summary(job: &Job) -> String {
    let number = terminal::count;
    let state = if job.dry_run { "counted only, nothing was changed" } else { "" };
    let mut rows = vec![("job", format!("{}   {} {state}", job.id, job.kind).trim_end().to_owned())];
    for (name, many) in [
        ("looked at", job.scanned),
        ("requeued", job.requeued),
        ("created", job.created),
        ("cancelled", job.cancelled),
        ("deleted", job.deleted),
        ("skipped", job.skipped),
    ] {
        if many > 0 || matches!(name, "looked at" | "requeued") {
            rows.push((name, number(many)));
        }
    }
    terminal::table(&rows)
}
