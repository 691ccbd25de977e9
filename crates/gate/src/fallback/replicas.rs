//! How many replicas there are, as far as heartbeats tell: the rules, and nothing else.
//!
//! More are believed at once, fewer only after they stayed fewer for a while. A Redis that comes back empty has heard of
//! nobody yet, and a replica that believed it would take the whole limit for its share.

const SECOND_US: u64 = 1_000_000;
/// Twice the time after which a silent replica counts as gone.
const SETTLE_US: u64 = 10 * SECOND_US;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Replicas {
    believed: u32,
    /// Since when fewer are heard of, and the most of them.
    fewer: Option<(u64, u32)>,
}

impl Replicas {
    pub(super) fn new(believed: u32) -> Replicas {
        Replicas { believed, fewer: None }
    }

    /// Takes a count and returns the one to act on.
    pub(super) fn heard(&mut self, alive: u32, now_us: u64) -> u32 {
        if alive >= self.believed {
            *self = Replicas::new(alive);
            return alive;
        }
        let (since_us, most) = self.fewer.map_or((now_us, alive), |(since_us, most)| (since_us, most.max(alive)));
        if now_us.saturating_sub(since_us) >= SETTLE_US {
            *self = Replicas::new(most);
        } else {
            self.fewer = Some((since_us, most));
        }
        self.believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_US;

    #[test]
    fn more_are_believed_at_once_and_fewer_after_a_while() {
        let mut replicas = Replicas::new(1);
        assert_eq!(replicas.heard(3, 0), 3);
        assert_eq!(replicas.heard(1, S), 3);
        assert_eq!(replicas.heard(2, 6 * S), 3);
        assert_eq!(replicas.heard(1, 11 * S), 2, "two were alive within the while");
        assert_eq!(replicas.heard(1, 12 * S), 2);
        assert_eq!(replicas.heard(1, 22 * S), 1);
    }

    #[test]
    fn an_emptied_redis_does_not_make_a_replica_take_it_all() {
        let mut replicas = Replicas::new(3);
        let after_the_flush: Vec<u32> = [1, 2, 3].into_iter().map(|alive| replicas.heard(alive, S)).collect();
        assert_eq!(after_the_flush, [3, 3, 3]);
        assert_eq!(replicas.heard(2, 20 * S), 3, "the earlier dip is forgotten");
    }
}
