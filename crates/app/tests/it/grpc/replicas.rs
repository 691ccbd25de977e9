//! Replicas on one Redis: one limit for all of them, exactly.

use std::thread;

use serde_json::json;
use testkit::need;

use super::{Client, descriptor, envoy};
use crate::support::{Setup, Tidegate};

#[test]
fn three_replicas_admit_together_exactly_the_limit() {
    let redis = need!(testkit::redis());
    // What a replica decided alone because this machine is busy would be no decision of the fleet's.
    let setup = || Setup::serve().env("REDIS_URL", &redis.url()).env("TIDEGATE__REDIS__DEADLINE", "5s");
    let start = |_| envoy(setup().env("TIDEGATE__REDIS__PREFIX", redis.prefix()));
    let replicas: Vec<Tidegate> = (0..3).map(start).collect();
    let clients: Result<Vec<Client>, _> = replicas.iter().map(|replica| Client::connect(replica.grpc_addr())).collect();
    let clients = need!(clients);
    let admitted: usize = thread::scope(|scope| {
        let asking: Vec<_> = clients
            .into_iter()
            .map(|client| {
                scope.spawn(move || {
                    let mut own = descriptor("shared", "x");
                    own["limit"] = json!({"requests_per_unit": 100, "unit": "YEAR"});
                    let ask = json!({"domain": "edge", "descriptors": [own]});
                    (0..60).filter(|_| client.rate_limit(ask.clone())["overall_code"] == "OK").count()
                })
            })
            .collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}
