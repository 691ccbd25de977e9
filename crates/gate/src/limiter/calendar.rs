//! Where the windows of a calendar begin and end, for quotas per day, week or month in some time zone. Pure.
//!
//! Days are not all of one length and months are not either, so a policy carries four edges: the windows before, now and
//! next. Whoever decides - Redis by its own clock, or this process - finds its window among them. So replicas whose clocks
//! are minutes apart agree, and a policy that is a window old is still right.

use crate::Error;

/// Three windows in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Calendar {
    first_s: u64,
    /// Whole minutes: no time zone of today is finer.
    minutes: [u16; 3],
}

impl Calendar {
    /// From the beginnings of four windows in a row, in seconds since the Unix epoch; the second is the current one's.
    pub(super) fn new(edges_s: [u64; 4]) -> Result<Self, Error> {
        const WRONG: Error = Error::Policy {
            field: "calendar",
            problem: "needs four edges in rising order, whole minutes and at most 45 days apart",
        };
        let length = |index: usize| {
            let seconds = edges_s[index + 1].checked_sub(edges_s[index]).filter(|seconds| seconds % 60 == 0);
            seconds.and_then(|seconds| u16::try_from(seconds / 60).ok()).filter(|minutes| *minutes > 0).ok_or(WRONG)
        };
        if edges_s[0] > 1 << 33 {
            return Err(WRONG);
        }
        Ok(Calendar { first_s: edges_s[0], minutes: [length(0)?, length(1)?, length(2)?] })
    }

    /// The window around a moment: its beginning and its end. Beyond the known ones the last length goes on.
    pub(super) fn window(&self, at_us: u64) -> (u64, u64) {
        let (mut start_us, mut end_us) = (0, self.first_s * 1_000_000);
        for length_us in self.lengths_us() {
            if at_us < end_us {
                return (start_us, end_us);
            }
            (start_us, end_us) = (end_us, end_us + length_us);
        }
        let length_us = end_us - start_us;
        let passed_us = (at_us - start_us) / length_us * length_us;
        (start_us + passed_us, end_us + passed_us)
    }

    /// How long the current window is.
    pub(super) fn current_us(&self) -> u64 {
        self.lengths_us()[1]
    }

    /// First edge and the three lengths, as scripts take them.
    pub(super) fn script_args(&self) -> [u64; 2] {
        let [before, now, next] = self.minutes.map(u64::from);
        [self.first_s, before | now << 16 | next << 32]
    }

    fn lengths_us(&self) -> [u64; 3] {
        self.minutes.map(|minutes| u64::from(minutes) * 60_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn the_window_of_a_moment_lies_between_two_edges() {
        let calendar = Calendar::new([600, 660, 780, 840]).unwrap();
        assert_eq!(calendar.window(600 * S - 1), (0, 600 * S));
        assert_eq!(calendar.window(600 * S), (600 * S, 660 * S));
        assert_eq!(calendar.window(779 * S), (660 * S, 780 * S));
        assert_eq!(calendar.window(780 * S), (780 * S, 840 * S));
        assert_eq!(calendar.window(1_000 * S), (960 * S, 1_020 * S), "the last length goes on");
    }

    #[test]
    fn edges_that_make_no_calendar_are_refused() {
        for edges in [[0, 0, 60, 120], [60, 0, 120, 180], [0, 61, 120, 180], [0, 60, 120, 120 + 46 * 86_400]] {
            assert!(Calendar::new(edges).is_err(), "{edges:?}");
        }
    }
}
