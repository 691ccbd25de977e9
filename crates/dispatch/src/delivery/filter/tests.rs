//! What filters take and refuse, what they say about it, and that nothing makes them fail.

use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;

const DATA: &str = r#"{
    "amount": 100, "ratio": 0.5, "big": 9007199254740993, "country": "DE", "test": false, "nothing": null,
    "a.b": 1, "tags": ["new", "vip", 7], "items": [{"sku": "x1"}, {"sku": "x2"}], "at": "2026-03-01T00:00:00Z",
    "0": "zero", "list[0]": true, "empty": {}
}"#;

fn read(text: &str) -> Result<Written, serde_json::Error> {
    serde_json::from_str(text)
}

fn filter(written: Value) -> Filter {
    let Written(written) = read(&written.to_string()).unwrap();
    Filter::new("filter", &written).unwrap()
}

fn document() -> Document<'static> {
    Document::new("evt_1", "order.created", DATA).with_source(Some("shop"))
}

fn problem(written: Value) -> String {
    Filter::new("filter", &written).unwrap_err().to_string()
}

fn reasons(written: Value) -> Vec<String> {
    let lines = filter(written).explain(&document()).into_iter();
    lines.map(|mismatch| format!("{}: {}", mismatch.condition, mismatch.reason)).collect()
}

#[test]
fn these_hold() {
    for written in [
        json!({}),
        json!({"data.amount": {"gte": 100}, "data.country": ["DE", "FR"], "data.test": false}),
        json!({"data.amount": 100.0}),
        json!({"data.amount": {"gt": 99.5, "lt": 1e3, "lte": 100, "ne": 99}}),
        json!({"data.big": 9_007_199_254_740_993_i64}),
        json!({"data.big": {"gt": 9_007_199_254_740_992.0, "ne": 9_007_199_254_740_992.0}}),
        json!({"data.nothing": null}),
        json!({"data.nothing": {"exists": true}}),
        json!({"data.missing": {"exists": false, "ne": 1, "not": {"gt": 0}}}),
        json!({"data.country": {"starts_with": "D", "ends_with": "E", "contains": "D", "in": ["DE"]}}),
        json!({"data.country": {"not": ["FR"]}}),
        json!({"data.tags": {"contains": "vip"}}),
        json!({"data.tags": {"contains": 7.0}}),
        json!({"data.tags": {"eq": ["new", "vip", 7]}}),
        json!({"data.items[1].sku": "x2", "data.items.0": {"eq": {"sku": "x1"}}}),
        json!({"data.a\\.b": 1, "data.0": "zero", "data.list\\[0]": true, "data.empty": {"eq": {}}}),
        json!({"data.at": {"gte": "2026-01-01", "lt": "2027"}}),
        json!({"type": {"starts_with": "order."}, "id": "evt_1", "source": "shop", "ordering_key": {"exists": false}}),
        json!({"any": [{"data.amount": 1}, {"data.country": "DE"}], "not": {"data.test": true}}),
        json!({"all": [{"data.amount": {"any": [{"lt": 10}, {"gt": 99}]}}, {"data.ratio": {"all": [{"gt": 0}, {"lt": 1}]}}]}),
        json!({"data": {"exists": true}}),
    ] {
        assert!(filter(written.clone()).matches(&document()), "{written}");
        assert_eq!(filter(written.clone()).explain(&document()), [], "{written}");
    }
}

#[test]
fn these_do_not_hold() {
    for written in [
        json!({"data.amount": {"gt": 100}}),
        json!({"data.amount": {"gte": "100"}}),
        json!({"data.amount": "100"}),
        json!({"data.big": 9_007_199_254_740_992.0}),
        json!({"data.missing": null}),
        json!({"data.missing": {"gt": 0}}),
        json!({"data.missing": {"exists": true}}),
        json!({"data.nothing": {"exists": false}}),
        json!({"data.test": {"ne": false}}),
        json!({"data.tags": {"contains": "ne"}}),
        json!({"data.tags": "vip"}),
        json!({"data.tags.3": {"exists": true}}),
        json!({"data.tags.+1": {"exists": true}}),
        json!({"data.items.sku": "x1"}),
        json!({"data.country[0]": "D"}),
        json!({"data.country": {"starts_with": "d"}}),
        json!({"data.amount": {"starts_with": "1"}}),
        json!({"any": [{"data.amount": 1}, {"data.country": "FR"}]}),
        json!({"not": {}}),
        json!({"type": "order.*"}),
        json!({"ordering_key": ""}),
    ] {
        assert!(!filter(written.clone()).matches(&document()), "{written}");
        assert_ne!(filter(written.clone()).explain(&document()), [], "{written}");
    }
}

