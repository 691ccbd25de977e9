//! What the OpenAPI document says of limits and gates, held against real requests and answers: every route, every
//! status that is no error. And what it says of intake and of the bounds of a subscription.

use std::{cell::RefCell, collections::BTreeSet, net::SocketAddr};

use serde_json::{Value, json};

use crate::support::{Call, Setup, Tidegate};

struct Described {
    addr: SocketAddr,
    document: Value,
    seen: RefCell<BTreeSet<String>>,
}

impl Described {
    fn start(tidegate: &Tidegate) -> Self {
        let document = tidegate.get("/openapi.json").expect(200);
        Described { addr: tidegate.addr(), document, seen: RefCell::default() }
    }

    /// Asks, and compares what is sent and what comes back with the document.
    #[track_caller]
    fn ask(&self, route: &str, query: &str, body: Value, status: u16) -> Value {
        self.ask_with("application/json", route, query, body, status)
    }

    #[track_caller]
    fn ask_with(&self, content_type: &str, route: &str, query: &str, body: Value, status: u16) -> Value {
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &self.document["paths"][path][method.to_lowercase()];
        assert!(operation.is_object(), "{route} is not described");
        let concrete = path.replace("{target}", "api").replace("{rule}", "two").replace("{key}", "two:1");
        let mut call = Call::new(method, &format!("{concrete}{query}"));
        if !body.is_null() {
            let schema = &operation["requestBody"]["content"][content_type]["schema"];
            self.compare(schema, &body).unwrap_or_else(|wrong| panic!("the body of {route}{wrong}: {body}"));
            call = call.body(content_type, body.to_string());
        }
        let response = call.to(self.addr);
        let described = &operation["responses"][status.to_string()];
        assert!(described.is_object(), "{status} of {route} is not described");
        self.seen.borrow_mut().insert(format!("{status} {route}"));
        let Some(kind) = response.header("content-type").map(str::to_owned) else {
            assert!(described["content"].is_null(), "{route} answers nothing: {described}");
            return response.expect(status);
        };
        let answer = response.expect(status);
        let schema = &described["content"][&kind]["schema"];
        self.compare(schema, &answer).unwrap_or_else(|wrong| panic!("{status} of {route}{wrong}: {answer}"));
        answer
    }

    /// What is not as the schema says, after the place where it is.
    fn compare(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = self.whole(schema);
        if let Some(choices) = schema["oneOf"].as_array() {
            let tried = choices.iter().map(|choice| self.compare(choice, value));
            return tried.reduce(|first, next| next.or(first)).unwrap_or(Ok(()));
        }
        // Anything.
        if schema["type"].is_null() && schema["properties"].is_null() {
            return if schema.is_object() { Ok(()) } else { Err(" is not described".to_owned()) };
        }
        let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
        if !kinds.contains(&json!(kind(value))) {
            return Err(format!(" should be {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
            return Err(format!(" should be one of {}", schema["enum"]));
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.compare(&schema["items"], item).map_err(|wrong| format!("[{index}]{wrong}"))?;
        }
        let Some(fields) = value.as_object() else { return Ok(()) };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                return Err(format!(" has no {name}, which is required"));
            }
        }
        for (name, value) in fields {
            let described = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            let described = described.ok_or_else(|| format!(" has {name:?}, which is not described"))?;
            self.compare(described, value).map_err(|wrong| format!(".{name}{wrong}"))?;
        }
        Ok(())
    }

    /// References followed, and what is put together from parts in one.
    fn whole(&self, schema: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.whole(self.document.pointer(&reference[1..]).unwrap());
        }
        let Some(parts) = schema["allOf"].as_array() else { return schema.clone() };
        let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
        for part in parts.iter().map(|part| self.whole(part)) {
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        json!({"type": "object", "properties": properties, "required": required})
    }

