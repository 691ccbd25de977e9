//! Bar 46: to a key, what another tenant has does not exist. The operations and the filters of the lists are those of the OpenAPI
//! document, so a new one is asked, too, and one with an id that this test cannot fill in fails it.

use std::{collections::BTreeMap, iter};

use serde_json::{Value, json};
use testkit::wait_until;

use super::tomorrow;
use crate::support::{Backend, Call, Response, SOON, Tidegate, each_backend};

each_backend! {
    a_foreign_id_is_an_unknown_id
    a_list_holds_nothing_foreign
    a_job_touches_nothing_foreign
}

/// Tags of what is no part of dispatch.
const ELSEWHERE: [&str; 4] = ["admin", "gates", "health", "limits"];

/// Two tenants: one has something of everything, and the other asks for it.
struct Tenants {
    tidegate: Tidegate,
    ours: String,
    theirs: String,
    /// What is ours, by the name that paths and filters have for it.
    ids: BTreeMap<&'static str, String>,
    has_record: bool,
}

/// One of the document.
#[derive(Debug)]
struct Operation {
    method: String,
    path: String,
    /// The names of what may be asked behind a `?`.
    queries: Vec<String>,
}

impl Tenants {
    /// Nothing of it changes by itself: of two deliveries one has failed, and one waits until tomorrow.
    fn start(backend: &Backend) -> Self {
        let tidegate = backend.locked().start();
        let addr = tidegate.addr();
        let [ours, theirs] = ["ours", "theirs"].map(|tenant| {
            Call::post("/admin/tenants", json!({"id": tenant, "name": tenant})).admin().to(addr).expect(201);
            let keys = format!("/admin/tenants/{tenant}/keys");
            text(&Call::post(&keys, json!({"name": "all"})).admin().to(addr).expect(201)["key"])
        });
        let post = |path: &str, body: Value, status: u16| Call::post(path, body).key(&ours).to(addr).expect(status);
        // The name has no address.
        let settings = json!({
            "id": "hook", "url": "https://receiver.invalid/", "event_types": ["**"], "signatures": "v1+v1a",
            "timeout": "1s", "retry_schedule": [],
        });
        post("/v1/subscriptions", settings, 201);
        post("/v1/events", json!({"id": "over", "type": "a.b", "data": {}}), 202);
        post("/v1/events", json!({"id": "waits", "type": "a.b", "data": {}, "deliver_at": tomorrow()}), 202);
        let get = |path: &str| Call::get(path).key(&ours).to(addr).expect(200);
        let delivery = |event: &str| get(&format!("/v1/events/{event}/deliveries"))["data"][0].clone();
        wait_until(SOON, "a call to fail", || delivery("over")["status"] == "failed");
        let job = text(&post("/v1/jobs", json!({"kind": "purge", "dry_run": true}), 202)["id"]);
        wait_until(SOON, "a job to be done", || get(&format!("/v1/jobs/{job}"))["state"] == "done");
        let has_record = match backend {
            // Records come through Kafka, which needs PostgreSQL: on SQLite nobody has one.
            Backend::Sqlite => false,
            Backend::Postgres(postgres) | Backend::Kafka(postgres, _) => {
                postgres.sql(
                    "INSERT INTO rejected_records (id, tenant_id, topic, partition_no, offset_no, record_at, value, headers, reason, detail) \
                     VALUES ('rej_ours', 'ours', 'topic', 0, 0, now(), 'x', '[]', 'unreadable', 'It is no JSON.')",
                );
                true
            }
        };
        let ids = [
            ("delivery", text(&delivery("waits")["id"])),
            ("event", "over".to_owned()),
            ("job", job),
            ("record", "rej_ours".to_owned()),
            ("subscription", "hook".to_owned()),
        ];
        Tenants { ours, theirs, ids: ids.into(), has_record, tidegate }
    }

    fn ask(&self, key: &str, call: Call) -> Response {
        call.key(key).to(self.tidegate.addr())
    }

    fn list(&self, key: &str, path: &str) -> Value {
        self.ask(key, Call::get(path)).expect(200)["data"].clone()
    }

    /// All that we have, as we see it.
    fn all_of_ours(&self) -> Vec<Value> {
        let lists = ["subscriptions", "events", "deliveries", "attempts", "jobs", "rejected"];
        let mut all: Vec<Value> = lists.iter().map(|list| self.list(&self.ours, &format!("/v1/{list}"))).collect();
        // Since when it fails is noted in its own time.
        if let Some(Value::Object(subscription)) = all[0].get_mut(0) {
            subscription.remove("failing_since");
        }
        all
    }

