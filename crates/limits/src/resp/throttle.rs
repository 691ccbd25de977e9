//! `THROTTLE key max_burst count period [quantity]`, with redis-cell's meaning. Pure but for the asking.
//!
//! The limit is `max_burst + 1`: so many may come at once, and `count` per `period` seconds come back. A quantity of 0
//! looks and takes nothing.

use std::{num::NonZeroU64, time::Duration};

use gate::{
    Key,
    limiter::{Algorithm, Decision, Limiter, Policy, Verdict},
};

use super::reply::Replies;

const USAGE: &str = "write THROTTLE key max_burst count period [quantity]";
/// What a limit, a count or a quantity may be.
const MOST: u64 = 1 << 32;
const LONGEST_PERIOD_S: u64 = 366 * 24 * 3_600;
/// After the tenant: keeps these keys from meeting those of rules and gates.
const KIND: &str = "/r/";
/// Policies that a connection remembers.
const REMEMBERED: usize = 16;

/// What is wrong with a command, in the words of its caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mistake {
    #[error("wrong number of arguments for 'throttle' command: {USAGE}")]
    WordCount,
    #[error("{field}: not a whole number from {least} to {most}: {USAGE}")]
    Number { field: &'static str, least: u64, most: u64 },
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
    fn get(&mut self, max_burst: u64, count: u64, period_s: u64) -> Result<Policy, Mistake> {
        let terms = [max_burst, count, period_s];
        if let Some((_, policy)) = self.known.iter().find(|(known, _)| *known == terms) {
            return Ok(*policy);
        }
        let policy = Policy::new(Algorithm::Gcra, count, Duration::from_secs(period_s))
            .and_then(|policy| policy.burst(max_burst + 1))
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
        words: impl ExactSizeIterator<Item = &'a [u8]>,
        namespace: &mut Namespace,
        policies: &mut Policies,
    ) -> Result<Throttle, Mistake> {
        if !(4..=5).contains(&words.len()) {
            return Err(Mistake::WordCount);
        }
        let mut words = words;
        let name = words.next().unwrap_or_default();
        let mut number = |field, least, most| match words.next() {
            Some(word) => whole(word, least, most).ok_or(Mistake::Number { field, least, most }).map(Some),
            None => Ok(None),
        };
        let max_burst = number("max_burst", 0, MOST - 1)?.ok_or(Mistake::WordCount)?;
        let count = number("count", 1, MOST)?.ok_or(Mistake::WordCount)?;
        let period_s = number("period", 1, LONGEST_PERIOD_S)?.ok_or(Mistake::WordCount)?;
        let quantity = number("quantity", 0, MOST)?.unwrap_or(1);
        let policy = policies.get(max_burst, count, period_s)?;
        Ok(Throttle { key: namespace.key(name)?, policy, quantity: NonZeroU64::new(quantity) })
    }

    /// As in redis-cell, a quantity of 0 is never refused: `remaining` tells.
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
}

/// Limited (0 or 1), limit, remaining, seconds until it would pass (-1: it passed, or never will), seconds until full.
#[inline]
pub(super) fn write(decision: &Decision, replies: &mut Replies) {
    replies.array(5);
    replies.integer(i64::from(!decision.is_allowed()));
    replies.integer(decision.limit.cast_signed());
    replies.integer(decision.remaining.cast_signed());
    replies.integer(decision.retry_after().map_or(-1, seconds));
    replies.integer(seconds(decision.reset_after));
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

    fn parse(words: &[&[u8]]) -> Result<Throttle, Mistake> {
        Throttle::parse(words.iter().copied(), &mut Namespace::new("acme"), &mut Policies::default())
    }

    async fn answers(words: &[&[u8]], count: usize) -> Vec<String> {
        let limiter = Limiter::new(&Backend::memory_with(Clock::manual(1_000_000_000)));
        let throttle = parse(words).unwrap();
        let mut answers = Vec::new();
        for _ in 0..count {
            let mut replies = Replies::default();
            write(&throttle.decide(&limiter).await, &mut replies);
            answers.push(String::from_utf8_lossy(replies.bytes()).replace("\r\n", " ").replace(':', ""));
        }
        answers
    }

    #[tokio::test]
    async fn the_limit_is_one_more_than_the_burst_and_seconds_are_rounded_up() {
        // 15 at once after the first, 30 per minute: the example of redis-cell's own page.
        let seen = answers(&[b"user", b"15", b"30", b"60"], 17).await;
        assert_eq!(seen[0], "*5 0 16 15 -1 2 ");
        assert_eq!(seen[15], "*5 0 16 0 -1 32 ");
        assert_eq!(seen[16], "*5 1 16 0 2 32 ");
    }

    #[tokio::test]
    async fn a_quantity_of_none_looks_and_one_above_the_limit_never_passes() {
        assert_eq!(answers(&[b"user", b"2", b"1", b"1", b"0"], 2).await, ["*5 0 3 3 -1 0 "; 2]);
        assert_eq!(answers(&[b"user", b"2", b"1", b"1", b"4"], 1).await, ["*5 1 3 3 -1 0 "]);
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
            let mistake = parse(words).unwrap_err().to_string();
            assert!(mistake.starts_with(begins), "{mistake:?} does not begin with {begins:?}");
        }
    }
}
