//! A subscription to Tidegate itself would send its events round in circles: no listener of its own is ever called.

use serde_json::json;

use super::{attempts, deliveries, replica, send, subscribe, wait_until_ended};
use crate::support::{Backend, Call, Port};

#[test]
fn dev_mode_calls_loopback_and_never_itself() {
    let resp = Port::reserve().addr();
    let tidegate = replica(&Backend::Sqlite).env("RESP_ADDR", &resp.to_string()).start();
    let addr = tidegate.addr();
    let listeners = [addr, tidegate.ops_addr(), tidegate.grpc_addr(), resp];
    for host in ["127.0.0.1", "localhost"] {
        for listener in listeners {
            let url = format!("http://{host}:{}/v1/events", listener.port());
            subscribe(addr, &url, json!({"retry_schedule": []}));
        }
    }
    send(addr, json!({"id": "round", "type": "a.b", "data": {}}));
    wait_until_ended(addr);
    let all = deliveries(addr, "");
    assert_eq!(all.len(), 2 * listeners.len());
    for delivery in all {
        let error = &attempts(addr, &delivery)[0]["error"];
        assert_eq!((&delivery["status"], &error["class"]), (&json!("failed"), &json!("refused")), "{error}");
        assert!(error["sentence"].as_str().unwrap().contains("Tidegate's own"), "{error}");
    }
    let events = Call::get("/v1/events").to(addr).expect(200);
    assert_eq!(events["data"].as_array().unwrap().len(), 1, "{events}");
}
