//! Which deliveries a job is about, checked once, when it is made.

use platform::config::Invalid;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::delivery::{Matcher, Status};

/// Ids of one job; more are selected by what they have in common.
const MOST_IDS: usize = 1000;

/// What a job does to the deliveries that it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Sends them again, with a fresh schedule and the same `webhook-id`.
    Replay,
    /// Ends those that wait.
    Cancel,
    /// Deletes those that have ended, with their attempts, and events of which nothing is left.
    Purge,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Replay => "replay",
            Kind::Cancel => "cancel",
            Kind::Purge => "purge",
        }
    }

    pub fn parse(text: &str) -> Option<Kind> {
        [Kind::Replay, Kind::Cancel, Kind::Purge].into_iter().find(|kind| kind.as_str() == text)
    }

    /// Can it be done to a delivery in this state, and if not, what is to be done instead?
    fn objection(self, status: Status) -> Option<&'static str> {
        let is_waiting = matches!(status, Status::Pending | Status::Retrying | Status::Throttled);
        match self {
            Kind::Replay | Kind::Cancel if status == Status::Processing => {
                Some("it is being attempted right now: select it by what becomes of it")
            }
            Kind::Cancel if !is_waiting => Some("it has ended: there is nothing to cancel"),
            Kind::Purge if !status.is_final() => {
                Some("it is still to be sent: end it with a job of the kind \"cancel\" first")
            }
            _ => None,
        }
    }
}

/// Which deliveries. What is absent is not asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Selection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// Only these, by their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Vec<String>>,
    #[serde(default)]
    pub status: Vec<Status>,
    /// Globs over event types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_types: Option<Vec<String>>,
    /// Made at or after this time.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
    /// Made before this time; absent: before the job.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<OffsetDateTime>,
    /// Replays also make deliveries of events that a subscription wants now and has none of.
    #[serde(default)]
    pub missing: bool,
    /// Counts what would be done, and does nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// One walk over deliveries or events in the order of their ids. A selection is one or more of them, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walk {
    Named,
    /// Of a status that has an index, because few deliveries are in it.
    Status(Status),
    Subscription(String),
    Tenant,
    /// Events that lack a delivery.
    Events,
}

