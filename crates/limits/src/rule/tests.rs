//! Which rule speaks for a key, and what a wrong rule is told.

use std::{sync::Arc, time::Duration};

use platform::config::Span;
use proptest::prelude::*;

use super::*;

fn written(key: &str) -> Written {
    Written {
        id: None,
        key: key.to_owned(),
        algorithm: None,
        limit: 10,
        window: Some(Span(Duration::from_secs(1))),
        calendar: None,
        burst: None,
        cost: None,
        shadow: false,
        fallback: Fallback::Local,
        overrides: Default::default(),
    }
}

fn set(keys: &[&str]) -> RuleSet {
    let rule = |key: &&str| Arc::new(written(key).check((*key).into(), Source::File).unwrap());
    RuleSet::new(keys.iter().map(rule))
}

fn found<'a>(set: &'a RuleSet, key: &str) -> Option<&'a str> {
    set.find(key).map(|rule| rule.pattern.as_str())
}

#[test]
fn an_exact_key_wins_over_patterns_and_a_longer_beginning_over_a_shorter_one() {
    let set = set(&["*", "user:*", "user:7:*", "user:7:read", "*:read", "user:*:write"]);
    assert_eq!(found(&set, "user:7:read"), Some("user:7:read"));
    assert_eq!(found(&set, "user:7:write"), Some("user:7:*"));
    assert_eq!(found(&set, "user:8:write"), Some("user:*"), "equal beginnings: the first written wins");
    assert_eq!(found(&set, "other:read"), Some("*"));
    let all: Vec<&str> = set.all("user:8:write").iter().map(|rule| rule.pattern.as_str()).collect();
    assert_eq!(all, ["user:*", "user:*:write", "*"]);
}

#[test]
fn without_a_rule_for_all_an_unknown_key_has_none() {
    let set = set(&["user:*", "exact"]);
    assert_eq!(found(&set, "use"), None);
    assert_eq!(found(&set, "exactly"), None);
    assert_eq!(found(&set, "user:"), Some("user:*"), "a star may stand for nothing");
}

#[test]
fn a_wrong_rule_is_told_its_field() {
    let field = |change: &dyn Fn(&mut Written)| {
        let mut rule = written("a:*");
        change(&mut rule);
        rule.check("r".into(), Source::File).unwrap_err().key
    };
    assert_eq!(field(&|rule| rule.key.clear()), "key");
    assert_eq!(field(&|rule| rule.key = "k".repeat(MOST + 1)), "key");
    assert_eq!(field(&|rule| rule.key = "*".repeat(9)), "key");
    assert_eq!(field(&|rule| rule.limit = 0), "limit");
    assert_eq!(field(&|rule| rule.limit = u64::MAX), "limit");
    assert_eq!(field(&|rule| rule.window = Some(Span(Duration::ZERO))), "window");
    assert_eq!(field(&|rule| rule.window = Some(Span(Duration::from_nanos(1)))), "window");
    assert_eq!(field(&|rule| rule.window = Some(Span(Duration::from_secs(1_000 * 366 * 86_400)))), "window");
    assert_eq!(field(&|rule| rule.burst = Some(0)), "burst");
    assert_eq!(field(&|rule| rule.cost = Some(0)), "cost");
    assert_eq!(field(&|rule| rule.cost = Some(11)), "cost");
    let own = Override { limit: 0, window: None, burst: None };
    assert_eq!(field(&|rule| rule.overrides = [("a:1".into(), own)].into()), "overrides.a:1.limit");
    let costly = |burst| {
        move |rule: &mut Written| {
            rule.cost = Some(5);
            rule.overrides = [("a:1".into(), Override { limit: 4, burst, window: None })].into();
        }
    };
    assert_eq!(field(&costly(None)), "overrides.a:1.limit", "no plain check of this key could ever pass");
    assert_eq!(field(&costly(Some(3))), "overrides.a:1.burst");
    let foreign = Override { limit: 1, ..own };
    assert_eq!(field(&|rule| rule.overrides = [("b".into(), foreign)].into()), "overrides.b");
    let window = |rule: &mut Written| {
        rule.algorithm = Some(Algorithm::FixedWindow);
        rule.burst = Some(3);
    };
    assert_eq!(field(&window), "burst");
    assert_eq!(field(&|rule| rule.window = None), "window");
    let month = Calendar { every: Every::Month, time_zone: "Mars/Olympus".to_owned() };
    let on_mars = |rule: &mut Written| (rule.window, rule.calendar) = (None, Some(month.clone()));
    assert_eq!(field(&on_mars), "calendar.time_zone");
    let twice = |rule: &mut Written| rule.calendar = Some(month.clone());
    assert_eq!(field(&twice), "window");
}

const MOST: usize = crate::engine::MOST_KEY_BYTES;

#[test]
fn an_override_counts_its_key_with_its_own_numbers() {
    let mut rule = written("user:*");
    rule.overrides.insert("user:7".into(), Override { limit: 50, window: None, burst: None });
    let rule = rule.check("r".into(), Source::Api).unwrap();
    assert_eq!(rule.policy("user:7", 0).limit(), 50);
    assert_eq!(rule.policy("user:8", 0).limit(), 10);
}

#[test]
fn a_rule_that_was_stored_with_a_bad_override_goes_on_counting_its_other_keys() {
    let mut rule = written("user:*");
    rule.cost = Some(5);
    rule.overrides.insert("user:7".into(), Override { limit: 1, window: None, burst: None });
    assert!(rule.check("r".into(), Source::Api).is_err());
    assert_eq!(rule.compile("r".into(), Source::Api).unwrap().policy("user:8", 0).limit(), 10);
}

proptest! {
    /// The matcher agrees with the plainest one there could be.
    #[test]
    fn stars_stand_for_anything(pattern in "[ab*]{0,8}", key in "[ab]{0,10}") {
        fn plain(pattern: &[u8], key: &[u8]) -> bool {
            match pattern.split_first() {
                None => key.is_empty(),
                Some((b'*', rest)) => (0..=key.len()).any(|taken| plain(rest, &key[taken..])),
                Some((byte, rest)) => key.first() == Some(byte) && plain(rest, &key[1..]),
            }
        }
        prop_assert_eq!(Pattern::new(&pattern).matches(&key), plain(pattern.as_bytes(), key.as_bytes()));
    }
}

#[test]
fn a_pattern_that_nearly_fits_everywhere_is_not_slow() {
    let pattern = Pattern::new(&format!("*{}b*", "a".repeat(300_000)));
    assert!(!pattern.matches(&"a".repeat(600_000)), "which would take minutes if each place were tried");
}

#[test]
fn patterns_are_tried_together_where_their_beginnings_begin_with_each_other() {
    let tried = |new: &str, others: &[&str]| {
        let others: Vec<Pattern> = others.iter().map(|text| Pattern::new(text)).collect();
        tried_with(&Pattern::new(new), others.iter())
    };
    let others = ["*:read", "user:*:read", "user:*:write", "user:7:*:read", "user:8:*:read", "team:*:read"];
    assert_eq!(tried("user:9:*:read", &others), 4, "those of all users, its own, and that of everybody");
    assert_eq!(tried("user:*:list", &others), 5, "and those of one user");
    assert_eq!(tried("*:write", &others), 5);
    assert_eq!(tried("other:*:a*", &others), 2);
    assert_eq!(tried("user:9:*", &["user:*", "user:9:*", "user:9:a"]), 0, "nothing is searched for");
}
