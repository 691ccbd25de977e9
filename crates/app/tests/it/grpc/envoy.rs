//! Envoy's rate-limit service, asked by a client that is made from Envoy's public protos.

use serde_json::{Value, json};
use testkit::need;

use super::{Client, SHOULD_RATE_LIMIT, descriptor, envoy};
use crate::support::{Call, Setup};

fn header<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let headers = answer["response_headers_to_add"].as_array().unwrap();
    headers.iter().find(|header| header["key"] == name).and_then(|header| header["value"].as_str())
}

#[test]
fn a_limit_of_the_file_counts_down_and_then_refuses() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let ask = || client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor("generic_key", "login")]}));
    for left in [2, 1, 0] {
        let answer = ask();
        assert_eq!(answer["overall_code"], "OK", "{answer}");
        let status = &answer["statuses"][0];
        assert_eq!(status["limit_remaining"], left, "{answer}");
        assert_eq!(status["current_limit"], json!({"requests_per_unit": 3, "unit": "HOUR", "name": "logins"}));
        assert!(status["duration_until_reset"].as_str().is_some_and(|time| time.ends_with('s')), "{answer}");
        assert_eq!(header(&answer, "ratelimit-policy"), Some("\"logins\";q=3;w=3600"));
        assert!(header(&answer, "ratelimit").unwrap().starts_with(&format!("\"logins\";r={left};t=")), "{answer}");
        assert_eq!(header(&answer, "x-ratelimit-remaining"), Some(left.to_string().as_str()));
        assert_eq!(header(&answer, "retry-after"), None);
    }
    let refused = ask();
    assert_eq!(
        (&refused["overall_code"], &refused["statuses"][0]["code"]),
        (&json!("OVER_LIMIT"), &json!("OVER_LIMIT"))
    );
    assert!(header(&refused, "retry-after").unwrap().parse::<u64>().unwrap() > 0, "{refused}");
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    assert!(metrics.contains(r#"tidegate_limits_decisions_total{door="grpc",result="denied"} 1"#), "{metrics}");
}

#[test]
fn statuses_stand_in_the_order_of_the_request_and_a_refusal_charges_nothing() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let descriptors = json!([
        descriptor("nobody", "limits this"),
        descriptor("remote_address", "10.0.0.9"),
        descriptor("remote_address", "10.0.0.1"),
        descriptor("generic_key", "login"),
    ]);
    let ask = || client.rate_limit(json!({"domain": "edge", "descriptors": descriptors}));
    let answer = ask();
    let statuses = answer["statuses"].as_array().unwrap();
    let limits: Vec<&Value> = statuses.iter().map(|status| &status["current_limit"]["requests_per_unit"]).collect();
    assert_eq!(limits, [&Value::Null, &json!(2), &Value::Null, &json!(3)], "{answer}");
    assert_eq!(statuses[2]["limit_remaining"], u32::MAX, "everything is left of a limit that is none");
    ask();
    let refused = ask();
    let codes: Vec<&str> =
        refused["statuses"].as_array().unwrap().iter().map(|status| status["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["OK", "OVER_LIMIT", "OK", "OK"], "{refused}");
    assert_eq!(refused["overall_code"], "OVER_LIMIT");
    assert_eq!(refused["statuses"][3]["limit_remaining"], 1, "who was refused pays nothing anywhere: {refused}");
}

#[test]
fn a_request_and_each_of_its_descriptors_say_what_they_cost() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let ask = |request: Value| client.rate_limit(request)["statuses"][0]["limit_remaining"].clone();
    let login = || descriptor("generic_key", "login");
    assert_eq!(ask(json!({"domain": "edge", "hits_addend": 2, "descriptors": [login()]})), 1);
    let mut looking = login();
    looking["hits_addend"] = json!("0");
    assert_eq!(
        ask(json!({"domain": "edge", "hits_addend": 9, "descriptors": [looking]})),
        1,
        "0 in a descriptor looks"
    );
    let mut greedy = login();
    greedy["hits_addend"] = json!("99");
    let over = client.rate_limit(json!({"domain": "edge", "descriptors": [greedy]}));
    assert_eq!(over["overall_code"], "OVER_LIMIT", "{over}");
    assert_eq!(ask(json!({"domain": "edge", "descriptors": [login()]})), 0, "what cannot pass charges nothing");
}

#[test]
fn a_descriptor_may_bring_its_limit_along() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    for (unit, seconds) in [("SECOND", 1), ("MINUTE", 60), ("DAY", 86_400), ("YEAR", 31_536_000)] {
        let mut own = descriptor("customer", unit);
        own["limit"] = json!({"requests_per_unit": 5, "unit": unit});
        let answer = client.rate_limit(json!({"domain": "edge", "hits_addend": 2, "descriptors": [own]}));
        let status = &answer["statuses"][0];
        assert_eq!(
            (&status["limit_remaining"], &status["current_limit"]["unit"]),
            (&json!(3), &json!(unit)),
            "{answer}"
        );
        assert_eq!(header(&answer, "ratelimit-policy"), Some(format!("\"override\";q=5;w={seconds}").as_str()));
    }
    let ask = |descriptor: &Value| client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor]}));
    let (login, mut own) = (descriptor("generic_key", "login"), descriptor("generic_key", "login"));
    own["limit"] = json!({"requests_per_unit": 50, "unit": "HOUR"});
    assert_eq!(ask(&login)["statuses"][0]["limit_remaining"], 2);
    assert_eq!(ask(&own)["statuses"][0]["limit_remaining"], 49, "it counts apart from the configured one");
    assert_eq!(ask(&login)["statuses"][0]["limit_remaining"], 1);
    let mut wrong = descriptor("customer", "x");
    wrong["limit"] = json!({"requests_per_unit": 5});
    let answer = client.call(SHOULD_RATE_LIMIT, json!({"domain": "edge", "descriptors": [wrong]}));
    assert_eq!((&answer["code"], &answer["reason"]), (&json!("INVALID_ARGUMENT"), &json!("invalid_field")), "{answer}");
}

