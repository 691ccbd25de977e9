//! Which offsets may be committed: the end of the longest run of finished batches, per partition. No clock, no I/O.
//!
//! Batches may finish in any order. A partition that was taken away is forgotten, and so is what was under way for it:
//! whoever has it now reads those records again and ignores the ids that are known.

use std::collections::{BTreeMap, VecDeque};

/// A batch's part of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    partition: i32,
    /// Of the assignment, so that a mark from an earlier one is known as stale.
    generation: u64,
    ticket: u64,
}

#[derive(Debug, Default)]
pub(super) struct Tracker {
    lines: BTreeMap<i32, Line>,
    next: u64,
}

#[derive(Debug)]
struct Line {
    generation: u64,
    /// Ticket, the offset after the batch's last record, and whether it is finished.
    under_way: VecDeque<(u64, i64, bool)>,
    /// What may be committed and was not taken yet.
    ready: Option<i64>,
    /// What was taken last.
    taken: Option<i64>,
}

impl Tracker {
    pub(super) fn assign(&mut self, partition: i32) {
        self.next += 1;
        let line = Line { generation: self.next, under_way: VecDeque::new(), ready: None, taken: None };
        self.lines.insert(partition, line);
    }

    /// Forgets a partition; what it had ready is returned, to be committed while that is still allowed.
    pub(super) fn revoke(&mut self, partition: i32) -> Option<i64> {
        self.lines.remove(&partition).and_then(|line| line.ready)
    }

    /// Which assignment of the partition this is; `None` if it is not ours.
    pub(super) fn assignment(&self, partition: i32) -> Option<u64> {
        self.lines.get(&partition).map(|line| line.generation)
    }

    pub(super) fn partitions(&self) -> Vec<i32> {
        self.lines.keys().copied().collect()
    }

    /// A batch whose last record of the partition lies before `next_offset`; `None` if it was read under an assignment that has
    /// ended: committed under a later one, it would pass what was under way before it.
    pub(super) fn begin(&mut self, partition: i32, assignment: u64, next_offset: i64) -> Option<Mark> {
        let line = self.lines.get_mut(&partition).filter(|line| line.generation == assignment)?;
        self.next += 1;
        line.under_way.push_back((self.next, next_offset, false));
        Some(Mark { partition, generation: line.generation, ticket: self.next })
    }

    /// Every record under the mark is in the database.
    pub(super) fn finish(&mut self, mark: Mark) {
        let line = self.lines.get_mut(&mark.partition).filter(|line| line.generation == mark.generation);
        let Some(line) = line else { return };
        if let Some(batch) = line.under_way.iter_mut().find(|(ticket, ..)| *ticket == mark.ticket) {
            batch.2 = true;
        }
        while let Some((_, next_offset, true)) = line.under_way.front() {
            line.ready = Some(*next_offset);
            line.under_way.pop_front();
        }
    }

    /// Is nothing under way for these partitions?
    pub(super) fn is_idle(&self, partitions: &[i32]) -> bool {
        partitions.iter().all(|partition| self.lines.get(partition).is_none_or(|line| line.under_way.is_empty()))
    }

    /// What was taken was not committed: it is ready again, unless more is by now, or was taken since.
    pub(super) fn restore(&mut self, partition: i32, next_offset: i64) {
        if let Some(line) = self.lines.get_mut(&partition).filter(|line| line.taken == Some(next_offset)) {
            line.ready.get_or_insert(next_offset);
        }
    }

    /// What may be committed now, each once.
    pub(super) fn take_ready(&mut self) -> Vec<(i32, i64)> {
        let take = |(partition, line): (&i32, &mut Line)| {
            line.taken = Some(line.ready.take()?);
            Some((*partition, line.taken?))
        };
        self.lines.iter_mut().filter_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_later_batch_waits_for_an_earlier_one() {
        let mut tracker = Tracker::default();
        let assignment = assigned(&mut tracker, 0);
        let [first, second] = [10, 20].map(|end| tracker.begin(0, assignment, end).unwrap());
        tracker.finish(second);
        assert_eq!(tracker.take_ready(), []);
        tracker.finish(first);
        assert_eq!(tracker.take_ready(), [(0, 20)]);
        assert_eq!(tracker.take_ready(), []);
    }

    /// A commit that a rebalance refused was forgotten: until its partition's next record the lag said that rows were missing.
    #[test]
    fn what_could_not_be_committed_is_ready_again() {
        let mut tracker = Tracker::default();
        let assignment = assigned(&mut tracker, 0);
        let [first, second] = [10, 20].map(|end| tracker.begin(0, assignment, end).unwrap());
        tracker.finish(first);
        assert_eq!(tracker.take_ready(), [(0, 10)]);
        tracker.restore(0, 10);
        assert_eq!(tracker.take_ready(), [(0, 10)]);
        tracker.finish(second);
        tracker.restore(0, 10);
        assert_eq!(tracker.take_ready(), [(0, 20)], "which says more");
        tracker.restore(0, 10);
        assert_eq!(tracker.take_ready(), [], "it would take back what was committed since");
        tracker.revoke(0);
        tracker.restore(0, 20);
        assert_eq!(tracker.take_ready(), []);
    }

    #[test]
    fn a_mark_of_an_earlier_assignment_commits_nothing() {
        let mut tracker = Tracker::default();
        let first = assigned(&mut tracker, 0);
        let stale = tracker.begin(0, first, 10).unwrap();
        assert_eq!(tracker.revoke(0), None);
        assert_eq!(tracker.begin(0, first, 11), None);
        tracker.assign(0);
        tracker.finish(stale);
        assert_eq!(tracker.take_ready(), []);
        assert!(tracker.is_idle(&[0, 1]));
    }

    /// A record was read and not yet handed over when its partition left and came back; the batch before it was still being
    /// written. Begun under the new assignment, it had that batch committed past.
    #[test]
    fn what_was_read_under_an_earlier_assignment_is_not_begun() {
        let mut tracker = Tracker::default();
        let first = assigned(&mut tracker, 0);
        tracker.begin(0, first, 10).unwrap();
        tracker.revoke(0);
        let second = assigned(&mut tracker, 0);
        assert_eq!(tracker.begin(0, first, 11), None);
        let again = tracker.begin(0, second, 10).unwrap();
        tracker.finish(again);
        assert_eq!(tracker.take_ready(), [(0, 10)]);
    }

    fn assigned(tracker: &mut Tracker, partition: i32) -> u64 {
        tracker.assign(partition);
        tracker.assignment(partition).unwrap()
    }

    proptest! {
        /// In whatever order batches finish, nothing unfinished is ever committed past, and in the end all is.
        #[test]
        fn no_commit_passes_an_unfinished_batch(order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut tracker = Tracker::default();
            let assignment = assigned(&mut tracker, 5);
            let marks: Vec<Mark> = (1..=12).map(|end| tracker.begin(5, assignment, end * 10).unwrap()).collect();
            let mut finished = [false; 12];
            let mut committed = 0;
            for place in order {
                tracker.finish(marks[place]);
                finished[place] = true;
                let ready = tracker.take_ready().first().map(|(_, offset)| *offset);
                committed = ready.unwrap_or(committed);
                let run = i64::try_from(finished.iter().take_while(|is_finished| **is_finished).count()).unwrap();
                prop_assert_eq!(committed, run * 10);
            }
        }
    }
}
