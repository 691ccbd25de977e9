//! `tidegate sink`: a receiver to try things out with. It shows, verifies, counts; and fails, waits or hangs on request.
//!
//! Counting is cheap enough for load: one short lock of one shard per call, and nothing is printed with --quiet.

mod ledger;

use std::{
    io::{IsTerminal, stderr},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use dispatch::delivery::{signature::SigningSecret, verify::Verifier};
use indicatif::ProgressBar;
use platform::{config::Invalid, http_server, shutdown::Tasks};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};
use tokio::time::Instant;

use self::ledger::{Arrival, Counts, Ledger, Sighting};
use super::terminal::{self, Colour, Painter};
use crate::{
    cli,
    serve::{Signals, allow_many_files},
};

const LARGEST_BODY: usize = 16 << 20;
/// Where a script asks for counts alone, as often as it likes.
pub(super) const COUNTS: &str = "/counts";
const ID: &str = "webhook-id";
const REDRAW: Duration = Duration::from_millis(200);
const LIMITS: http_server::Limits = http_server::Limits {
    max_connections: 100_000,
    header_timeout: Duration::from_secs(120),
    request_timeout: Duration::from_secs(3600),
    idle_timeout: Duration::from_secs(3600),
    max_body: LARGEST_BODY,
    // What hangs on purpose would hold the end back.
    drain_timeout: Duration::from_millis(200),
};

