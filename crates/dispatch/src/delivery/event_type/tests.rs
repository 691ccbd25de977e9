//! What globs match, against a naive reference, and how bad ones are refused.

use proptest::prelude::*;

use super::*;

fn matches(glob: &str, event_type: &str) -> bool {
    Glob::parse("event_types[0]", glob).unwrap().matches(&EventType::parse("type", event_type).unwrap())
}

fn problem(glob: &str) -> String {
    Glob::parse("event_types[0]", glob).unwrap_err().to_string()
}

#[test]
fn one_star_is_one_segment_and_two_are_any_number() {
    for (glob, takes, refuses) in [
        ("order.created", &["order.created"][..], &["order", "order.created.v2", "Order.created"][..]),
        ("order.*", &["order.created", "order.x-y_9"], &["order", "order.created.v2", "orders.created"]),
        ("*.created", &["order.created"], &["created", "a.b.created"]),
        ("*", &["ping"], &["order.created"]),
        ("**", &["ping", "a.b.c.d"], &[]),
        ("order.**", &["order", "order.created", "order.a.b.c"], &["orders", "x.order"]),
        ("**.failed", &["failed", "order.failed", "a.b.failed"], &["failed.x", "order.faileds"]),
        ("a.**.z", &["a.z", "a.b.z", "a.z.z", "a.b.c.z"], &["a", "z", "a.z.b"]),
        ("a.**.b.*.**.c", &["a.b.x.c", "a.x.b.b.b.y.c"], &["a.b.c", "a.b.x.y"]),
        ("**.*", &["a", "a.b"], &[]),
        ("**.*.*.**", &["a.b", "a.b.c"], &["a"]),
        ("**.**.a", &["a", "b.a"], &["b"]),
    ] {
        for event_type in takes {
            assert!(matches(glob, event_type), "{glob} takes {event_type}");
        }
        for event_type in refuses {
            assert!(!matches(glob, event_type), "{glob} does not take {event_type}");
        }
    }
}

#[test]
fn hostile_globs_are_as_fast_as_others() {
    let event_type = EventType::parse("type", &vec!["a"; 64].join(".")).unwrap();
    let globs = [
        vec!["**.a"; 25].join(".") + ".b",
        vec!["**.*"; 25].join(".") + ".b",
        format!("**.{}.b.**", vec!["a"; 50].join(".")),
        vec!["**"; 42].join(".") + ".b",
    ];
    // With exponential backtracking one of these would outlive the test run; here all are some thousand steps.
    for glob in globs {
        let glob = Glob::parse("event_types[0]", &glob).unwrap();
        for _ in 0..100 {
            assert!(!glob.matches(&event_type));
        }
    }
}

#[test]
fn a_bad_glob_is_refused_with_the_fix() {
    assert_eq!(problem(""), "event_types[0]: it is empty: write a type such as \"order.created\"");
    assert_eq!(
        problem("order..x"),
        "event_types[0]: \"order..x\" has an empty segment: write words joined by single dots, such as \"order.created\""
    );
    assert_eq!(
        problem("order.cre*"),
        "event_types[0]: \"cre*\" in \"order.cre*\" is no segment of a glob: one is `*` (any one), `**` (any number) or a whole word"
    );
    assert_eq!(
        problem("order created"),
        "event_types[0]: ' ' is not allowed in \"order created\": use letters, digits, `_`, `-`, and dots between segments"
    );
    assert_eq!(problem(&"x".repeat(129)), "event_types[0]: 129 characters are too many: write at most 128");
    for wrong in ["***", ".", "a.", ".a", "a/b", "ä", "a\u{0}", "{a,b}", "[a]", "a?"] {
        assert!(Glob::parse("event_types[0]", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn an_event_has_one_exact_type() {
    let error = EventType::parse("type", "order.*").unwrap_err();
    assert_eq!(error.to_string(), "type: \"order.*\" is a pattern: an event has one exact type");
    assert_eq!(serde_json::from_str::<EventType>("\"order.created\"").unwrap().as_str(), "order.created");
    assert!(serde_json::from_str::<EventType>("\"\"").is_err());
    assert!(EventType::parse("type", &"x".repeat(128)).is_ok());
}

#[test]
fn a_matcher_takes_what_any_of_its_globs_takes_and_says_which() {
    let matcher = Matcher::parse("event_types", &["invoice.paid", "order.*", "order.created"]).unwrap();
    let created = EventType::parse("type", "order.created").unwrap();
    assert_eq!(matcher.first_match(&created).map(Glob::as_str), Some("order.*"));
    assert!(!matcher.matches(&EventType::parse("type", "invoice.sent").unwrap()));

    let json = serde_json::to_string(&matcher).unwrap();
    assert_eq!(json, r#"["invoice.paid","order.*","order.created"]"#);
    assert_eq!(serde_json::from_str::<Matcher>(&json).unwrap(), matcher);
}

#[test]
fn a_bad_list_of_globs_names_its_place() {
    let problem = |globs: &[&str]| Matcher::parse("event_types", globs).unwrap_err().key;
    assert_eq!(problem(&[]), "event_types");
    assert_eq!(problem(&["a", "b..c"]), "event_types[1]");
    assert_eq!(problem(&["a"; 101]), "event_types");
}

#[test]
fn a_matcher_says_why_it_does_not_take_a_type() {
    let why = |globs: &[&str], text| {
        Matcher::parse("event_types", globs).unwrap().objection(&EventType::parse("type", text).unwrap())
    };
    assert_eq!(why(&["order.*"], "order.created"), None);
    assert_eq!(why(&["invoice.paid", "a"], "b").unwrap(), "none of invoice.paid, a takes b");
    assert_eq!(
        why(&["x", "order.*"], "order.created.v2").unwrap(),
        "none of x, order.* takes order.created.v2; `*` is exactly one segment, order.** would"
    );
    assert_eq!(why(&["*"], "a.b").unwrap(), "none of * takes a.b; `*` is exactly one segment, ** would");
    assert_eq!(why(&["a", "b", "c", "d", "e", "f"], "x").unwrap(), "none of a, b, c, d, e, … takes x");
}

/// The definition, as slow as it is obvious.
fn naive(glob: &[&str], event_type: &[&str]) -> bool {
    match (glob, event_type) {
        ([], []) => true,
        (["**", glob @ ..], _) => (0..=event_type.len()).any(|taken| naive(glob, &event_type[taken..])),
        (["*", glob @ ..], [_, rest @ ..]) => naive(glob, rest),
        ([literal, glob @ ..], [segment, rest @ ..]) => literal == segment && naive(glob, rest),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn globs_match_as_defined(
        glob in proptest::collection::vec(prop_oneof!["[ab]", Just("*".to_owned()), Just("**".to_owned())], 1..8),
        event_type in proptest::collection::vec("[ab]", 1..8),
    ) {
        let parts: Vec<&str> = glob.iter().map(String::as_str).collect();
        let segments: Vec<&str> = event_type.iter().map(String::as_str).collect();
        prop_assert_eq!(matches(&glob.join("."), &event_type.join(".")), naive(&parts, &segments));
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,140}", event_type in "[a-c]{1,3}(\\.[a-c]{1,3}){0,5}") {
        if let Ok(glob) = Glob::parse("event_types[0]", &text) {
            glob.matches(&EventType::parse("type", &event_type).unwrap());
        }
        if let Ok(event_type) = EventType::parse("type", &text) {
            prop_assert!(Glob::parse("event_types[0]", &text).unwrap().matches(&event_type), "a type matches itself");
        }
    }
}