impl Selection {
    /// Fills in what `kind` takes for granted, and refuses what makes no sense. `status` and `dry_run` are as they were
    /// sent in.
    pub fn check(mut self, kind: Kind, status: Option<Vec<Status>>, dry_run: Option<bool>) -> Result<Self, Invalid> {
        self.status = status.unwrap_or_else(|| match kind {
            Kind::Replay if self.deliveries.is_none() => vec![Status::Failed],
            Kind::Cancel => vec![Status::Pending, Status::Retrying, Status::Throttled],
            Kind::Replay | Kind::Purge => vec![Status::Delivered, Status::Failed, Status::Cancelled],
        });
        if self.status.is_empty() && !self.missing {
            return Err(Invalid::new(
                "status",
                "name at least one status, or leave it out; none is for what is missing",
            ));
        }
        self.status.sort_by_key(|status| status.as_str());
        self.status.dedup();
        if let Some((status, objection)) =
            self.status.iter().find_map(|status| Some((status, kind.objection(*status)?)))
        {
            return Err(Invalid::new("status", format!("a delivery that is {status} cannot be selected: {objection}")));
        }
        self.dry_run = match (kind, dry_run) {
            (Kind::Purge, None) => {
                return Err(Invalid::new(
                    "dry_run",
                    "a purge cannot be undone: count first with \"dry_run\": true, then say false",
                ));
            }
            (_, dry_run) => dry_run.unwrap_or(false),
        };
        if let Some(globs) = &self.event_types {
            Matcher::parse("event_types", globs)?;
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since >= until
        {
            return Err(Invalid::new("until", "until must be later than since"));
        }
        self.check_ids()?;
        self.check_missing(kind)?;
        Ok(self)
    }

    fn check_ids(&self) -> Result<(), Invalid> {
        // PostgreSQL takes no NUL, not even to look for it.
        let is_none = |id: &String| id.chars().any(char::is_control);
        let objection = "no id holds a control character";
        if self.subscription.as_ref().is_some_and(is_none) {
            return Err(Invalid::new("subscription", objection));
        }
        match &self.deliveries {
            Some(ids) if ids.is_empty() || ids.len() > MOST_IDS => {
                Err(Invalid::new("deliveries", format!("name 1 to {MOST_IDS} deliveries, or leave it out")))
            }
            Some(ids) => match ids.iter().position(is_none) {
                Some(place) => Err(Invalid::new(format!("deliveries[{place}]"), objection)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn check_missing(&self, kind: Kind) -> Result<(), Invalid> {
        let objection = match self {
            Selection { missing: false, .. } => return Ok(()),
            _ if kind != Kind::Replay => "only a replay makes what is missing",
            Selection { deliveries: Some(_), .. } => "what is missing has no id: leave deliveries out",
            Selection { since: None, .. } => {
                return Err(Invalid::new("since", "since is needed with missing: from when on are events to be sent?"));
            }
            _ => return Ok(()),
        };
        Err(Invalid::new("missing", objection))
    }

    /// The cheapest way to meet everything that is selected, and little else.
    pub fn walks(&self, kind: Kind) -> Vec<Walk> {
        let mut walks = if self.deliveries.is_some() {
            vec![Walk::Named]
        } else if self.status.iter().all(|status| status.is_rare()) {
            self.status.iter().copied().map(Walk::Status).collect()
        } else if let Some(subscription) = &self.subscription {
            vec![Walk::Subscription(subscription.clone())]
        } else {
            vec![Walk::Tenant]
        };
        if self.missing || self.takes_unmatched_events(kind) {
            walks.push(Walk::Events);
        }
        walks
    }

    /// A purge of everything also takes events that nobody wanted.
    pub fn takes_unmatched_events(&self, kind: Kind) -> bool {
        let is_all = Status::ALL.into_iter().filter(|status| status.is_final()).all(|all| self.status.contains(&all));
        kind == Kind::Purge && is_all && self.subscription.is_none() && self.deliveries.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> Selection {
        Selection::default()
    }

    #[test]
    fn the_default_of_a_replay_is_what_has_failed() {
        let checked = replay().check(Kind::Replay, None, None).unwrap();
        assert_eq!((&checked.status[..], checked.dry_run), (&[Status::Failed][..], false));
        assert_eq!(checked.walks(Kind::Replay), [Walk::Status(Status::Failed)]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        let day = OffsetDateTime::UNIX_EPOCH;
        let cases = [
            (replay(), Kind::Replay, Some(vec![Status::Processing]), None, "status"),
            (replay(), Kind::Cancel, Some(vec![Status::Delivered]), None, "status"),
            (replay(), Kind::Purge, Some(vec![Status::Retrying]), Some(false), "status"),
            (replay(), Kind::Purge, None, None, "dry_run"),
            (Selection { missing: true, ..replay() }, Kind::Replay, None, None, "since"),
            (Selection { missing: true, since: Some(day), ..replay() }, Kind::Cancel, None, None, "missing"),
            (Selection { deliveries: Some(vec![]), ..replay() }, Kind::Replay, None, None, "deliveries"),
            (Selection { subscription: Some("\0".into()), ..replay() }, Kind::Purge, None, Some(false), "subscription"),
            (
                Selection { deliveries: Some(vec!["dlv_1".into(), "\0".into()]), ..replay() },
                Kind::Cancel,
                None,
                None,
                "deliveries[1]",
            ),
            (
                Selection { event_types: Some(vec!["a b".into()]), ..replay() },
                Kind::Replay,
                None,
                None,
                "event_types[0]",
            ),
            (Selection { since: Some(day), until: Some(day), ..replay() }, Kind::Replay, None, None, "until"),
        ];
        for (selection, kind, status, dry_run, field) in cases {
            let invalid = selection.clone().check(kind, status, dry_run).unwrap_err();
            assert_eq!(invalid.key, field, "{selection:?}");
        }
    }

    #[test]
    fn rare_statuses_are_met_by_their_index_and_common_ones_by_a_walk() {
        let of =
            |status: &[Status]| replay().check(Kind::Replay, Some(status.to_vec()), None).unwrap().walks(Kind::Replay);
        assert_eq!(of(&[Status::Failed, Status::Cancelled]).len(), 2);
        assert_eq!(of(&[Status::Failed, Status::Delivered]), [Walk::Tenant]);
        let only_missing = Selection { missing: true, since: Some(OffsetDateTime::UNIX_EPOCH), ..replay() };
        let only_missing = only_missing.check(Kind::Replay, Some(Vec::new()), None).unwrap();
        assert_eq!(only_missing.walks(Kind::Replay), [Walk::Events]);
        let purge = replay().check(Kind::Purge, None, Some(false)).unwrap();
        assert_eq!(purge.walks(Kind::Purge), [Walk::Tenant, Walk::Events]);
    }
}
