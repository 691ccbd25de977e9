//! The engine in memory: whose rule, whose counter, who is charged.

use std::sync::Arc;

use gate::Backend;

use super::*;
use crate::{
    envoy::{self, Descriptor, Entry, Override, Unit},
    rule::{Algorithm, Source, Written},
};

fn engine() -> Engine {
    Engine::new(&Backend::memory(), Algorithm::FixedWindow, 0.0)
}

fn rules(source: Source, all: &[(&str, u64)]) -> Arc<RuleSet> {
    let rule = |(key, limit): &(&str, u64)| {
        let written: Written =
            serde_json::from_value(serde_json::json!({"key": key, "limit": limit, "window": "1h"})).unwrap();
        Arc::new(written.check((*key).into(), source).unwrap())
    };
    Arc::new(RuleSet::new(all.iter().map(rule)))
}

fn ask(key: &str) -> Ask<'_> {
    Ask { key, cost: None }
}

#[tokio::test]
async fn tenants_share_rules_of_the_file_and_no_counter() {
    let engine = engine();
    engine.replace(Book { file: rules(Source::File, &[("user:*", 1)]), ..Book::default() });
    for tenant in ["one", "two"] {
        assert!(engine.check(tenant, ask("user:7")).await.unwrap().is_allowed());
        assert!(!engine.check(tenant, ask("user:7")).await.unwrap().is_allowed());
        assert!(engine.check(tenant, ask("user:8")).await.unwrap().is_allowed(), "every key counts by itself");
    }
}

#[tokio::test]
async fn a_tenants_own_rule_wins_over_the_file_and_holds_for_nobody_else() {
    let engine = engine();
    let own = rules(Source::Api, &[("*", 5)]);
    let tenants = HashMap::from([("one".into(), own)]);
    engine.replace(Book { file: rules(Source::File, &[("user:7", 1)]), tenants, ..Book::default() });
    assert_eq!(engine.check("one", ask("user:7")).await.unwrap().decision.limit, 5);
    assert_eq!(engine.check("two", ask("user:7")).await.unwrap().decision.limit, 1);
    assert!(matches!(engine.check("two", ask("user:8")).await, Err(Error::NoRule { .. })));
}

#[tokio::test]
async fn what_can_never_pass_is_an_error_and_charges_nothing() {
    let engine = engine();
    engine.replace(Book { file: rules(Source::File, &[("*", 3)]), ..Book::default() });
    let above = engine.check("t", Ask { key: "a", cost: Some(4) }).await;
    assert!(matches!(above, Err(Error::AboveCapacity { cost: 4, capacity: 3, .. })));
    assert!(matches!(engine.check("t", Ask { key: "a", cost: Some(0) }).await, Err(Error::NoCost)));
    assert!(matches!(engine.check("t", ask("")).await, Err(Error::Empty { .. })));
    assert_eq!(engine.peek("t", ask("a")).await.unwrap().decision.remaining, 3);
}

#[tokio::test]
async fn several_keys_are_all_counted_or_none() {
    let engine = engine();
    engine.replace(Book { file: rules(Source::File, &[("user", 1), ("tenant", 9)]), ..Book::default() });
    let both = [ask("user"), Ask { key: "tenant", cost: Some(2) }];
    assert!(engine.check_all("t", &both).await.unwrap().iter().all(Answer::is_allowed));
    let second = engine.check_all("t", &both).await.unwrap();
    assert_eq!(second.iter().map(Answer::is_allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(engine.peek("t", ask("tenant")).await.unwrap().decision.remaining, 7, "charged once, not twice");
    assert!(matches!(engine.check_all("t", &[ask("user"), ask("user")]).await, Err(Wrong { index: Some(1), .. })));
}

#[test]
fn a_key_may_bring_its_hash_tag_and_never_meets_another() {
    let named = |key| name("t", Space::Keys, key).unwrap();
    assert_eq!(named("{acme}:minute").tag(), named("{acme}:hour").tag());
    let different =
        ["{acme}:minute", "acme:minute", "{acme}", "acme", "{}acme", "x{acme}", "{acme}x", "acme:{}:minute"];
    for (index, one) in different.iter().enumerate() {
        for other in &different[..index] {
            assert_ne!(named(one), named(other), "{one} and {other}");
        }
    }
    assert_ne!(named("a"), name("t", Space::Gates, "a").unwrap());
}

/// Counts without aligned windows, so that no edge passes while a test runs.
fn limited(descriptors: &str) -> Engine {
    let (name, domain) = envoy::parse(&format!("domain: edge\ndescriptors:\n{descriptors}"), Algorithm::Gcra).unwrap();
    let mut domains = Domains::default();
    assert!(domains.insert(name, domain));
    let engine = engine();
    engine.replace(Book { envoy: Arc::new(domains), ..Book::default() });
    engine
}

fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() }
}

fn looking(key: &str) -> Descriptor {
    Descriptor { hits: Some(0), ..descriptor(&[(key, "x")]) }
}

async fn decide(engine: &Engine, descriptors: &[Descriptor]) -> Vec<Standing> {
    engine.decide_descriptors("t", "edge", descriptors).await.unwrap()
}

