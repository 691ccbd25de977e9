//! Keys over HTTP, on SQLite and on PostgreSQL: who comes in, for which tenant, and until when.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::wait_until;

use crate::support::{ADMIN_KEY, Backend, Call, Response, SOON, Setup, Tidegate, each_backend};

each_backend! {
    missing_and_garbage_keys_are_401
    an_expired_key_is_401
    a_revoked_key_is_401
    a_missing_scope_is_403
    to_a_key_other_tenants_do_not_exist
    a_key_hands_on_no_scope_that_it_lacks
    rotation_keeps_two_live_keys_and_no_third
    a_replaced_key_ends_with_its_grace_time
    deleting_a_tenant_ends_its_keys
    the_last_use_of_a_key_is_recorded
    the_audit_says_who_changed_what
    lists_come_in_pages
    a_wrong_key_request_names_its_field
    a_garbage_tenant_header_is_404
    a_tenant_with_a_thousand_live_keys_gets_no_other
}

/// A key as its holder has it.
struct Key {
    id: String,
    text: String,
}

impl From<Value> for Key {
    fn from(shown: Value) -> Self {
        let text = |name: &str| shown[name].as_str().unwrap().to_owned();
        Key { id: text("id"), text: text("key") }
    }
}

fn tenant(tidegate: &Tidegate, id: &str) {
    Call::post("/admin/tenants", json!({"id": id, "name": id})).admin().to(tidegate.addr()).expect(201);
}

fn create(tidegate: &Tidegate, tenant: &str, body: Value) -> Key {
    Call::post(&format!("/admin/tenants/{tenant}/keys"), body).admin().to(tidegate.addr()).expect(201).into()
}

fn rotate(tidegate: &Tidegate, tenant: &str, id: &str, body: Value) -> Response {
    Call::post(&format!("/admin/tenants/{tenant}/keys/{id}/rotate"), body).admin().to(tidegate.addr())
}

fn me(tidegate: &Tidegate, key: &str) -> Response {
    Call::get("/v1/me").key(key).to(tidegate.addr())
}

fn missing_and_garbage_keys_are_401(backend: &Backend) {
    let tidegate = backend.locked().start();
    tidegate.get("/v1/me").expect_problem(401, "missing_key");
    let key = create(&tidegate, "default", json!({"name": "real"})).text;
    let garbage = garbage(&key);
    assert!(garbage.len() >= 700, "{}", garbage.len());
    for (name, value) in garbage {
        let shown = String::from_utf8_lossy(&value).chars().take(100).collect::<String>();
        let response = Call::get("/v1/me").header(name, &value).to(tidegate.addr());
        assert_eq!(response.status, 401, "{name}: {shown}: {response:?}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"tidegate\""), "{shown}");
        response.expect_problem(401, "invalid_key");
    }
    me(&tidegate, &key).expect(200);
    Call::get("/v1/me").header("x-api-key", &key).to(tidegate.addr()).expect(200);
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

