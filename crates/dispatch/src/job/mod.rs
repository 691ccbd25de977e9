//! Jobs: what operators do to many deliveries at once, in the background.
//!
//! A job is a row with a lease and a cursor. Each batch changes deliveries and moves the cursor in one commit under the
//! job's fence: a worker that dies at any moment neither loses nor doubles progress, another goes on from there, and a
//! cancelled job changes nothing after its present batch. Of a tenant's jobs one runs at a time, in their order.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`selection`] | which deliveries a job is about (pure) |
//! | [`sweep`] | what one batch does to what was looked at (pure) |
//! | [`runner`] | claims jobs and works on them |

pub mod runner;
pub mod selection;
pub mod sweep;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

pub use self::selection::{Kind, Selection};

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for a worker, or for an earlier job of its tenant.
    Pending,
    Running,
    Done,
    /// Ended by hand; what it had done stays done.
    Cancelled,
    /// Given up: `error` says why. What it had done stays done.
    Failed,
}

impl State {
    pub fn parse(text: &str) -> Option<State> {
        serde_json::from_value(text.into()).ok()
    }

    pub fn has_ended(self) -> bool {
        matches!(self, State::Done | State::Cancelled | State::Failed)
    }
}

/// What a job has done so far, or, in a dry run, would have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Deliveries and events looked at.
    pub scanned: u64,
    /// Deliveries that are due again.
    pub requeued: u64,
    /// Deliveries made for events that had none to a subscription that wants them.
    pub created: u64,
    pub cancelled: u64,
    /// Deliveries that are gone, with their attempts.
    pub deleted: u64,
    /// Events that are gone with their last delivery. A dry run counts only those that nobody has a delivery of.
    pub events_deleted: u64,
    /// Selected and yet left alone: being attempted right now, changed since the job was made, or of a subscription that
    /// is gone.
    pub skipped: u64,
}

/// The place a job has come to. Written with what it did there, in one commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Which of the selection's walks.
    pub walk: usize,
    /// The last id of it that was looked at.
    pub cursor: Option<String>,
    /// When the first and the last that were looked at in this walk were made.
    pub from: Option<OffsetDateTime>,
    pub at: Option<OffsetDateTime>,
    pub counts: Counts,
}

/// A job as callers see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Job {
    #[schema(example = "job_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    pub kind: Kind,
    pub state: State,
    #[serde(flatten)]
    pub selection: Selection,
    #[serde(flatten)]
    pub counts: Counts,
    /// From 0 to 1, by the age of what was looked at last.
    #[schema(example = 0.42)]
    pub progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<OffsetDateTime>,
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<OffsetDateTime>,
}

impl Progress {
    /// How far it is, where `end` is when the last that can be selected was made.
    pub fn share(&self, walks: usize, end: OffsetDateTime) -> f64 {
        let within = match (self.from, self.at) {
            (Some(from), Some(at)) if end > from => (at - from).as_seconds_f64() / (end - from).as_seconds_f64(),
            _ => 0.0,
        };
        let share = (self.walk as f64 + within.clamp(0.0, 1.0)) / walks.max(1) as f64;
        (share.min(1.0) * 1000.0).round() / 1000.0
    }
}