async fn passes(engine: &Engine, entries: &[(&str, &str)]) -> bool {
    !decide(engine, &[descriptor(entries)]).await[0].is_over()
}

async fn left(engine: &Engine, key: &str) -> u32 {
    match &decide(engine, &[looking(key)]).await[0] {
        Standing::Limited(limited) => limited.remaining(),
        Standing::Unlimited { .. } => u32::MAX,
    }
}

/// One user's calls used up the others' limit, since the shared counter had only the names of the file.
#[tokio::test]
async fn only_the_values_of_the_shared_pattern_count_together() {
    let engine = limited(
        "  - key: user
    descriptors:
      - {key: path, value: /api/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - key: group
    value: g*
    share_threshold: true
    descriptors:
      - {key: method, rate_limit: {unit: day, requests_per_unit: 2}}
",
    );
    for user in ["alice", "bob"] {
        for (path, wanted) in [("/api/1", true), ("/api/2", true), ("/api/3", false)] {
            assert_eq!(passes(&engine, &[("user", user), ("path", path)]).await, wanted, "{user} {path}");
        }
    }
    for (method, group, wanted) in [("GET", "g1", true), ("GET", "g2", true), ("GET", "g3", false), ("PUT", "g1", true)]
    {
        assert_eq!(passes(&engine, &[("group", group), ("method", method)]).await, wanted, "{group} {method}");
    }
}

/// An error would let Envoy pass whoever makes it.
#[tokio::test]
async fn a_shared_pattern_of_any_length_is_limited() {
    let beginning = "x".repeat(500);
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let engine = limited(&format!("  - {{key: path, value: {beginning}*, share_threshold: true, {limit}}}\n"));
    assert!(passes(&engine, &[("path", &format!("{beginning}1"))]).await);
    assert!(!passes(&engine, &[("path", &format!("{beginning}2"))]).await);
}

/// Whoever is refused pays nothing, also if the limit that refuses was only looked at.
#[tokio::test]
async fn a_limit_that_is_only_looked_at_refuses_before_anything_is_charged() {
    let engine = limited(
        "  - {key: one, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 100}}
",
    );
    let with = async |look: &str| {
        let standings = decide(&engine, &[looking(look), descriptor(&[("many", "x")])]).await;
        (standings.iter().map(Standing::is_over).collect::<Vec<_>>(), left(&engine, "many").await)
    };
    assert_eq!(with("one").await, (vec![false, false], 99));
    assert!(passes(&engine, &[("one", "x")]).await);
    assert_eq!(with("one").await, (vec![true, false], 99));
    assert_eq!(with("none").await, (vec![true, false], 99));
    assert_eq!(with("shadow").await, (vec![false, false], 98));
    let greedy = Descriptor { hits: Some(99), ..descriptor(&[("many", "x")]) };
    let standings = decide(&engine, &[looking("one"), greedy]).await;
    assert!(standings.iter().all(Standing::is_over), "it would refuse by itself too: {standings:?}");
    let both = decide(&engine, &[looking("many"), descriptor(&[("many", "x")])]).await;
    assert_eq!((both[0].is_over(), left(&engine, "many").await), (false, 97));
}

#[tokio::test]
async fn a_limit_brought_along_that_cannot_be_counted_is_the_callers_mistake() {
    let engine = Engine::new(&Backend::memory(), Algorithm::SlidingLog, 0.0);
    engine.replace(Book { envoy: limited("  - {key: a}\n").book().envoy.clone(), ..Book::default() });
    let limit = Some(Override { requests_per_unit: 200_000, unit: Unit::Second });
    let asked = [descriptor(&[("a", "x")]), Descriptor { limit, ..descriptor(&[("b", "x")]) }];
    let wrong = engine.decide_descriptors("t", "edge", &asked).await.unwrap_err();
    assert!(matches!(&wrong, Error::Invalid(invalid) if invalid.key == "descriptors[1].limit"), "{wrong:?}");
}

/// Each name is kept until the end of the process.
#[tokio::test]
async fn a_descriptor_of_any_length_has_a_short_name_in_metrics() {
    let engine = limited("  - {key: a, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}\n");
    for value in ["short".to_owned(), "ä".repeat(50_000)] {
        assert!(passes(&engine, &[("a", &value)]).await);
    }
    let mut names = engine.seen().top("t", false, 9).into_iter().map(|count| count.key);
    let (short, long) = (names.next().unwrap(), names.next().unwrap());
    assert_eq!(short, "edge.a_short");
    assert!(long.starts_with("edge.a_ä") && long.ends_with('…') && long.len() <= MOST_KEY_BYTES, "{}", long.len());
}

/// Finding the rules of a thousand keys among hostile patterns takes long: a worker must not be lost to one batch.
#[tokio::test]
async fn a_large_batch_lets_others_have_their_turn() {
    let engine = engine();
    engine.replace(Book { file: rules(Source::File, &[("*", 1_000)]), ..Book::default() });
    let asks = [ask("a"); 100];
    let mut batch = std::pin::pin!(engine.check_each("t", &asks));
    assert!(futures_util::poll!(&mut batch).is_pending());
    assert_eq!(batch.await.unwrap().len(), 100);
}
