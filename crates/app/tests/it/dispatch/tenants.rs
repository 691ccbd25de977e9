//! The end of a tenant: nothing more is sent for it, and what it left behind is nobody else's.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::receiver::{Answer, Receiver};

use super::{LATER, replica};
use crate::support::{Backend, Call, Response, each_backend};

each_backend! {
    a_deleted_tenant_is_called_no_more_and_its_id_is_not_given_out_again
}

fn post(addr: SocketAddr, tenant: &str, path: &str, body: Value) -> Response {
    Call::post(path, body).header("x-tenant", tenant).to(addr)
}

/// Two receivers that fail; the first one's tenant is deleted before its retry is due, which is long before the second's.
fn a_deleted_tenant_is_called_no_more_and_its_id_is_not_given_out_again(backend: &Backend) {
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let [left, stays] = [("left", "2s"), ("stays", "5s")].map(|(tenant, wait)| {
        let receiver = Receiver::start();
        receiver.set(Answer::Status(500));
        Call::post("/admin/tenants", json!({"id": tenant, "name": tenant})).to(addr).expect(201);
        let settings = json!({"url": receiver.url("/"), "event_types": ["**"], "retry_schedule": [wait]});
        post(addr, tenant, "/v1/subscriptions", settings).expect(201);
        post(addr, tenant, "/v1/events", json!({"id": "one", "type": "a.b", "data": {}})).expect(202);
        receiver.received_blocking(1, LATER);
        receiver
    });
    post(addr, "left", "/v1/limits/rules", json!({"id": "r", "key": "a", "limit": 1, "window": "1s"})).expect(201);
    assert_eq!(Call::new("DELETE", "/admin/tenants/left").to(addr).status, 204);

    stays.received_blocking(2, LATER);
    assert_eq!(left.count(), 1, "a delivery of a deleted tenant went on");
    for path in ["/v1/events/one", "/v1/subscriptions", "/v1/limits/rules"] {
        Call::get(path).header("x-tenant", "left").to(addr).expect_problem(404, "not_found");
    }
    let again = Call::post("/admin/tenants", json!({"id": "left", "name": "Another"})).to(addr);
    assert_eq!(again.expect_problem(409, "tenant_deleted")["field"], "id");
    let taken = Call::post("/admin/tenants", json!({"id": "stays", "name": "Another"})).to(addr);
    taken.expect_problem(409, "tenant_exists");
}
