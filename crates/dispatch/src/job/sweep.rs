//! What one batch of a job does to the deliveries and events that were looked at: the rules, and nothing else.
//!
//! What has changed since the job was made is left alone, so no job meets its own work, and each delivery is taken at
//! most once. Replayed deliveries are spread over time at half the rate of their subscription: a replay of a million never
//! floods a receiver, nor holds back what is new.

use std::{collections::HashMap, sync::Arc, time::Duration};

use platform::id;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{Counts, Kind, Selection};
use crate::{
    catalog::Endpoint,
    delivery::{Document, EventType, Matcher, Status},
    error::Error,
    model::Ordering,
    store::sweep::{Candidate, Changes, Creation, OldEvent, Requeue},
};

/// A replay takes at most one in so many of the calls that a subscription allows.
const SHARE_OF_RATE: u32 = 2;
/// A test event is for one subscription alone.
pub(crate) const TEST_EVENT: &str = "tidegate.test";

/// One job's way through what it selects.
pub struct Sweep {
    kind: Kind,
    selection: Selection,
    matcher: Option<Matcher>,
    made_at: OffsetDateTime,
    /// When the next replayed delivery of a subscription may be due.
    slots: HashMap<Arc<str>, Instant>,
}

impl Sweep {
    pub fn new(kind: Kind, selection: Selection, made_at: OffsetDateTime) -> Result<Self, Error> {
        let matcher = selection.event_types.as_ref().map(|globs| Matcher::parse("event_types", globs)).transpose()?;
        Ok(Sweep { kind, selection, matcher, made_at, slots: HashMap::new() })
    }

    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// What is to be done to these deliveries; `find` knows the subscriptions that are still there.
    pub fn take_deliveries(
        &mut self,
        candidates: &[Candidate],
        now: Instant,
        find: impl Fn(&str) -> Option<Arc<Endpoint>>,
    ) -> (Changes, Counts) {
        let mut changes = Changes::default();
        let mut counts = Counts { scanned: candidates.len() as u64, ..Counts::default() };
        for candidate in candidates {
            if !self.is_selected(candidate) {
                continue;
            }
            let is_busy = candidate.status == Status::Processing || candidate.updated_at > self.made_at;
            if is_busy || !self.selection.status.contains(&candidate.status) {
                counts.skipped += 1;
                continue;
            }
            let (id, fence) = (candidate.id.clone(), candidate.fence);
            match self.kind {
                Kind::Cancel => changes.cancel.push((id, fence)),
                Kind::Purge => {
                    changes.delete.push((id, fence));
                    changes.bare_events.push(candidate.event_uid.clone());
                }
                // Without its event there is nothing to send.
                Kind::Replay => match find(&candidate.subscription).filter(|_| candidate.event_type.is_some()) {
                    Some(endpoint) => {
                        changes.requeue.push(Requeue { id, fence, delay: self.slot(&endpoint, now) });
                    }
                    None => counts.skipped += 1,
                },
            }
        }
        changes.bare_events.dedup();
        (changes, counts)
    }

    /// By everything but its status. One in flight counts as selected, to be told as skipped.
    fn is_selected(&self, candidate: &Candidate) -> bool {
        let Selection { subscription, status, .. } = &self.selection;
        let is_wanted_status = status.contains(&candidate.status) || candidate.status == Status::Processing;
        is_wanted_status
            && subscription.as_ref().is_none_or(|wanted| *wanted == candidate.subscription)
            && self.is_in_time(candidate.created_at)
            && self.is_of_type(candidate.event_type.as_deref())
    }

    /// What is to be done about these events: deliveries made that are missing, or, in a purge, the end of those that
    /// nobody has a delivery of.
    pub fn take_events(
        &mut self,
        events: &[OldEvent],
        now: Instant,
        wanted: impl Fn(&EventType, &Document<'_>) -> Vec<Arc<Endpoint>>,
    ) -> (Changes, Counts) {
        let mut changes = Changes::default();
        let counts = Counts { scanned: events.len() as u64, ..Counts::default() };
        for event in events {
            if !self.is_in_time(event.created_at) || !self.is_of_type(Some(&event.event_type)) {
                continue;
            }
            if self.kind == Kind::Purge {
                if event.receivers.is_empty() {
                    changes.bare_events.push(event.uid.clone());
                }
                continue;
            }
            let Ok(event_type) = EventType::parse("type", &event.event_type) else { continue };
            if event.event_type == TEST_EVENT {
                continue;
            }
            let data = event.data.as_deref().unwrap_or("null");
            let document = Document::new(&event.id, &event.event_type, data)
                .with_source(event.source.as_deref())
                .with_ordering_key(event.ordering_key.as_deref());
            for endpoint in wanted(&event_type, &document) {
                let is_meant = self.selection.subscription.as_ref().is_none_or(|meant| **meant == *endpoint.id);
                if !is_meant || event.receivers.iter().any(|receiver| **receiver == *endpoint.id) {
                    continue;
                }
                let ordering_key = event.ordering_key.clone().filter(|_| endpoint.ordering == Ordering::Key);
                let delay = self.slot(&endpoint, now);
                let (event_uid, subscription) = (event.uid.clone(), Arc::clone(&endpoint.id));
                changes.create.push(Creation { id: id::new("dlv"), event_uid, subscription, ordering_key, delay });
            }
        }
        (changes, counts)
    }

    fn is_in_time(&self, at: OffsetDateTime) -> bool {
        let Selection { since, until, .. } = self.selection;
        since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until) && at <= self.made_at
    }

    fn is_of_type(&self, event_type: Option<&str>) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        let parsed = event_type.and_then(|text| EventType::parse("type", text).ok());
        parsed.is_some_and(|event_type| matcher.matches(&event_type))
    }

    /// How long from now this subscription's next one may be due.
    fn slot(&mut self, endpoint: &Endpoint, now: Instant) -> Duration {
        let interval = Duration::from_secs(SHARE_OF_RATE.into()) / endpoint.rate_limit.max(1);
        let slot = self.slots.get(&endpoint.id).map_or(now, |last| (*last + interval).max(now));
        self.slots.insert(Arc::clone(&endpoint.id), slot);
        slot - now
    }
}
