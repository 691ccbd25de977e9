//! Envoy ratelimit's configuration: what its users have must be read as they mean it.

use super::*;
use crate::rule::Algorithm;

const FILE: &str = r"
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: remote_address
    value: 10.0.0.1
    rate_limit: {unit: MINUTE, requests_per_unit: 0}
  - key: path
    value: /api/*
    shadow_mode: true
    rate_limit: {name: api, unit: hour, requests_per_unit: 5}
  - key: plan
    value: 404
    detailed_metric: true
    rate_limit:
      unlimited: true
      replaces:
        - name: api
    descriptors:
      - key: user
        rate_limit: {unit: month, requests_per_unit: 7}
";

fn entries(all: &[(&str, &str)]) -> Vec<Entry> {
    all.iter().map(|(key, value)| Entry { key: (*key).to_owned(), value: (*value).to_owned() }).collect()
}

fn read(text: &str) -> Domain {
    parse(text, Algorithm::FixedWindow).unwrap().1
}

#[test]
fn a_value_wins_over_a_beginning_and_a_beginning_over_the_key_alone() {
    let domain = read(FILE);
    let limit = |all: &[(&str, &str)]| domain.find(&entries(all)).map(|limit| limit.path.to_string());
    assert_eq!(limit(&[("remote_address", "1.2.3.4")]).as_deref(), Some("edge.remote_address"));
    assert_eq!(limit(&[("remote_address", "10.0.0.1")]).as_deref(), Some("edge.remote_address_10.0.0.1"));
    assert_eq!(limit(&[("path", "/api/users")]).as_deref(), Some("edge.path_/api/*"));
    assert_eq!(limit(&[("path", "/other")]), None);
    assert_eq!(limit(&[]), None);
}

#[test]
fn a_limit_counts_only_at_the_full_depth_of_the_descriptor() {
    let domain = read(FILE);
    let nested = domain.find(&entries(&[("plan", "404"), ("user", "7")])).unwrap();
    assert_eq!(nested.rate.unwrap().unit, Unit::Month);
    assert!(domain.find(&entries(&[("remote_address", "1.2.3.4"), ("user", "7")])).is_none());
    let plan = domain.find(&entries(&[("plan", "404")])).unwrap();
    assert!(plan.rate.is_none() && plan.is_detailed, "unlimited");
    assert_eq!(plan.replaces.iter().map(|name| &**name).collect::<Vec<_>>(), ["api"]);
}

#[test]
fn a_mistake_is_told_with_its_line_and_field() {
    let mistake = |text: &str| {
        let mistake = parse(text, Algorithm::FixedWindow).unwrap_err();
        (mistake.line, mistake.field, mistake.problem)
    };
    let (line, field, problem) =
        mistake("domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n");
    assert_eq!((line, field), (4, "unit".to_owned()));
    assert!(problem.contains("fortnight") && problem.contains("minute"), "{problem}");
    for (text, wrong) in [
        ("domain: ''\n", "domain"),
        ("domain: d\ndescriptors:\n  - key: ''\n", "key"),
        ("domain: d\ndescriptors:\n  - key: a\n  - key: a\n", "key"),
        ("domain: d\ndescriptors:\n  - {key: a, value: 'b*'}\n  - {key: a, value: 'b*'}\n", "key"),
        ("domain: d\ndescriptors:\n  - {key: a, value: b, share_threshold: true}\n", "share_threshold"),
        ("domain: d\ndescriptors:\n  - {key: a, rate_limit: {requests_per_unit: 1}}\n", "unit"),
        ("domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day}}\n", "requests_per_unit"),
        ("domain: d\ndescriptors:\n  - {key: a, rate_limit: {unlimited: true, unit: day}}\n", "unlimited"),
        (
            "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unlimited: true, name: x, replaces: [{name: x}]}}\n",
            "replaces",
        ),
    ] {
        assert_eq!(mistake(text).1, wrong, "{text}");
    }
    for text in [
        "domain: d\ndomain: e\n",
        "domain: d\nlimits: 1\n",
        "domain: [\n",
        "- 1\n",
        "",
        "domain: d\ndescriptors:\n  - {key: a, vlaue: b}\n",
    ] {
        let (line, _, problem) = mistake(text);
        assert!(line >= 1 && !problem.is_empty(), "{text}");
    }
}
