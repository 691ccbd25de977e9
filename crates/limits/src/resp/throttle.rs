//! `CL.THROTTLE key max_burst count period [quantity]` as redis-cell means it, and `THROTTLE` as throttlecrab does. Pure but
//! for the asking.
//!
//! So many as the limit may come at once, and `count` per `period` seconds come back. redis-cell's limit is `max_burst + 1`,
//! throttlecrab's is `max_burst`. A quantity of 0 looks and takes nothing.

use std::{fmt, num::NonZeroU64, time::Duration};

use gate::{
    Key,
    limiter::{Algorithm, Decision, Limiter, Policy, Verdict},
};

use super::reply::Replies;

/// What a limit, a count or a quantity may be.
const MOST: u64 = 1 << 32;
const LONGEST_PERIOD_S: u64 = 366 * 24 * 3_600;
/// After the tenant: keeps these keys from meeting those of rules and gates.
const KIND: &str = "/r/";
/// Policies that a connection remembers.
const REMEMBERED: usize = 16;

/// Whose command it is: what its burst means, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Cell,
    Crab,
}

impl Dialect {
    #[inline]
    pub(super) fn of(command: &[u8]) -> Option<Dialect> {
        if command.eq_ignore_ascii_case(b"THROTTLE") {
            Some(Dialect::Crab)
        } else {
            command.eq_ignore_ascii_case(b"CL.THROTTLE").then_some(Dialect::Cell)
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Dialect::Cell => "CL.THROTTLE",
            Dialect::Crab => "THROTTLE",
        })
    }
}

/// What is wrong with a command, in the words of its caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mistake {
    #[error("wrong number of arguments for '{0}' command: write {0} key max_burst count period [quantity]")]
    WordCount(Dialect),
    #[error(
        "{field}: not a whole number from {least} to {most}: write {dialect} key max_burst count period [quantity]"
    )]
    Number { dialect: Dialect, field: &'static str, least: u64, most: u64 },
    #[error("key: it must be UTF-8 text: encode bytes as hex or base64")]
    NotText,
    #[error("key: a key has 1 to {most} bytes")]
    KeyLength { most: usize },
    #[error("count, period: {0}")]
    Rate(gate::Error),
}

/// One question.
#[derive(Debug)]
pub(super) struct Throttle {
    dialect: Dialect,
    key: Key,
    policy: Policy,
    /// `None` looks.
    quantity: Option<NonZeroU64>,
}

/// What a tenant's keys begin with, and room to put them together.
#[derive(Debug)]
pub(super) struct Namespace {
    text: String,
    prefix: usize,
}

impl Namespace {
    /// The tenant stands before every key.
    pub(super) fn new(tenant: &str) -> Namespace {
        let text = format!("{tenant}{KIND}");
        Namespace { prefix: text.len(), text }
    }

    pub(super) fn is_of(&self, tenant: &str) -> bool {
        self.text[..self.prefix].strip_suffix(KIND) == Some(tenant)
    }

    fn key(&mut self, name: &[u8]) -> Result<Key, Mistake> {
        let most = Key::MAX_BYTES - self.prefix;
        if name.is_empty() || name.len() > most {
            return Err(Mistake::KeyLength { most });
        }
        let name = std::str::from_utf8(name).map_err(|_| Mistake::NotText)?;
        self.text.truncate(self.prefix);
        self.text.push_str(name);
        Key::new(&self.text).map_err(|_| Mistake::KeyLength { most })
    }
}

/// Limits come with every command, and nearly always the same few: those are compiled once.
#[derive(Debug, Default)]
pub(super) struct Policies {
    known: Vec<([u64; 3], Policy)>,
    next: usize,
}

