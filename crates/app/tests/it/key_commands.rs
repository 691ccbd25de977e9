//! `tidegate keys` beside a running server, which notices within a second.

use std::time::{Duration, Instant};

use testkit::wait_until;

use crate::support::{Backend, Call, SOON, Tidegate, each_backend};

each_backend! {
    keys_made_and_ended_by_command_are_noticed
    a_list_tells_what_state_a_key_is_in
    mistakes_are_one_sentence
}

fn status(tidegate: &Tidegate, key: &str) -> u16 {
    Call::get("/v1/me").key(key).to(tidegate.addr()).status
}

/// The id that `keys list` shows beside a key's first characters.
fn id_of(tidegate: &Tidegate, key: &str) -> String {
    let list = tidegate.command(&["keys", "list"]).run().succeeded().stdout;
    let line = list.lines().find(|line| line.contains(&key[..10])).unwrap_or_else(|| panic!("{list}"));
    line.split(' ').next().unwrap().to_owned()
}

fn keys_made_and_ended_by_command_are_noticed(backend: &Backend) {
    let tidegate = backend.locked().start();
    let create = ["keys", "create", "--name", "by hand", "--role", "viewer", "--expires-in", "90d"];
    let made = tidegate.command(&create).run().succeeded();
    let key = made.stdout.trim();
    assert_eq!(made.stdout, format!("{key}\n"), "the key alone goes to the pipe");
    assert!(made.output.contains("shown this once"), "{}", made.output);
    assert_eq!(status(&tidegate, key), 200);

    let id = id_of(&tidegate, key);
    let list = tidegate.command(&["keys", "list"]).run().succeeded().stdout;
    assert!(list.contains("by hand") && list.contains("live") && !list.contains(key), "{list}");

    let rotated = tidegate.command(&["keys", "rotate", &id, "--grace", "1h"]).run().succeeded();
    let new_key = rotated.stdout.trim();
    assert_eq!((status(&tidegate, key), status(&tidegate, new_key)), (200, 200));

    tidegate.command(&["keys", "revoke", &id]).run().succeeded();
    let revoked = Instant::now();
    wait_until(SOON, "the revocation to be noticed", || status(&tidegate, key) == 401);
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    assert_eq!(status(&tidegate, new_key), 200);

    let audit = Call::get("/admin/audit").admin().to(tidegate.addr()).expect(200);
    let by_hand = audit["data"].as_array().unwrap().iter().filter(|entry| entry["actor"] == "cli");
    let actions: Vec<&str> = by_hand.map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key.revoked", "key.rotated", "key.created"]);
}

fn a_list_tells_what_state_a_key_is_in(backend: &Backend) {
    let tidegate = backend.locked().start();
    let key = |args: &[&str]| tidegate.command(args).run().succeeded().stdout.trim().to_owned();
    let make = |name: &str| key(&["keys", "create", "--name", name]);
    let [live, replaced, ended, revoked] = ["live", "replaced", "ended", "revoked"].map(make);
    key(&["keys", "rotate", &id_of(&tidegate, &replaced), "--grace", "1h"]);
    key(&["keys", "rotate", &id_of(&tidegate, &ended), "--grace", "0s"]);
    key(&["keys", "revoke", &id_of(&tidegate, &revoked)]);
    let expired = key(&["keys", "create", "--name", "expired", "--expires-in", "1ms"]);
    let list = tidegate.command(&["keys", "list"]).run().succeeded().stdout;
    let state = |key: &str| list.lines().find(|line| line.contains(&key[..10])).unwrap().split_whitespace().nth(2);
    let states = [live, replaced, ended, revoked, expired].map(|key| state(&key));
    assert_eq!(states, ["live", "replaced", "expired", "revoked", "expired"].map(Some), "{list}");
}

fn mistakes_are_one_sentence(backend: &Backend) {
    let tidegate = backend.locked().start();
    for (args, code, says) in [
        (&["keys", "create", "--name", "x", "--tenant", "nobody"][..], 1, "no tenant \"nobody\""),
        (&["keys", "create", "--name", "x", "--expires-in", "soon"], 2, "--expires-in"),
        (&["keys", "create", "--name", "x", "--expires-in", "0s"], 2, "--expires-in"),
        (&["keys", "create", "--name", ""], 2, "--name"),
        (&["keys", "create", "--name", "line\nbreak"], 2, "--name"),
        (&["keys", "rotate", "key_nobody"], 1, "no key \"key_nobody\""),
        (&["keys", "rotate", "key_nobody", "--grace", "1y"], 2, "--grace"),
        (&["keys", "revoke", "key_nobody"], 1, "no key \"key_nobody\""),
        (&["keys", "list", "--tenant", "nobody"], 1, "no tenant \"nobody\""),
    ] {
        let ended = tidegate.command(args).run();
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.output);
        assert!(ended.output.starts_with("tidegate: ") && ended.output.contains(says), "{args:?}: {}", ended.output);
        assert_eq!(ended.output.lines().count(), 1, "{}", ended.output);
    }
}
