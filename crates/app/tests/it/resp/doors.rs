//! Who may ask: keys, scopes and tenants, as on HTTP.

use serde_json::{Value, json};
use testkit::wait_until;

use super::Server;
use crate::support::{ADMIN_KEY, Call, SOON, Setup};

const ASK: [&str; 5] = ["CL.THROTTLE", "same", "0", "1", "3600"];

fn key(server: &Server, tenant: &str, body: Value) -> (String, String) {
    let call = Call::post(&format!("/admin/tenants/{tenant}/keys"), body).admin();
    let made = call.to(server.tidegate.addr()).expect(201);
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

#[test]
fn without_a_key_nothing_is_answered_but_how_to_show_one() {
    let server = Server::start(Setup::locked());
    let mut client = server.client();
    for words in [&ASK[..], &["PING"], &["HELLO", "3"], &["INFO"], &["CLIENT", "ID"], &["SET", "a", "b"]] {
        let answer = client.ask(words);
        assert!(answer.starts_with("-NOAUTH"), "{words:?}: {answer}");
    }
    for wrong in ["", "nonsense", "tgk_0000", "' OR 1=1", &"x".repeat(1000)] {
        assert!(client.ask(&["AUTH", wrong]).starts_with("-WRONGPASS"), "{wrong}");
    }
    assert!(client.ask(&["AUTH"]).starts_with("-ERR wrong number"));
    assert!(client.ask(&ASK).starts_with("-NOAUTH"), "a failed AUTH opens nothing");
    assert_eq!(client.ask(&["AUTH", ADMIN_KEY]), "OK");
    assert_eq!(client.ask(&ASK), "0 1 0 -1 3600");
    assert!(!server.tidegate.output().contains("panicked"), "{}", server.tidegate.output());
}

#[test]
fn a_key_needs_the_scope_to_check() {
    let server = Server::start(Setup::locked());
    let (_, viewer) = key(&server, "default", json!({"name": "looks", "role": "viewer"}));
    let (_, checker) = key(&server, "default", json!({"name": "asks", "scopes": ["limits:check"]}));
    let mut client = server.client();
    assert_eq!(client.ask(&["AUTH", &viewer]), "OK");
    assert!(client.ask(&ASK).starts_with("-NOPERM this key lacks the scope limits:check"));
    assert!(client.ask(&["HELLO", "3", "AUTH", "default", &checker]).contains("proto 3"));
    assert_eq!(client.ask(&ASK), "0 1 0 -1 3600");
}

#[test]
fn tenants_with_equal_keys_share_nothing() {
    let server = Server::start(Setup::locked());
    for tenant in ["acme", "globex"] {
        Call::post("/admin/tenants", json!({"id": tenant, "name": tenant}))
            .admin()
            .to(server.tidegate.addr())
            .expect(201);
    }
    for tenant in ["acme", "globex"] {
        let (_, key) = key(&server, tenant, json!({"name": "asks", "scopes": ["limits:check"]}));
        let mut client = server.client();
        // Of an API key the tenant is its own, whatever the user name says.
        assert_eq!(client.ask(&["AUTH", "globex", &key]), "OK");
        assert_eq!(client.ask(&ASK), "0 1 0 -1 3600", "{tenant}");
        assert_eq!(client.ask(&ASK), "1 1 0 3600 3600", "{tenant}");
    }
    let mut admin = server.client();
    assert_eq!(admin.ask(&["AUTH", "acme", ADMIN_KEY]), "OK");
    assert_eq!(admin.ask(&ASK), "1 1 0 3600 3600", "the admin key acts for the tenant it names");
    assert_eq!(admin.ask(&["AUTH", ADMIN_KEY]), "OK");
    assert_eq!(admin.ask(&ASK), "0 1 0 -1 3600");
    assert!(admin.ask(&["AUTH", "nobody", ADMIN_KEY]).starts_with("-WRONGPASS there is no tenant"));
}

#[test]
fn a_revoked_key_ends_on_a_connection_that_is_open() {
    let server = Server::start(Setup::locked());
    let (id, key) = key(&server, "default", json!({"name": "lost", "scopes": ["limits:check"]}));
    let mut client = server.client();
    assert_eq!(client.ask(&["AUTH", &key]), "OK");
    assert_eq!(client.ask(&ASK), "0 1 0 -1 3600");
    Call::new("DELETE", &format!("/admin/tenants/default/keys/{id}")).admin().to(server.tidegate.addr());
    wait_until(SOON, "the connection to notice", || client.ask(&ASK).starts_with("-NOAUTH"));
}
