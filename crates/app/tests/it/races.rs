//! Callers at the same moment: one wins, the others get a clear answer, and nobody gets a 500.

use std::{collections::BTreeMap, thread};

use serde_json::json;

use crate::support::{Backend, Call, SOON, Tidegate, each_backend};

each_backend! {
    of_ten_rotations_at_once_one_wins
    of_ten_tenants_with_one_id_one_is_made
    a_tenant_deleted_while_keys_are_made_is_a_404
    what_was_acknowledged_survives_a_kill
}

/// How often each status came back when all callers go at once.
fn at_once(tidegate: &Tidegate, calls: Vec<Call>) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    thread::scope(|scope| {
        let running: Vec<_> = calls.into_iter().map(|call| scope.spawn(|| call.to(tidegate.addr()).status)).collect();
        for call in running {
            *statuses.entry(call.join().unwrap()).or_default() += 1;
        }
    });
    statuses
}

fn of_ten_rotations_at_once_one_wins(backend: &Backend) {
    let tidegate = backend.locked().start();
    let create = Call::post("/admin/tenants/default/keys", json!({"name": "wanted"})).admin();
    let made = create.to(tidegate.addr()).expect(201);
    let path = format!("/admin/tenants/default/keys/{}/rotate", made["id"].as_str().unwrap());
    let statuses = at_once(&tidegate, vec![Call::post(&path, json!({})).admin(); 10]);
    assert_eq!(statuses, BTreeMap::from([(201, 1), (409, 9)]));
}

fn of_ten_tenants_with_one_id_one_is_made(backend: &Backend) {
    let tidegate = backend.locked().start();
    let create = Call::post("/admin/tenants", json!({"id": "wanted", "name": "Wanted"})).admin();
    assert_eq!(at_once(&tidegate, vec![create.clone(); 10]), BTreeMap::from([(201, 1), (409, 9)]));
    assert_eq!(create.to(tidegate.addr()).expect_problem(409, "tenant_exists")["field"], "id");
}

fn a_tenant_deleted_while_keys_are_made_is_a_404(backend: &Backend) {
    let tidegate = backend.locked().start();
    for round in 0..20 {
        let id = format!("short-lived-{round}");
        Call::post("/admin/tenants", json!({"id": id, "name": "x"})).admin().to(tidegate.addr()).expect(201);
        let create = Call::post(&format!("/admin/tenants/{id}/keys"), json!({"name": "x"})).admin();
        let mut calls = vec![create; 6];
        calls.insert(3, Call::new("DELETE", &format!("/admin/tenants/{id}")).admin());
        let statuses = at_once(&tidegate, calls);
        assert!(statuses.keys().all(|status| [201, 204, 404].contains(status)), "{statuses:?}: {}", tidegate.output());
    }
}

fn what_was_acknowledged_survives_a_kill(backend: &Backend) {
    let tidegate = backend.locked().start();
    let addr = tidegate.addr();
    let (acknowledged, setup) = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let create = |number: usize| {
                        let body = json!({"id": format!("t-{writer}-{number}"), "name": "x"});
                        Call::post("/admin/tenants", body).admin().try_to(addr)
                    };
                    let made = (0..).map_while(|number| create(number).ok().filter(|response| response.status == 201));
                    made.map(|response| response.json()["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
                })
            })
            .collect();
        testkit::wait_until(SOON, "some writes", || Call::get("/admin/tenants/t-0-20").admin().to(addr).status == 200);
        let setup = tidegate.kill();
        (writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>(), setup)
    });
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    let tidegate = setup.start();
    for id in acknowledged {
        Call::get(&format!("/admin/tenants/{id}")).admin().to(tidegate.addr()).expect(200);
    }
}