pub(super) async fn run(arguments: &cli::Sink) -> anyhow::Result<()> {
    let sink = Arc::new(Sink::new(arguments)?);
    allow_many_files();
    let addr = arguments.addr;
    let listener = http_server::bind(addr).with_context(|| {
        format!("cannot listen on {addr}: stop what listens there, or choose another address with --addr")
    })?;
    let mut signals = Signals::listen()?;
    let tasks = Tasks::new();
    let router =
        Router::new().fallback(receive).layer(DefaultBodyLimit::max(LARGEST_BODY)).with_state(Arc::clone(&sink));
    tasks.spawn("sink listener", http_server::serve("sink", listener, router, LIMITS, tasks.clone()));
    let mut has_reader = terminal::show(&sink.greeting(addr))?;
    let counter = sink.is_quiet && stderr().is_terminal();
    let line = if counter { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut redraw = tokio::time::interval(REDRAW);
    let mut before = 0;
    while has_reader {
        tokio::select! {
            () = signals.next() => break,
            () = sink.gone.notified() => has_reader = false,
            _ = redraw.tick(), if counter => {
                let counts = sink.ledger.counts();
                line.set_message(live(&counts, counts.received - before));
                before = counts.received;
            }
        }
    }
    line.finish_and_clear();
    tasks.stop(Duration::from_secs(1)).await;
    terminal::show(&sink.summary())?;
    Ok(())
}

struct Sink {
    ledger: Ledger,
    /// `None`: signatures are not checked.
    verifier: Option<Verifier>,
    status: StatusCode,
    delay: Duration,
    fail_rate: f64,
    hangs: bool,
    is_quiet: bool,
    painter: Painter,
    started: Instant,
    /// Whoever read standard output has gone.
    gone: tokio::sync::Notify,
}

async fn receive(State(sink): State<Arc<Sink>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if method != Method::POST {
        return sink.state(uri.path() == COUNTS).into_response();
    }
    let (status, sighting) = sink.take(uri.path(), &headers, &body);
    if !sink.delay.is_zero() {
        // Ends here with its caller.
        tokio::time::sleep(sink.delay).await;
    }
    if sink.hangs {
        std::future::pending::<()>().await;
    }
    if sink.is_late() && status.is_success() {
        let id = headers.get(ID).and_then(|id| id.to_str().ok());
        sink.ledger.answered(uri.path(), id, sighting);
    }
    status.into_response()
}

impl Sink {
    fn new(arguments: &cli::Sink) -> anyhow::Result<Self> {
        let wrong = |_| {
            Invalid::new(
                "--secret",
                "this is no signing secret: write the whsec_… that creating the subscription answered, or leave it out and signatures are not checked",
            )
        };
        let secrets = arguments.secret.iter().map(|text| SigningSecret::parse("--secret", text).map_err(wrong));
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        let verifier = (!secrets.is_empty()).then_some(Verifier { secrets, public_keys: Vec::new() });
        Ok(Sink {
            ledger: Ledger::default(),
            verifier,
            status: StatusCode::from_u16(arguments.status).context("--status is a status of HTTP")?,
            delay: arguments.delay,
            fail_rate: arguments.fail_rate,
            hangs: arguments.hang,
            is_quiet: arguments.quiet,
            painter: Painter::for_stdout(),
            started: Instant::now(),
            gone: tokio::sync::Notify::new(),
        })
    }

    fn is_late(&self) -> bool {
        !self.delay.is_zero()
    }

    /// Notes a call, shows it, and decides how it is answered.
    fn take(&self, path: &str, headers: &HeaderMap, body: &[u8]) -> (StatusCode, Sighting) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = OffsetDateTime::now_utc();
        let id = text(ID);
        let is_verified = self.verifier.as_ref().map(|verifier| {
            let (timestamp, signature) = (text("webhook-timestamp"), text("webhook-signature"));
            let now_s = u64::try_from(now.unix_timestamp()).unwrap_or_default();
            let [id, timestamp, signature] = [id, timestamp, signature].map(Option::unwrap_or_default);
            verifier.verify(id, timestamp, signature, body, now_s).is_ok()
        });
        let status = match is_verified {
            Some(false) => StatusCode::UNAUTHORIZED,
            _ if self.fail_rate > 0.0 && fastrand::f64() < self.fail_rate => StatusCode::INTERNAL_SERVER_ERROR,
            _ => self.status,
        };
        let sighting = self.ledger.note(&Arrival {
            path,
            id,
            is_verified,
            is_answered_well: status.is_success() && !self.hangs && !self.is_late(),
            at: self.started.elapsed(),
            latency: field(body, "timestamp")
                .and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok())
                .and_then(|accepted| Duration::try_from(now - accepted).ok()),
        });
        if !self.is_quiet {
            let event_type = field(body, "type").unwrap_or("-");
            let line = self.line(now, event_type, id.unwrap_or("-"), is_verified, status, sighting);
            if !terminal::show(&line).unwrap_or(false) {
                self.gone.notify_one();
            }
        }
        (status, sighting)
    }

    fn line(
        &self,
        now: OffsetDateTime,
        event_type: &str,
        id: &str,
        is_verified: Option<bool>,
        status: StatusCode,
        sighting: Sighting,
    ) -> String {
        let paint = |colour, text: &str| self.painter.paint(colour, text);
        let time = now.format(format_description!("[hour]:[minute]:[second].[subsecond digits:3]")).unwrap_or_default();
        let verified = match is_verified {
            Some(true) => paint(Colour::Green, "✓ verified    "),
            Some(false) => paint(Colour::Red, "✗ not verified"),
            None => paint(Colour::Dim, "- not checked "),
        };
        let answer = match (self.hangs, status.is_success()) {
            (true, _) => paint(Colour::Yellow, "no answer"),
            // Its caller may leave before it is answered so.
            (false, true) if self.is_late() => paint(Colour::Dim, "…"),
            (false, true) => paint(Colour::Green, status.as_str()),
            (false, false) => paint(Colour::Red, status.as_str()),
        };
        let sighting = match sighting {
            Sighting::First => String::new(),
            Sighting::Retry => paint(Colour::Yellow, "  retry"),
            Sighting::Duplicate => paint(Colour::Red, "  duplicate"),
        };
        let time = paint(Colour::Dim, &time);
        let [event_type, id] = [event_type, id].map(terminal::harmless);
        format!("{time}  {event_type:24} {id:30} {verified} {answer}{sighting}\n")
    }

    fn greeting(&self, addr: SocketAddr) -> String {
        let checks = match &self.verifier {
            Some(_) => "answers 401 to what is not signed with --secret".to_owned(),
            None => "does not check signatures: pass --secret whsec_… for that".to_owned(),
        };
        format!("Listening on http://{addr}; {checks}. Ctrl-C ends it with a summary.\n")
    }

    /// The counts so far, for scripts. Gaps and latencies are looked for among all that came, which takes milliseconds.
    fn state(&self, only_counts: bool) -> impl IntoResponse + use<> {
        let counts = self.ledger.counts();
        let mut state = json!({
            "received": counts.received, "distinct": counts.distinct, "retries": counts.retries,
            "duplicates": counts.duplicates, "failed": counts.failed,
            "verified": counts.verified, "not_verified": counts.not_verified, "without_id": counts.without_id,
        });
        if !only_counts {
            state["missing"] = self.ledger.runs().values().map(|run| run.missing).sum::<u64>().into();
            state["latency_us"] = self.ledger.latencies().map(|latency| [latency.p50, latency.p99, latency.max]).into();
        }
        axum::Json(state)
    }

    fn summary(&self) -> String {
        let counts = self.ledger.counts();
        let number = terminal::count;
        let span = counts.span();
        let over = format!("{:.1} s", span.as_secs_f64());
        let mut rows = vec![
            (
                "received",
                format!("{}   {} over {over}", number(counts.received), terminal::rate(counts.received, span)),
            ),
            ("distinct", number(counts.distinct)),
            ("retries", format!("{}   came again after a failure", number(counts.retries))),
            ("duplicates", format!("{}   came again after a success", number(counts.duplicates))),
            ("failed", format!("{}   were not answered with 2xx", number(counts.failed))),
        ];
        rows.push(match &self.verifier {
            Some(_) => {
                ("verified", format!("{}, not verified {}", number(counts.verified), number(counts.not_verified)))
            }
            None => ("verified", "not checked".to_owned()),
        });
        if counts.without_id > 0 {
            rows.push(("no id", format!("{}   had no webhook-id", number(counts.without_id))));
        }
        let latencies = terminal::percentiles(self.ledger.latencies());
        rows.push(("latency", format!("{latencies}   from accepted to received")));
        for (name, run) in self.ledger.runs() {
            let gaps: Vec<String> = run.gaps.iter().map(usize::to_string).collect();
            let which = if gaps.is_empty() { String::new() } else { format!(": {}, …", gaps.join(", ")) };
            rows.push(("run", format!("{name}   {} came, {} missing{which}", number(run.came), number(run.missing))));
        }
        format!("\n{}", terminal::table(&rows))
    }
}

/// One line that moves, for --quiet on a terminal.
fn live(counts: &Counts, since_last: u64) -> String {
    let number = terminal::count;
    format!(
        "received {} ({})   distinct {}   retries {}   duplicates {}   failed {}",
        number(counts.received),
        terminal::rate(since_last, REDRAW),
        number(counts.distinct),
        number(counts.retries),
        number(counts.duplicates),
        number(counts.failed),
    )
}

/// A text at the beginning of a webhook's body, where Tidegate writes `type` and `timestamp`, without reading all of it.
fn field<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let head = &body[..body.len().min(512)];
    let head = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let (_, rest) = head.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fields_of_a_body_are_found() {
        let body = br#"{"type":"order.created","timestamp":"2026-11-15T10:00:00Z","data":{"type":"x"}}"#;
        assert_eq!(field(body, "type"), Some("order.created"));
        assert_eq!(field(body, "timestamp"), Some("2026-11-15T10:00:00Z"));
        assert_eq!(field(body, "absent"), None);
        let cut = [br#"{"type":"a","#.as_slice(), &[0xff, 0xfe]].concat();
        assert_eq!(field(&cut, "type"), Some("a"));
        assert_eq!(field(b"", "type"), None);
    }
}