impl Policies {
    fn get(&mut self, limit: u64, count: u64, period_s: u64) -> Result<Policy, Mistake> {
        let terms = [limit, count, period_s];
        if let Some((_, policy)) = self.known.iter().find(|(known, _)| *known == terms) {
            return Ok(*policy);
        }
        let policy = Policy::new(Algorithm::Gcra, count, Duration::from_secs(period_s))
            .and_then(|policy| policy.burst(limit))
            .map_err(Mistake::Rate)?;
        if self.known.len() < REMEMBERED {
            self.known.push((terms, policy));
        } else {
            self.known[self.next] = (terms, policy);
            self.next = (self.next + 1) % REMEMBERED;
        }
        Ok(policy)
    }
}

impl Throttle {
    /// Reads the words after the command's name.
    pub(super) fn parse<'a>(
        dialect: Dialect,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
        namespace: &mut Namespace,
        policies: &mut Policies,
    ) -> Result<Throttle, Mistake> {
        if !(4..=5).contains(&words.len()) {
            return Err(Mistake::WordCount(dialect));
        }
        let mut words = words;
        let name = words.next().unwrap_or_default();
        let mut number = |field, least, most| match words.next() {
            Some(word) => whole(word, least, most).ok_or(Mistake::Number { dialect, field, least, most }).map(Some),
            None => Ok(None),
        };
        let beyond_burst = u64::from(dialect == Dialect::Cell);
        let max_burst = number("max_burst", 1 - beyond_burst, MOST - 1)?.ok_or(Mistake::WordCount(dialect))?;
        let count = number("count", 1, MOST)?.ok_or(Mistake::WordCount(dialect))?;
        let period_s = number("period", 1, LONGEST_PERIOD_S)?.ok_or(Mistake::WordCount(dialect))?;
        let quantity = number("quantity", 0, MOST)?.unwrap_or(1);
        let policy = policies.get(max_burst + beyond_burst, count, period_s)?;
        Ok(Throttle { dialect, key: namespace.key(name)?, policy, quantity: NonZeroU64::new(quantity) })
    }

    /// As with both of them, a quantity of 0 is never refused: `remaining` tells.
    pub(super) async fn decide(&self, limiter: &Limiter) -> Decision {
        let verdict = match self.quantity {
            Some(quantity) => {
                let decision = limiter.check(&self.key, &self.policy, quantity).await;
                if decision.verdict != Verdict::Never {
                    return decision;
                }
                Verdict::Never
            }
            None => Verdict::Allowed,
        };
        Decision { verdict, ..limiter.peek(&self.key, &self.policy, NonZeroU64::MIN).await }
    }

    /// redis-cell: is it limited, limit, remaining, seconds until it would pass (-1: it passed, or never will), seconds until full.
    /// throttlecrab: is it allowed, limit, remaining, seconds until full, seconds until it would pass (0: it passed; -1: never).
    #[inline]
    pub(super) fn write(&self, decision: &Decision, replies: &mut Replies) {
        let (is_allowed, full) = (decision.is_allowed(), seconds(decision.reset_after));
        let wait = decision.retry_after().map_or(-1, seconds);
        replies.array(5);
        replies.integer(i64::from(is_allowed == (self.dialect == Dialect::Crab)));
        replies.integer(decision.limit.cast_signed());
        replies.integer(decision.remaining.cast_signed());
        let (fourth, fifth) = match self.dialect {
            Dialect::Cell => (wait, full),
            Dialect::Crab => (full, if is_allowed { 0 } else { wait }),
        };
        replies.integer(fourth);
        replies.integer(fifth);
    }
}

/// Rounded up: a caller that waits so long does not come too early.
fn seconds(time: Duration) -> i64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).cast_signed()
}