#[test]
fn every_condition_that_fails_is_named_with_its_reason() {
    assert_eq!(
        reasons(json!({"data.amount": {"gte": 500, "lt": 1000}, "data.country": ["FR", "IT"], "data.test": false})),
        ["data.amount gte 500: data.amount is 100", "data.country in [\"FR\",\"IT\"]: data.country is \"DE\""]
    );
    assert_eq!(reasons(json!({"data.vat": "x"})), ["data.vat eq \"x\": data.vat is not in the event"]);
    assert_eq!(
        reasons(json!({"data.country": {"gt": 5}})),
        ["data.country gt 5: data.country is \"DE\", which is not a number"]
    );
    assert_eq!(
        reasons(json!({"data.country": {"ne": "DE"}})),
        ["not (data.country eq \"DE\"): data.country is \"DE\""]
    );
    assert_eq!(
        reasons(json!({"any": [{"data.amount": {"gt": 500}}, {"data.country": "FR", "data.test": true}]})),
        [
            "data.amount gt 500 or (data.country eq \"FR\" and data.test eq true): data.amount is 100; data.country is \"DE\"; data.test is false"
        ]
    );
    assert_eq!(
        reasons(json!({"not": {"data.test": false, "data.amount": 100}})),
        ["not (data.amount eq 100 and data.test eq false): all of that holds"]
    );
}

#[test]
fn long_values_are_cut_in_explanations() {
    let data = json!({"text": "é".repeat(500), "list": vec![1; 1000]}).to_string();
    let document = Document::new("evt_1", "a", &data);
    let mismatches = filter(json!({"data.text": "x", "data.list": "x"})).explain(&document);
    assert_eq!(mismatches[0].reason, "data.list is a list of 1000 items");
    assert!(mismatches[1].reason.ends_with("é\"… (1000 bytes)"), "{}", mismatches[1].reason);
    assert!(mismatches[1].reason.chars().count() < 120);
}

#[test]
fn a_bad_filter_names_the_place_and_the_fix() {
    assert_eq!(
        problem(json!({"data.amount": {"atleast": 5}})),
        "filter[\"data.amount\"].atleast: \"atleast\" is not an operator: use one of eq, ne, in, gt, gte, lt, lte, exists, starts_with, ends_with, contains, not, any, all; to look into an object write one path, such as \"data.customer.country\""
    );
    assert_eq!(
        problem(json!({"amount": 5})),
        "filter.amount: \"amount\" does not start at the event: write \"data.amount\", or start with `id`, `type`, `source` or `ordering_key`; filters are joined with `any`, `all` or `not`"
    );
    assert_eq!(problem(json!({"type.x": 5})), "filter[\"type.x\"]: \"type.x\" leads nowhere: only `data` has parts");
    assert_eq!(
        problem(json!([1])),
        "filter: this is a list: write an object of paths, such as {\"data.amount\": {\"gte\": 100}}"
    );
    assert_eq!(
        problem(json!({"any": [{"data.a": {"not": {"gt": null}}}]})),
        "filter.any[0][\"data.a\"].not.gt: this is null: write a number, or a string such as a date"
    );
    assert_eq!(problem(json!({"any": []})), "filter.any: this is an empty list: write a list with at least one entry");
    assert_eq!(
        problem(json!({"data.a": []})),
        "filter[\"data.a\"]: this is an empty list: write a list of the values to take"
    );
    assert_eq!(
        problem(json!({"data.a": {}})),
        "filter[\"data.a\"]: there is no operator: write one such as {\"gte\": 100}, or {\"eq\": {}} for an empty object"
    );
    for (written, words) in [
        (json!({"data.a": {"exists": 1}}), "write true or false"),
        (json!({"data.a": {"starts_with": 1}}), "write a string"),
        (json!({"data.a": {"in": "x"}}), "write a list"),
        (json!({"data..a": 1}), "empty step"),
        (json!({"": 1}), "empty step"),
        (json!({"data.items.*.sku": 1}), "name one place"),
        (json!({"data.items[x]": 1}), "has a bad `[`"),
        (json!({"data.items[": 1}), "has a bad `[`"),
        (json!({"data.items[0]x": 1}), "write a dot between"),
        (json!({"data.a\\": 1}), "ends with `\\`"),
    ] {
        assert!(problem(written.clone()).contains(words), "{written}: {}", problem(written.clone()));
    }
}

#[test]
fn a_filter_is_bounded_in_size_depth_and_conditions() {
    let wide = |count: usize| -> Value { (0..count).map(|n| (format!("data.f{n}"), json!(n))).collect() };
    assert!(Filter::new("filter", &wide(MAX_CONDITIONS)).is_ok());
    assert!(problem(wide(MAX_CONDITIONS + 1)).contains("at most 64 conditions"));

    let deep = |depth| (0..depth).fold(json!({"data.a": 1}), |inner, _| json!({"not": inner}));
    assert!(Filter::new("filter", &deep(MAX_DEPTH)).is_ok());
    assert!(problem(deep(MAX_DEPTH + 1)).contains("at most 8 deep"));
    let deep = (0..100).fold(json!(1), |inner, _| json!({"not": inner}));
    assert!(problem(json!({"data.a": deep})).contains("at most 8 deep"));

    assert!(problem(json!({"data.a": "x".repeat(MAX_BYTES)})).contains("at most 16384 bytes"));
    assert!(problem(json!({format!("data.{}", "x".repeat(300)): 1})).contains("at most 256 characters"));
    assert!(problem(json!({format!("data{}", ".x".repeat(32)): 1})).contains("at most 32 steps"));
}

