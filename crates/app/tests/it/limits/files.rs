//! Rules in files: followed within a second however they change; a wrong one keeps the old rules and says why.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::wait_until;

use super::{call, with_rules};
use crate::support::{SOON, Setup, Tidegate};

fn rules(limit: u64) -> String {
    format!("[[rule]]\nkey = \"*\"\nlimit = {limit}\nwindow = \"1s\"\n")
}

fn limit(tidegate: &Tidegate) -> u64 {
    call(tidegate.addr(), "/v1/limits/peek", json!({"key": "k"})).expect(200)["limit"].as_u64().unwrap()
}

/// Makes a change three times, to three limits, and waits until each is followed: within a second, but for a machine that
/// stands still. Each begins when the last was noticed, so none is quick because it came just before the next look.
#[track_caller]
fn follows(tidegate: &Tidegate, limits: [u64; 3], change: impl Fn(u64)) {
    let mut took = limits.map(|wanted| {
        change(wanted);
        let began = Instant::now();
        wait_until(SOON, "the file to be followed", || limit(tidegate) == wanted);
        began.elapsed()
    });
    took.sort_unstable();
    assert!(took[1] < Duration::from_secs(1), "{took:?}");
}

fn refused(tidegate: &Tidegate, setting: &str) -> bool {
    tidegate.metric(&format!("tidegate_limits_rules_refused{{setting=\"{setting}\"}}")) == Some(1.0)
}

#[test]
fn a_rules_file_is_followed_when_written_renamed_over_or_swapped_behind_a_link() {
    let setup = Setup::serve();
    let folder = setup.folder().to_owned();
    for limit in 1..=4 {
        let version = folder.join(format!("v{limit}"));
        fs::create_dir(&version).unwrap();
        fs::write(version.join("rules.toml"), rules(limit)).unwrap();
    }
    symlink("v1", folder.join("current")).unwrap();
    let tidegate = setup.env("TIDEGATE__LIMITS__RULES_FILE", "current/rules.toml").start();
    assert_eq!(limit(&tidegate), 1);
    // As Kubernetes does: a new link, renamed over the old one.
    follows(&tidegate, [2, 3, 4], |limit| {
        symlink(format!("v{limit}"), folder.join("next")).unwrap();
        fs::rename(folder.join("next"), folder.join("current")).unwrap();
    });
    follows(&tidegate, [5, 6, 7], |limit| fs::write(folder.join("v4/rules.toml"), rules(limit)).unwrap());
    follows(&tidegate, [8, 9, 10], |limit| {
        fs::write(folder.join("v4/new.toml"), rules(limit)).unwrap();
        fs::rename(folder.join("v4/new.toml"), folder.join("v4/rules.toml")).unwrap();
    });
}

#[test]
fn a_bad_file_keeps_the_old_rules_and_says_once_where_it_is_wrong() {
    let tidegate = with_rules(&rules(7));
    let file = tidegate.data_dir().parent().unwrap().join("rules.toml");
    fs::write(
        &file,
        "[[rule]]\nkey = \"*\"\nlimit = 1\nwindow = \"1s\"\n\n[[rule]]\nkey = \"a\"\nlimit = 0\nwindow = \"1s\"\n",
    )
    .unwrap();
    wait_until(SOON, "the metric to say so", || refused(&tidegate, "limits.rules_file"));
    assert_eq!(limit(&tidegate), 7);
    let said = "rules.toml line 6: limit: limit must be at least 1";
    wait_until(SOON, "the log to say so", || tidegate.output().contains(said));
    fs::write(&file, rules(8)).unwrap();
    wait_until(SOON, "the file to be followed", || limit(&tidegate) == 8);
    assert!(!refused(&tidegate, "limits.rules_file"));
    assert_eq!(tidegate.output().matches(said).count(), 1, "{}", tidegate.output());
}

/// Who writes a file in place may truncate it first: for a moment there was no limit at all.
#[test]
fn an_emptied_file_keeps_the_old_rules_until_somebody_says_that_none_are_meant() {
    let tidegate = with_rules(&rules(7));
    let file = tidegate.data_dir().parent().unwrap().join("rules.toml");
    for (times, empty) in [(1, ""), (2, " \n\n")] {
        fs::write(&file, empty).unwrap();
        let said = "rules.toml is empty: if no rules are meant, write `rule = []`";
        wait_until(SOON, "the log to say so", || tidegate.output().matches(said).count() == times);
        assert!(refused(&tidegate, "limits.rules_file"));
        assert_eq!(limit(&tidegate), 7);
    }
    for none in ["rule = []\n", "# None.\n"] {
        fs::write(&file, none).unwrap();
        let peek = || call(tidegate.addr(), "/v1/limits/peek", json!({"key": "k"})).status;
        wait_until(SOON, "the rules to be gone", || peek() == 404);
        assert!(!refused(&tidegate, "limits.rules_file"));
        fs::write(&file, rules(7)).unwrap();
        wait_until(SOON, "the rules to be back", || peek() == 200);
    }
}