#[inline]
fn whole(word: &[u8], least: u64, most: u64) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    let mut number: u64 = 0;
    for digit in word {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    (least..=most).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use gate::{Backend, Clock};

    use super::*;

    fn parse(dialect: Dialect, words: &[&[u8]]) -> Result<Throttle, Mistake> {
        Throttle::parse(dialect, words.iter().copied(), &mut Namespace::new("acme"), &mut Policies::default())
    }

    async fn answers(dialect: Dialect, words: &[&[u8]], count: usize) -> Vec<String> {
        let limiter = Limiter::new(&Backend::memory_with(Clock::manual(1_000_000_000)));
        let throttle = parse(dialect, words).unwrap();
        let mut answers = Vec::new();
        for _ in 0..count {
            let mut replies = Replies::default();
            throttle.write(&throttle.decide(&limiter).await, &mut replies);
            answers.push(String::from_utf8_lossy(replies.bytes()).replace("\r\n", " ").replace(':', ""));
        }
        answers
    }

    #[tokio::test]
    async fn redis_cells_limit_is_one_more_than_the_burst_and_seconds_are_rounded_up() {
        // 15 at once after the first, 30 per minute: the example of redis-cell's own page.
        let seen = answers(Dialect::Cell, &[b"user", b"15", b"30", b"60"], 17).await;
        assert_eq!(seen[0], "*5 0 16 15 -1 2 ");
        assert_eq!(seen[15], "*5 0 16 0 -1 32 ");
        assert_eq!(seen[16], "*5 1 16 0 2 32 ");
    }

    #[tokio::test]
    async fn throttlecrab_says_what_is_allowed_its_limit_is_the_burst_and_the_wait_comes_last() {
        let seen = answers(Dialect::Crab, &[b"user", b"2", b"30", b"60"], 3).await;
        assert_eq!(seen, ["*5 1 2 1 2 0 ", "*5 1 2 0 4 0 ", "*5 0 2 0 4 2 "]);
        assert_eq!(answers(Dialect::Crab, &[b"user", b"2", b"30", b"60", b"0"], 1).await, ["*5 1 2 2 0 0 "]);
        assert_eq!(answers(Dialect::Crab, &[b"user", b"2", b"30", b"60", b"5"], 1).await, ["*5 0 2 2 0 -1 "]);
        let mistake = parse(Dialect::Crab, &[b"user", b"0", b"30", b"60"]).unwrap_err().to_string();
        assert!(mistake.starts_with("max_burst: not a whole number from 1 "), "{mistake}");
        assert!(mistake.ends_with("write THROTTLE key max_burst count period [quantity]"), "{mistake}");
    }

    #[tokio::test]
    async fn a_quantity_of_none_looks_and_one_above_the_limit_never_passes() {
        assert_eq!(answers(Dialect::Cell, &[b"user", b"2", b"1", b"1", b"0"], 2).await, ["*5 0 3 3 -1 0 "; 2]);
        assert_eq!(answers(Dialect::Cell, &[b"user", b"2", b"1", b"1", b"4"], 1).await, ["*5 1 3 3 -1 0 "]);
    }

    #[test]
    fn a_mistake_names_its_argument() {
        let cases: [(&[&[u8]], &str); 12] = [
            (&[b"user", b"1", b"1"], "wrong number of arguments"),
            (&[b"user", b"1", b"1", b"1", b"1", b"1"], "wrong number of arguments"),
            (&[b"", b"1", b"1", b"1"], "key: a key has 1 to 505 bytes"),
            (&[&[b'k'; 506], b"1", b"1", b"1"], "key: a key has 1 to 505 bytes"),
            (&[b"\xff", b"1", b"1", b"1"], "key: it must be UTF-8"),
            (&[b"user", b"-1", b"1", b"1"], "max_burst: "),
            (&[b"user", b"4294967296", b"1", b"1"], "max_burst: "),
            (&[b"user", b"1", b"0", b"1"], "count: "),
            (&[b"user", b"1", b"1.5", b"1"], "count: "),
            (&[b"user", b"1", b"1", b"0"], "period: "),
            (&[b"user", b"1", b"1", b"99999999999999999999"], "period: "),
            (&[b"user", b"1", b"1", b"1", b"x"], "quantity: "),
        ];
        for (words, begins) in cases {
            let mistake = parse(Dialect::Cell, words).unwrap_err().to_string();
            assert!(mistake.starts_with(begins), "{mistake:?} does not begin with {begins:?}");
        }
    }
}