/// What a stranger might send instead of a key: near misses, other people's schemes, injections, every legal byte.
fn garbage(key: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut texts: Vec<Vec<u8>> = [
        "' OR '1'='1",
        "'; DROP TABLE api_keys; --",
        "\" OR \"\"=\"",
        "1 UNION SELECT hash FROM api_keys",
        "%27%20OR%201=1",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
        "eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IoTOrjnLZcI",
        "null",
        "undefined",
        "true",
        "admin",
        "{\"key\":\"admin\"}",
        "../../etc/passwd",
        "${jndi:ldap://127.0.0.1/a}",
        "<script>alert(1)</script>",
        "tgk_",
        "tgk_tgk_tgk_",
        "TGK_",
        "sk-proj-0000000000000000",
        "ключ",
        "鍵鍵鍵",
        "\u{202e}\u{feff}",
        "🗝",
        "*",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    texts.extend([100, 1000, 20_000].map(|length| vec![b'a'; length]));
    texts.extend([63, 64, 65, 72, 73, 1000].map(|length| format!("tgk_{}", "0".repeat(length)).into_bytes()));
    texts.extend((0..key.len()).map(|place| {
        let mut text = key.as_bytes().to_vec();
        text[place] = if text[place] == b'0' { b'1' } else { b'0' };
        text
    }));
    texts.extend((1..key.len()).map(|length| key.as_bytes()[..length].to_vec()));
    texts.extend([ADMIN_KEY[1..].into(), ADMIN_KEY.to_uppercase().into(), format!("{ADMIN_KEY}x").into()]);
    texts.extend((0x21..=0xff_u8).filter(|byte| *byte != 0x7f).map(|byte| vec![byte, byte, byte]));
    let bearer = texts.iter().map(|text| ("authorization", [b"Bearer ".as_slice(), text].concat()));
    let other_header = texts.iter().map(|text| ("x-api-key", text.clone()));
    let schemes = ["Basic", "Digest", "Negotiate", "bearer:", "Bearer\t", "Token", "Key", "OAuth"];
    let other_schemes = schemes.map(|scheme| ("authorization", format!("{scheme} {key}").into_bytes()));
    let malformed = ["", "Bearer", "Bearer  ", key, " "].map(|text| ("authorization", text.as_bytes().to_vec()));
    bearer.chain(other_header).chain(other_schemes).chain(malformed).collect()
}

fn an_expired_key_is_401(backend: &Backend) {
    let tidegate = backend.locked().start();
    let key = create(&tidegate, "default", json!({"name": "short", "expires_in": "1ms"})).text;
    wait_until(SOON, "the key to expire", || me(&tidegate, &key).status == 401);
    me(&tidegate, &key).expect_problem(401, "expired_key");
    let used = create(&tidegate, "default", json!({"name": "used", "expires_in": "2s"})).text;
    me(&tidegate, &used).expect(200);
    wait_until(SOON, "a key in use to expire", || me(&tidegate, &used).status == 401);
    me(&tidegate, &used).expect_problem(401, "expired_key");
}

fn a_revoked_key_is_401(backend: &Backend) {
    let tidegate = backend.locked().start();
    let key = create(&tidegate, "default", json!({"name": "lost"}));
    me(&tidegate, &key.text).expect(200);
    let revoke = || Call::new("DELETE", &format!("/admin/tenants/default/keys/{}", key.id)).admin().to(tidegate.addr());
    assert_eq!(revoke().status, 204);
    me(&tidegate, &key.text).expect_problem(401, "revoked_key");
    assert_eq!(revoke().status, 204);
    rotate(&tidegate, "default", &key.id, json!({})).expect_problem(409, "key_not_live");
}

fn a_missing_scope_is_403(backend: &Backend) {
    let tidegate = backend.locked().start();
    let editor = create(&tidegate, "default", json!({"name": "editor"}));
    let viewer = create(&tidegate, "default", json!({"name": "viewer", "role": "viewer"}));
    let keys = "/admin/tenants/default/keys";
    Call::get(keys).key(&editor.text).to(tidegate.addr()).expect_problem(403, "missing_scope");
    Call::get(keys).key(&viewer.text).to(tidegate.addr()).expect(200);
    let change = |call: Call| call.key(&viewer.text).to(tidegate.addr()).expect_problem(403, "missing_scope");
    let problem = change(Call::post(keys, json!({"name": "mine", "scopes": ["keys:read"]})));
    assert!(problem["detail"].as_str().unwrap().contains("keys:write"), "{problem}");
    change(Call::post(&format!("{keys}/{}/rotate", editor.id), json!({})));
    change(Call::new("DELETE", &format!("{keys}/{}", editor.id)));
    Call::get("/admin/audit").key(&editor.text).to(tidegate.addr()).expect_problem(403, "missing_scope");
    for call in [Call::get("/admin/tenants"), Call::post("/admin/tenants", json!({"name": "x"}))] {
        call.key(&viewer.text).to(tidegate.addr()).expect_problem(403, "admin_only");
    }
    me(&tidegate, &editor.text).expect(200);
}

fn to_a_key_other_tenants_do_not_exist(backend: &Backend) {
    let tidegate = backend.locked().start();
    for id in ["acme", "other"] {
        tenant(&tidegate, id);
    }
    let acme = create(&tidegate, "acme", json!({"name": "admin", "role": "admin"}));
    let other = create(&tidegate, "other", json!({"name": "victim"}));
    let call = |call: Call| call.key(&acme.text).to(tidegate.addr());
    for path in ["/admin/tenants/other", "/admin/tenants/other/keys", "/admin/tenants/nowhere"] {
        call(Call::get(path)).expect_problem(404, "not_found");
    }
    call(Call::post("/admin/tenants/other/keys", json!({"name": "mine"}))).expect_problem(404, "not_found");
    for tenant in ["other", "acme"] {
        let path = format!("/admin/tenants/{tenant}/keys/{}", other.id);
        call(Call::new("DELETE", &path)).expect_problem(404, "not_found");
        call(Call::post(&format!("{path}/rotate"), json!({}))).expect_problem(404, "not_found");
    }
    // Whether the tenant is there or not: a key speaks for its own, and is not answered for another's.
    for tenant in ["other", "nobody", ""] {
        for path in ["/v1/me", "/v1/events"] {
            let foreign = call(Call::get(path).header("x-tenant", tenant)).expect_problem(403, "other_tenant");
            assert_eq!(foreign["field"], "x-tenant");
        }
    }
    let event = Call::post("/v1/events", json!({"type": "a.b", "data": {}})).header("x-tenant", "other");
    call(event).expect_problem(403, "other_tenant");
    let own = call(Call::get("/v1/me").header("x-tenant", "acme")).expect(200);
    assert_eq!(own["tenant"], "acme");
    me(&tidegate, &other.text).expect(200);
    let audit = call(Call::get("/admin/audit?limit=1000")).expect(200);
    assert!(audit["data"].as_array().unwrap().iter().all(|entry| entry["tenant_id"] == "acme"), "{audit}");
    let unknown = Call::get("/v1/me").admin().header("x-tenant", "nobody").to(tidegate.addr());
    assert_eq!(unknown.expect_problem(404, "not_found")["field"], "x-tenant");
    let known = Call::get("/v1/me").admin().header("x-tenant", "other").to(tidegate.addr()).expect(200);
    assert_eq!(known["tenant"], "other");
}

fn a_key_hands_on_no_scope_that_it_lacks(backend: &Backend) {
    let tidegate = backend.locked().start();
    let limited = create(&tidegate, "default", json!({"name": "hr", "scopes": ["keys:read", "keys:write"]}));
    let powerful = create(&tidegate, "default", json!({"name": "all", "role": "admin"}));
    let path = "/admin/tenants/default/keys";
    let ask = |call: Call| call.key(&limited.text).to(tidegate.addr());
    ask(Call::post(path, json!({"name": "x"}))).expect_problem(403, "missing_scope");
    ask(Call::post(path, json!({"name": "x", "scopes": ["gateway:use"]}))).expect_problem(403, "missing_scope");
    let rotate = format!("{path}/{}/rotate", powerful.id);
    ask(Call::post(&rotate, json!({}))).expect_problem(403, "missing_scope");
    ask(Call::post(path, json!({"name": "x", "scopes": ["keys:read"]}))).expect(201);
}

fn rotation_keeps_two_live_keys_and_no_third(backend: &Backend) {
    let tidegate = backend.locked().start();
    let first = create(&tidegate, "default", json!({"name": "line"}));
    let second: Key = rotate(&tidegate, "default", &first.id, json!({})).expect(201).into();
    me(&tidegate, &first.text).expect(200);
    me(&tidegate, &second.text).expect(200);
    rotate(&tidegate, "default", &first.id, json!({})).expect_problem(409, "key_not_live");
    let without_body = format!("/admin/tenants/default/keys/{}/rotate", second.id);
    let third: Key = Call::new("POST", &without_body).admin().to(tidegate.addr()).expect(201).into();
    me(&tidegate, &first.text).expect_problem(401, "revoked_key");
    me(&tidegate, &second.text).expect(200);
    me(&tidegate, &third.text).expect(200);
    rotate(&tidegate, "default", "key_nobody", json!({})).expect_problem(404, "not_found");
    let too_long = rotate(&tidegate, "default", &third.id, json!({"grace": "31d"}));
    assert_eq!(too_long.expect_problem(422, "invalid_field")["field"], "grace");
}

fn a_replaced_key_ends_with_its_grace_time(backend: &Backend) {
    let tidegate = backend.locked().start();
    let old = create(&tidegate, "default", json!({"name": "line"}));
    let new: Key = rotate(&tidegate, "default", &old.id, json!({"grace": "1s"})).expect(201).into();
    wait_until(SOON, "the old key to end", || me(&tidegate, &old.text).status == 401);
    me(&tidegate, &old.text).expect_problem(401, "expired_key");
    me(&tidegate, &new.text).expect(200);
    let newest: Key = rotate(&tidegate, "default", &new.id, json!({"grace": "0s"})).expect(201).into();
    me(&tidegate, &new.text).expect_problem(401, "expired_key");
    me(&tidegate, &newest.text).expect(200);
}

fn deleting_a_tenant_ends_its_keys(backend: &Backend) {
    let tidegate = backend.locked().start();
    tenant(&tidegate, "acme");
    let key = create(&tidegate, "acme", json!({"name": "orphan"})).text;
    me(&tidegate, &key).expect(200);
    let delete = |id: &str| Call::new("DELETE", &format!("/admin/tenants/{id}")).admin().to(tidegate.addr());
    assert_eq!(delete("acme").status, 204);
    me(&tidegate, &key).expect_problem(401, "invalid_key");
    delete("acme").expect_problem(404, "not_found");
    delete("default").expect_problem(409, "default_tenant");
    Call::get("/v1/me").admin().header("x-tenant", "acme").to(tidegate.addr()).expect_problem(404, "not_found");
}

fn the_last_use_of_a_key_is_recorded(backend: &Backend) {
    let tidegate = backend.locked().start();
    let key = create(&tidegate, "default", json!({"name": "used"}));
    let last_used = || {
        let list = Call::get("/admin/tenants/default/keys").admin().to(tidegate.addr()).expect(200);
        list["data"].as_array().unwrap().iter().find(|found| found["id"] == key.id).unwrap()["last_used_at"].clone()
    };
    assert_eq!(last_used(), Value::Null);
    me(&tidegate, &key.text).expect(200);
    wait_until(SOON, "the use to be recorded", || last_used().is_string());
}

#[test]
fn a_key_that_is_known_opens_the_door_while_the_database_is_away() {
    let postgres = testkit::need!(testkit::postgres::Server::start());
    let tidegate = Setup::locked().env("DATABASE_URL", &postgres.url()).start();
    let [known, revoked] = ["known", "revoked"].map(|name| create(&tidegate, "default", json!({"name": name})));
    me(&tidegate, &revoked.text).expect(200);
    let path = format!("/admin/tenants/default/keys/{}", revoked.id);
    Call::new("DELETE", &path).admin().to(tidegate.addr()).expect(204);
    me(&tidegate, &known.text).expect(200);
    postgres.kill();
    // Longer than it would be before the database is asked again.
    let away = Instant::now();
    while away.elapsed() < Duration::from_secs(3) {
        me(&tidegate, &known.text).expect(200);
    }
    me(&tidegate, &revoked.text).expect_problem(503, "database_unavailable");
    Call::get("/v1/me")
        .admin()
        .header("x-tenant", "nobody")
        .to(tidegate.addr())
        .expect_problem(503, "database_unavailable");
}

fn the_audit_says_who_changed_what(backend: &Backend) {
    let tidegate = backend.locked().start();
    tenant(&tidegate, "acme");
    let admin = create(&tidegate, "acme", json!({"name": "admin", "role": "admin"}));
    let rename = Call::new("PATCH", "/admin/tenants/acme").json(json!({"name": "Acme"})).admin();
    rename.to(tidegate.addr()).expect(200);
    let made: Key = Call::post("/admin/tenants/acme/keys", json!({"name": "by a key"}))
        .key(&admin.text)
        .to(tidegate.addr())
        .expect(201)
        .into();
    rotate(&tidegate, "acme", &made.id, json!({})).expect(201);
    Call::new("DELETE", &format!("/admin/tenants/acme/keys/{}", made.id)).admin().to(tidegate.addr());
    Call::new("DELETE", "/admin/tenants/acme").admin().to(tidegate.addr());
    let audit = Call::get("/admin/audit").admin().to(tidegate.addr()).expect(200);
    let seen: Vec<[&str; 3]> = audit["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| ["actor", "action", "target"].map(|name| entry[name].as_str().unwrap()))
        .collect();
    let expected = [
        ["admin", "tenant.deleted", "acme"],
        ["admin", "key.revoked", &made.id],
        ["admin", "key.rotated", &made.id],
        [&admin.id, "key.created", &made.id],
        ["admin", "tenant.renamed", "acme"],
        ["admin", "key.created", &admin.id],
        ["admin", "tenant.created", "acme"],
    ];
    assert_eq!(seen, expected);
}

fn lists_come_in_pages(backend: &Backend) {
    let tidegate = backend.locked().start();
    let made: Vec<String> =
        (0..5).map(|number| create(&tidegate, "default", json!({"name": format!("{number}")})).id).collect();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/admin/tenants/default/keys?limit=2{after}");
        let page = Call::get(&path).admin().to(tidegate.addr()).expect(200);
        let ids = page["data"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned());
        seen.extend(ids);
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    seen.reverse();
    assert_eq!(seen, made);
    // Tenants are listed by their age; a cursor without one must not look like the last page.
    for list in ["tenants?after=nobody", "tenants?after=", "tenants/default/keys?after=nobody", "audit?after=nobody"] {
        let nowhere = Call::get(&format!("/admin/{list}")).admin().to(tidegate.addr());
        assert_eq!(nowhere.expect_problem(400, "invalid_query")["field"], "after", "{list}");
    }
    tenant(&tidegate, "gone");
    Call::new("DELETE", "/admin/tenants/gone").admin().to(tidegate.addr()).expect(204);
    let behind = Call::get("/admin/tenants?after=gone").admin().to(tidegate.addr()).expect(200);
    assert_eq!(behind["data"][0]["id"], "default", "a page goes on behind a tenant that was deleted meanwhile");
}

/// The first counted, and nobody was told of the other.
#[test]
fn a_tenant_header_that_is_sent_twice_is_refused() {
    for (setup, key) in [(Setup::serve(), None), (Setup::locked(), Some(ADMIN_KEY))] {
        let tidegate = setup.start();
        for call in [
            Call::get("/v1/me"),
            Call::post("/v1/events", json!({"type": "a.b", "data": 1})),
            Call::post("/v1/limits/check", json!({"key": "a"})),
        ] {
            let call = key.into_iter().fold(call, Call::key).header("x-tenant", "default").header("X-Tenant", "nope");
            let problem = call.to(tidegate.addr()).expect_problem(400, "repeated_header");
            assert_eq!(problem["field"], "x-tenant");
        }
        assert_eq!(
            key.into_iter().fold(Call::get("/v1/events"), Call::key).to(tidegate.addr()).expect(200)["data"],
            json!([])
        );
    }
}

fn a_wrong_key_request_names_its_field(backend: &Backend) {
    let tidegate = backend.locked().start();
    for (body, field) in [
        (json!({}), Some("name")),
        (json!({"name": ""}), Some("name")),
        (json!({"name": "x", "expires_in": "0s"}), Some("expires_in")),
        (json!({"name": "x", "expires_in": "11y"}), Some("expires_in")),
        (json!({"name": "x", "expires_in": "99999999999999999999y"}), Some("expires_in")),
        (json!({"name": "x", "expires_in": -1}), Some("expires_in")),
        (json!({"name": "x", "scopes": []}), Some("scopes")),
        (json!({"name": "x", "scopes": ["everything"]}), Some("scopes[0]")),
        (json!({"name": "x", "scopes": ["keys:read"], "role": "admin"}), Some("scopes")),
        (json!({"name": "x", "role": "root"}), Some("role")),
        (json!({"name": "x", "role": 5}), Some("role")),
        (json!({"name": "x", "tenant_id": "other"}), Some("tenant_id")),
    ] {
        let answer = Call::post("/admin/tenants/default/keys", body.clone()).admin().to(tidegate.addr());
        let problem = answer.expect_problem(422, "invalid_field");
        assert_eq!(problem["field"].as_str(), field, "{body}: {problem}");
    }
    create(&tidegate, "default", json!({"name": "as long as can be", "expires_in": "10years"}));
}

fn a_garbage_tenant_header_is_404(backend: &Backend) {
    let tidegate = backend.locked().start();
    let long = "x".repeat(20_000);
    for tenant in ["", "Default", "default ' OR 1=1", "%00", "ä", "default,default", "a\tb", &long] {
        let call = Call::get("/v1/me").admin().header("x-tenant", tenant);
        call.to(tidegate.addr()).expect_problem(404, "not_found");
    }
}

fn a_tenant_with_a_thousand_live_keys_gets_no_other(backend: &Backend) {
    let tidegate = backend.locked().start();
    tenant(&tidegate, "acme");
    let new = || Call::post("/admin/tenants/acme/keys", json!({"name": "one of many"})).admin();
    let mut keys: Vec<Value> = (0..1000).map(|_| new().to(tidegate.addr()).expect(201)).collect();
    let last = Key::from(keys.pop().unwrap());
    new().to(tidegate.addr()).expect_problem(409, "too_many_keys");
    let by_hand = tidegate.command(&["keys", "create", "--tenant", "acme", "--name", "x"]).run();
    assert!(by_hand.code == Some(1) && by_hand.output.contains("1000 live keys"), "{}", by_hand.output);
    create(&tidegate, "default", json!({"name": "another tenant's"}));
    rotate(&tidegate, "acme", &last.id, json!({"grace": "0s"})).expect(201);
    new().to(tidegate.addr()).expect_problem(409, "too_many_keys");
    let path = "/admin/tenants/acme/keys?limit=1";
    let newest = Call::get(path).admin().to(tidegate.addr()).expect(200)["data"][0]["id"].as_str().unwrap().to_owned();
    Call::new("DELETE", &format!("/admin/tenants/acme/keys/{newest}")).admin().to(tidegate.addr());
    new().to(tidegate.addr()).expect(201);
}