    /// Every status of every route of these that is no error.
    fn all(&self, tags: [&str; 2]) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (path, methods) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if !tags.iter().any(|tag| operation["tags"] == json!([tag])) {
                    continue;
                }
                let statuses = operation["responses"].as_object().unwrap().keys();
                let answers = statuses.filter(|status| status.starts_with('2') || *status == "429");
                all.extend(answers.map(|status| format!("{status} {} {path}", method.to_uppercase())));
            }
        }
        all
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn answers_of_limits_and_gates_are_as_the_document_says() {
    let tidegate = Setup::serve().start();
    let described = Described::start(&tidegate);
    let ask = |route, query, body, status| described.ask(route, query, body, status);
    let (nothing, deny) = (Value::Null, "?on_deny=429");

    let rule = json!({"id": "one", "key": "one:*", "limit": 1, "window": "1h"});
    ask("POST /v1/limits/rules", "", rule, 201);
    let rule = json!({"key": "two:*", "limit": 2, "window": "1h", "overrides": {"two:2": {"limit": 9}}});
    for status in [201, 200] {
        ask("PUT /v1/limits/rules/{rule}", "", rule.clone(), status);
    }
    let shadow =
        json!({"key": "shadow:*", "limit": 1, "shadow": true, "calendar": {"every": "month", "time_zone": "UTC"}});
    ask("POST /v1/limits/rules", "", shadow, 201);
    ask("GET /v1/limits/rules/{rule}", "", nothing.clone(), 200);
    assert!(ask("GET /v1/limits/rules", "?limit=2", nothing.clone(), 200)["next"].is_string());

    let (one, shadow) = (json!({"key": "one:1"}), json!({"key": "shadow:1"}));
    ask("POST /v1/limits/check", "", shadow.clone(), 200);
    assert_eq!(ask("POST /v1/limits/check", "", shadow, 200)["shadow_denied"], true);
    let made = ask("POST /v1/limits/reserve", "", json!({"key": "one:1", "cost": 1, "expires_in": "1m"}), 200);
    for (query, status) in [("", 200), (deny, 429)] {
        assert_eq!(ask("POST /v1/limits/check", query, one.clone(), status)["allowed"], false);
        ask("POST /v1/limits/peek", query, one.clone(), status);
        assert!(ask("POST /v1/limits/reserve", query, one.clone(), status)["id"].is_null());
        ask("POST /v1/limits/check-batch", query, json!({"checks": [one, {"key": "two:1"}]}), status);
    }
    ask("POST /v1/limits/check", "", json!({"key": "nobody"}), 404);
    ask("POST /v1/limits/settle", "", json!({"id": made["id"], "cost": 1}), 200);
    ask("GET /v1/limits/keys", "", nothing.clone(), 200);
    for key in ["two:2", "nobody"] {
        ask("POST /v1/limits/explain", "", json!({"key": key}), 200);
    }
    ask("DELETE /v1/limits/keys/{key}", "", nothing.clone(), 204);
    ask("DELETE /v1/limits/rules/{rule}", "", nothing.clone(), 204);

    let enter = "POST /v1/gates/{target}/enter";
    ask("GET /v1/gates/{target}", "", nothing.clone(), 200);
    let policy =
        json!({"rate": {"limit": 9, "window": "1s"}, "circuit": {}, "concurrency": {"limit": 1}, "lease": "1m"});
    let entered = ask(enter, "", json!({"policy": policy}), 200);
    ask("PUT /v1/gates/{target}/policy", "", policy, 200);
    ask(enter, deny, json!({"cost": 1}), 429);
    ask("POST /v1/gates/{target}/renew", "", json!({"pass": entered["pass"]}), 200);
    for outcome in ["success", "failure"] {
        ask("POST /v1/gates/{target}/exit", "", json!({"pass": entered["pass"], "outcome": outcome}), 200);
    }
    ask("PUT /v1/gates/{target}/override", "", json!({"state": "open", "for": "10m"}), 200);
    ask(enter, "", json!({}), 200);
    ask("GET /v1/gates", "", nothing.clone(), 200);
    ask("DELETE /v1/gates/{target}/policy", "", nothing, 204);

    let (seen, all) = (described.seen.borrow(), described.all(["limits", "gates"]));
    let missed: Vec<_> = all.difference(&seen).collect();
    assert!(missed.is_empty(), "described and not asked for: {missed:?}");
}

#[test]
fn what_intake_takes_and_answers_is_as_the_document_says() {
    let tidegate = Setup::serve().start();
    let described = Described::start(&tidegate);
    let (one, wrong) = (json!({"type": "a.b", "data": 7}), json!({"type": "a b", "data": "any JSON"}));
    for route in ["POST /v1/events", "POST /events"] {
        let ask = |content_type, body, status| described.ask_with(content_type, route, "", body, status);
        assert_eq!(ask("application/json", one.clone(), 202)["status"], "queued");
        assert_eq!(ask("application/json", json!([one, wrong]), 202)["rejected"], 1);
        assert_eq!(ask("application/x-ndjson", one.clone(), 202)["accepted"], 1);
    }
    let all_wrong = described.ask("POST /v1/events", "", json!([wrong]), 422);
    assert_eq!(all_wrong["rejected"], 1, "{all_wrong}");
    for data in [json!(7), json!("text"), json!([]), json!(null)] {
        described.ask("POST /v1/events/explain", "", json!({"type": "a.b", "data": data}), 200);
    }
}

#[test]
fn a_subscription_is_bounded_as_the_document_says() {
    let tidegate = Setup::serve().start();
    let described = Described::start(&tidegate);
    let properties = &described.document["components"]["schemas"]["SubscriptionIn"]["properties"];
    let create = |field: &str, value: Value| {
        let mut settings = json!({"url": "http://127.0.0.1:9999/", "event_types": ["a.b"]});
        settings[field] = value;
        Call::post("/v1/subscriptions", settings).to(tidegate.addr())
    };
    for field in ["rate_limit", "max_concurrency"] {
        let [least, most] = ["minimum", "maximum"].map(|bound| properties[field][bound].as_i64().unwrap());
        for (value, status) in [(least, 201), (most, 201), (least - 1, 422), (most + 1, 422)] {
            create(field, json!(value)).expect(status);
        }
    }
    for (field, item) in [("event_types", "a.b"), ("retry_schedule", "5s")] {
        let most = usize::try_from(properties[field]["maxItems"].as_u64().unwrap()).unwrap();
        for (many, status) in [(most, 201), (most + 1, 422)] {
            create(field, json!(vec![item; many])).expect(status);
        }
    }
    let longest = usize::try_from(properties["id"]["maxLength"].as_u64().unwrap()).unwrap();
    for (length, status) in [(longest, 201), (longest + 1, 422), (0, 422)] {
        create("id", json!("x".repeat(length))).expect(status);
    }
}

#[test]
fn every_operation_behind_the_door_takes_a_tenant() {
    let document = Setup::serve().start().get("/openapi.json").expect(200);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let mut parameters = operation["parameters"].as_array().into_iter().flatten();
            let takes_one = parameters.any(|one| one["name"] == "X-Tenant" && one["in"] == "header");
            assert_eq!(takes_one, operation["tags"] != json!(["health"]), "{method} {path}");
        }
    }
}