    /// What the document says of dispatch.
    fn operations(&self) -> Vec<Operation> {
        let document = self.tidegate.get("/openapi.json").expect(200);
        let mut operations = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if ELSEWHERE.iter().any(|tag| operation["tags"] == json!([tag])) {
                    continue;
                }
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let queries = parameters.filter(|one| one["in"] == "query").map(|one| text(&one["name"])).collect();
                operations.push(Operation { method: method.to_uppercase(), path: path.clone(), queries });
            }
        }
        operations
    }

    /// The call, with what is ours in the place of each id.
    fn call(&self, operation: &Operation) -> Call {
        let mut path = operation.path.clone();
        while let Some((before, rest)) = path.split_once('{') {
            let (name, after) = rest.split_once('}').unwrap();
            let id = self.ids.get(name).unwrap_or_else(|| {
                panic!("{operation:?} names a {name}: `Tenants::start` must make one of ours, and put it among `ids`")
            });
            path = format!("{before}{id}{after}");
        }
        let call = Call::new(&operation.method, &path);
        // The one that cannot do without a body.
        if operation.method == "PATCH" { call.json(json!({"description": "theirs"})) } else { call }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn a_foreign_id_is_an_unknown_id(backend: &Backend) {
    let tenants = Tenants::start(backend);
    let before = tenants.all_of_ours();
    let mut operations = tenants.operations();
    operations.retain(|operation| operation.path.contains('{'));
    assert!(operations.len() >= 19, "the document has lost some: {operations:?}");
    for operation in &operations {
        let answer = tenants.ask(&tenants.theirs, tenants.call(operation));
        assert_eq!(answer.status, 404, "{operation:?}: {answer:?}");
        answer.expect_problem(404, "not_found");
        assert_eq!(tenants.all_of_ours(), before, "after {operation:?}");
    }
    // Their own things under the same ids are other things.
    let event = json!({"id": "over", "type": "a.b", "data": {"theirs": true}});
    tenants.ask(&tenants.theirs, Call::post("/v1/events", event)).expect(202);
    let subscription = json!({"id": "hook", "url": "https://example.com/", "event_types": ["never"]});
    tenants.ask(&tenants.theirs, Call::post("/v1/subscriptions", subscription)).expect(201);
    assert_eq!(tenants.all_of_ours(), before);
    // And to us, every one of them is there, whether or not this can be done with it now. What takes it away comes last.
    operations.sort_by_key(|operation| operation.method == "DELETE");
    for operation in operations {
        if tenants.has_record || !operation.path.contains("{record}") {
            let answer = tenants.ask(&tenants.ours, tenants.call(&operation));
            assert!(answer.status < 500 && ![403, 404].contains(&answer.status), "{operation:?}: {answer:?}");
        }
    }
}

fn a_list_holds_nothing_foreign(backend: &Backend) {
    let tenants = Tenants::start(backend);
    let (mut asked, mut cursors) = (0, 0);
    for Operation { method, path, queries } in tenants.operations() {
        if method != "GET" || path.contains('{') {
            continue;
        }
        let filters = queries.iter().filter_map(|name| Some(format!("?{name}={}", tenants.ids.get(name.as_str())?)));
        for query in iter::once(String::new()).chain(filters) {
            let list = format!("{path}{query}");
            assert_eq!(tenants.list(&tenants.theirs, &list), json!([]), "{list}");
            let is_empty = tenants.list(&tenants.ours, &list) == json!([]);
            assert_eq!(is_empty, path == "/v1/rejected" && !tenants.has_record, "{list} of ours");
            asked += 1;
        }
        for id in tenants.ids.values() {
            let list = format!("{path}?after={id}");
            let answer = tenants.ask(&tenants.theirs, Call::get(&list));
            if answer.status == 400 {
                assert_eq!(answer.expect_problem(400, "invalid_query")["field"], "after", "{list}");
            } else {
                assert_eq!(answer.expect(200)["data"], json!([]), "{list}");
                cursors += 1;
            }
        }
    }
    assert!(asked >= 10, "six lists, and two filters of two of them: {asked}");
    assert!(cursors >= 4, "a delivery for two lists, a job and a subscription: {cursors}");
    let everyones = tenants.ask(&tenants.theirs, Call::get("/v1/rejected?all=true"));
    everyones.expect_problem(403, "admin_only");
    let explain = Call::post("/v1/events/explain", json!({"type": "a.b", "data": {}}));
    assert_eq!(tenants.ask(&tenants.theirs, explain).expect(200), json!([]));
}

fn a_job_touches_nothing_foreign(backend: &Backend) {
    let tenants = Tenants::start(backend);
    let before = tenants.all_of_ours();
    let start = |job: Value| tenants.ask(&tenants.theirs, Call::post("/v1/jobs", job));
    let deliveries = tenants.list(&tenants.ours, "/v1/deliveries");
    let ids: Vec<&Value> = deliveries.as_array().unwrap().iter().map(|delivery| &delivery["id"]).collect();
    assert_eq!(ids.len(), 2, "{deliveries}");
    for kind in ["replay", "cancel", "purge"] {
        let named = start(json!({"kind": kind, "deliveries": ids, "dry_run": false}));
        assert_eq!(named.expect_problem(404, "not_found")["field"], "deliveries[0]");
    }
    for kind in ["replay", "cancel"] {
        start(json!({"kind": kind, "subscription": "hook"})).expect_problem(404, "not_found");
    }
    for job in [
        // What is purged may be of a subscription that is gone, so this one is taken.
        json!({"kind": "purge", "subscription": "hook", "dry_run": false}),
        // All there is, which is nothing.
        json!({"kind": "purge", "dry_run": false}),
        json!({"kind": "cancel"}),
        json!({"kind": "replay", "status": ["delivered", "failed", "cancelled"]}),
        json!({"kind": "replay", "missing": true, "since": "2026-01-01T00:00:00Z"}),
    ] {
        let started = start(job).expect(202);
        let path = format!("/v1/jobs/{}", text(&started["id"]));
        let look = || tenants.ask(&tenants.theirs, Call::get(&path)).expect(200);
        wait_until(SOON, "a job to be done", || look()["state"] == "done");
        let done = look();
        for count in ["scanned", "requeued", "created", "cancelled", "deleted", "events_deleted", "skipped"] {
            assert_eq!(done[count], 0, "{count} of {done}");
        }
    }
    assert_eq!(tenants.all_of_ours(), before);
}