#[test]
fn a_name_that_stands_twice_is_refused() {
    let error = read(r#"{"data.a": {"gt": 1}, "data.a": {"lt": 9}}"#).unwrap_err().to_string();
    assert!(error.starts_with("\"data.a\" stands twice in one object"), "{error}");
    assert!(read(r#"{"any": [{"data.a": {"gt": 1, "gt": 2}}]}"#).is_err());
    assert!(read("{").is_err());
    assert!(read(&"[".repeat(5000)).is_err());
}

#[test]
fn data_that_cannot_be_read_matches_no_filter_that_needs_it() {
    let deep = "[".repeat(500) + &"]".repeat(500);
    for data in [deep.as_str(), "{", "", "\"\\é", "[1e999"] {
        let document = Document::new("evt_1", "order.created", data);
        let blind = filter(json!({"type": "order.created"}));
        assert!(blind.matches(&document));
        for written in [json!({"data.a": 1}), json!({"data.a": {"ne": 1}})] {
            assert!(!filter(written.clone()).matches(&document), "{written}");
            let reason = &filter(written).explain(&document)[0].reason;
            assert!(reason.starts_with("the event's data cannot be read: "), "{reason}");
        }
    }
}

/// Such an event was accepted, and no filter that reads data matched it, whichever member it asked for.
#[test]
fn a_member_that_cannot_be_held_hides_no_other() {
    let data = r#"{"half": "a\ud800\n\"b", "\udc00": [1e400 ,-1E+999], "whole": "\ud83d\ude00\u00e9\\ud800", "n": 1e2, "last": 7e999}"#;
    let document = Document::new("evt_1", "order.created", data);
    for written in [
        json!({"data.n": 100}),
        json!({"data.half": "a\u{fffd}\n\"b"}),
        json!({"data.whole": "\u{1f600}\u{e9}\\ud800"}),
        json!({"data.last": {"gt": 1e300}}),
        json!({"data.\u{fffd}[1]": {"lt": -1e300}}),
    ] {
        assert_eq!(filter(written.clone()).explain(&document), [], "{written}");
    }
    let plain = Document::new("evt_1", "order.created", "-1e400");
    assert!(filter(json!({"data": {"lt": 0}})).matches(&plain));
}

/// Any JSON, with names and values that filters and events have in common.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[ab0]{1,2}", inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn condition() -> impl Strategy<Value = Value> {
    let names = ["eq", "ne", "in", "gt", "gte", "lt", "lte", "exists", "starts_with", "ends_with", "contains"];
    let operator =
        (proptest::sample::select(names.to_vec()), json_value()).prop_map(|(name, value)| json!({name: value}));
    prop_oneof![json_value(), operator].prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| json!({"not": inner})),
            vec(inner.clone(), 1..3).prop_map(|inner| json!({"any": inner})),
            vec(inner, 1..3).prop_map(|inner| json!({"all": inner})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever is written and whatever comes, a filter answers, and explains exactly its refusals.
    #[test]
    fn any_filter_answers_for_any_event(
        written in vec((r"data(\.[ab0]|\[[01]\]){0,3}", condition()), 1..4),
        data in json_value(),
    ) {
        let written: Value = written.into_iter().collect();
        if let Ok(filter) = Filter::new("filter", &written) {
            let data = data.to_string();
            let document = Document::new("evt_1", "order.created", &data);
            prop_assert_eq!(filter.matches(&document), filter.explain(&document).is_empty());
            let negated = Filter::new("filter", &json!({"not": written}));
            if let Ok(negated) = negated {
                prop_assert_ne!(filter.matches(&document), negated.matches(&document));
            }
        }
    }

    #[test]
    fn any_json_is_read_or_refused(written in json_value(), text in ".{0,40}", path in r"(data|type)?[a\\.\[\]0*]{0,12}") {
        drop(Filter::new("filter", &written));
        drop(read(&text));
        drop(Filter::new("filter", &json!({path: written})));
    }

    /// `eq`, `gt` and `lt` agree on every pair of numbers: exactly one holds.
    #[test]
    fn numbers_have_one_order(one in number(), other in number()) {
        let data = one.to_string();
        let document = Document::new("evt_1", "a", &data);
        let holds = |operator: &str| filter(json!({"data": {operator: other.clone()}})).matches(&document);
        let held = ["eq", "gt", "lt"].into_iter().filter(|operator| holds(operator)).count();
        prop_assert_eq!(held, 1, "{} and {}", one, other);
        prop_assert_eq!(holds("gte"), holds("gt") || holds("eq"));
        prop_assert_eq!(holds("lte"), !holds("gt"));
    }
}

fn number() -> impl Strategy<Value = Value> {
    let near = (1_u64 << 53) - 2..(1 << 53) + 3;
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        near.clone().prop_map(Value::from),
        #[expect(clippy::cast_precision_loss, reason = "the loss is what is tested")]
        near.prop_map(|number| Value::from(number as f64)),
        (-1e20..1e20_f64).prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
    ]
}