#[test]
fn a_bad_file_at_the_start_is_an_exit_code_and_the_same_sentence() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        (
            "RULES",
            "r.toml",
            "[[rule]]\nkey = \"a\"\nlimit = 1\nwindow = \"1s\"\nbrust = 3\n",
            &["limits.rules_file", "r.toml", "line 5", "brust"],
        ),
        ("RULES", "r.toml", "[[rule]]\nkey = \"\"\nlimit = 1\nwindow = \"1s\"\n", &["r.toml", "line 1", "key"]),
        ("RULES", "r.toml", "[[rule\n", &["r.toml", "line 1"]),
        (
            "RULES",
            "r.toml",
            "[[rule]]\nid = \"x\"\nkey = \"a\"\nlimit = 1\nwindow = \"1s\"\n[[rule]]\nid = \"x\"\nkey = \"b\"\nlimit = 1\nwindow = \"1s\"\n",
            &["r.toml", "line 6", "id", "\"x\"", "line 1"],
        ),
        (
            "ENVOY",
            "e.yaml",
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: blink, requests_per_unit: 1}\n",
            &["limits.envoy_file", "e.yaml", "line 4", "unit", "blink"],
        ),
        ("ENVOY", "e.yaml", "domain: d\ndescriptors: [\n", &["limits.envoy_file", "e.yaml", "line"]),
        ("ENVOY", "e.yaml", "domain: d\nunknown: 1\n", &["limits.envoy_file", "e.yaml", "unknown"]),
    ];
    for (kind, name, text, says) in cases {
        let variable = format!("TIDEGATE__LIMITS__{kind}_FILE");
        let ended = Setup::serve().file(name, text).env(&variable, name).run();
        assert_eq!(ended.code, Some(2), "{}", ended.output);
        for part in *says {
            assert!(ended.output.contains(part), "{part:?} is missing in {}", ended.output);
        }
    }
    let missing = Setup::serve().env("TIDEGATE__LIMITS__RULES_FILE", "none.toml").run();
    assert_eq!(missing.code, Some(2), "{}", missing.output);
    assert!(missing.output.contains("none.toml"), "{}", missing.output);
}

#[test]
fn a_folder_of_envoys_files_is_followed_and_two_files_of_one_domain_are_refused() {
    let setup = Setup::serve();
    let folder = setup.folder().join("envoy");
    fs::create_dir(&folder).unwrap();
    let domain = |name: &str| {
        format!("domain: {name}\ndescriptors:\n  - key: a\n    rate_limit: {{unit: second, requests_per_unit: 1}}\n")
    };
    let write = |folder: &Path, name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write(&folder, "one.yaml", domain("one"));
    write(&folder, "readme.txt", "not YAML: [".to_owned());
    let tidegate = setup.env("TIDEGATE__LIMITS__ENVOY_FILE", "envoy").start();
    write(&folder, "two.yml", domain("one"));
    wait_until(SOON, "the second to be refused", || refused(&tidegate, "limits.envoy_file"));
    assert!(tidegate.output().contains("two.yml"), "{}", tidegate.output());
    write(&folder, "two.yml", domain("two"));
    wait_until(SOON, "it to be taken", || !refused(&tidegate, "limits.envoy_file"));
}

/// A volume that is not mounted is an empty folder: every limit was off, without a word.
#[test]
fn an_emptied_folder_keeps_the_old_limits_and_is_refused_at_the_start() {
    let setup = Setup::serve();
    let (folder, text) = (setup.folder().join("envoy"), "domain: edge\n");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("one.yaml"), text).unwrap();
    let tidegate = setup.env("TIDEGATE__LIMITS__ENVOY_FILE", "envoy").start();
    fs::rename(folder.join("one.yaml"), folder.join("one.away")).unwrap();
    wait_until(SOON, "it to be refused", || refused(&tidegate, "limits.envoy_file"));
    let said = "envoy has no file that ends in .yaml or .yml";
    wait_until(SOON, "the log to say so", || tidegate.output().contains(said));
    assert!(!tidegate.output().contains("The rules were read again."), "{}", tidegate.output());
    fs::rename(folder.join("one.away"), folder.join("one.yaml")).unwrap();
    wait_until(SOON, "it to be taken", || !refused(&tidegate, "limits.envoy_file"));

    for (kind, says) in [("ENVOY", said), ("RULES", "rules is a folder: name a file")] {
        let setup = Setup::serve();
        fs::create_dir(setup.folder().join(kind.to_lowercase())).unwrap();
        fs::write(setup.folder().join(kind.to_lowercase()).join("rules.toml"), rules(1)).unwrap();
        let ended = setup.env(&format!("TIDEGATE__LIMITS__{kind}_FILE"), &kind.to_lowercase()).run();
        assert_eq!(ended.code, Some(2), "{}", ended.output);
        assert!(ended.output.contains(says), "{}", ended.output);
    }
}