#[test]
fn a_shadow_refuses_nobody_and_a_limit_of_none_everybody() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let ask = |key| client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor(key, "x")]}));
    for _ in 0..3 {
        assert_eq!(ask("shadowed")["overall_code"], "OK");
    }
    let banned = ask("banned");
    assert_eq!((&banned["overall_code"], header(&banned, "retry-after")), (&json!("OVER_LIMIT"), None), "{banned}");
    let login = descriptor("generic_key", "login");
    let greedy = client.rate_limit(json!({"domain": "edge", "hits_addend": 4, "descriptors": [login]}));
    assert_eq!((&greedy["overall_code"], header(&greedy, "retry-after")), (&json!("OVER_LIMIT"), None), "{greedy}");
}

#[test]
fn who_was_limited_is_told_by_limit_and_by_descriptor() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    for key in ["shadowed", "detailed", "remote_address"] {
        for _ in 0..3 {
            client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor(key, "x")]}));
        }
    }
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    for (rule, result, count) in [
        ("edge.shadowed", "shadow_denied", 2),
        ("edge.detailed_x", "denied", 2),
        ("edge.remote_address", "allowed", 2),
        ("edge.remote_address", "denied", 1),
    ] {
        let line = format!("tidegate_limits_rule_decisions_total{{rule=\"{rule}\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let most = Call::get("/v1/limits/keys?sort=denied").to(tidegate.addr()).expect(200);
    let keys: Vec<&str> = most["data"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["edge.detailed_x", "edge.shadowed_x", "edge.remote_address_x"], "{most}");
}

#[test]
fn without_redis_the_answer_says_so_where_only_envoy_sees_it() {
    let redis = need!(testkit::redis::Server::start());
    let tidegate = envoy(Setup::serve().env("REDIS_URL", &redis.url()));
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let ask = || client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor("generic_key", "login")]}));
    redis.kill();
    let alone = ask();
    assert_eq!(alone["dynamic_metadata"], json!({"degraded": true}), "{alone}");
}

/// An error would let Envoy pass whoever makes it, where `failure_mode_deny` is off.
#[test]
fn a_descriptor_of_any_length_is_limited() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let ask = |value: &str| {
        client.rate_limit(json!({"domain": "edge", "descriptors": [descriptor("remote_address", value)]}))["overall_code"]
            .clone()
    };
    let long = "x".repeat(5000);
    assert_eq!([(); 3].map(|()| ask(&long)), ["OK", "OK", "OVER_LIMIT"]);
    assert_eq!(ask(&format!("{long}y")), "OK", "another one");
}

#[test]
fn a_mistake_is_a_status_that_names_the_field() {
    let tidegate = envoy(Setup::serve());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let many: Vec<Value> = (0..101).map(|number| descriptor("generic_key", &number.to_string())).collect();
    let together: Vec<Value> = (0..17).map(|number| descriptor("remote_address", &number.to_string())).collect();
    for (request, code, field) in [
        (json!({"domain": "edge"}), "INVALID_ARGUMENT", "descriptors: "),
        (json!({"domain": "", "descriptors": [descriptor("a", "b")]}), "INVALID_ARGUMENT", "domain: "),
        (json!({"domain": "nowhere", "descriptors": [descriptor("a", "b")]}), "NOT_FOUND", "domain: "),
        (
            json!({"domain": "edge", "descriptors": [descriptor("a", "b"), {}]}),
            "INVALID_ARGUMENT",
            "descriptors[1].entries: ",
        ),
        (
            json!({"domain": "edge", "descriptors": [descriptor("", "b")]}),
            "INVALID_ARGUMENT",
            "descriptors[0].entries: ",
        ),
        (json!({"domain": "edge", "descriptors": many}), "INVALID_ARGUMENT", "descriptors: at most 100"),
        (json!({"domain": "edge", "descriptors": together}), "INVALID_ARGUMENT", ""),
    ] {
        let answer = client.call(SHOULD_RATE_LIMIT, request.clone());
        assert_eq!(answer["code"], code, "{request}: {answer}");
        assert!(answer["message"].as_str().unwrap().starts_with(field), "{answer}");
    }
}
