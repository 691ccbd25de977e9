//! The architecture, checked by a machine. Needs no server and no build of anything else.
//!
//! Every rule says its reason where it fails. A rule that is in the way is changed here, in the open, not worked around.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise, and its helpers are part of it")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Who may see whom: app -> roles -> tenancy, gate, platform. `testkit` is for tests only, so it stands in no list.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("tidegate", &["dashboard", "dispatch", "gate", "gateway", "limits", "platform", "tenancy"]),
    ("dashboard", &["gate", "platform", "tenancy"]),
    ("dispatch", &["gate", "platform", "tenancy"]),
    ("gateway", &["gate", "platform", "tenancy"]),
    ("limits", &["gate", "platform", "tenancy"]),
    ("tenancy", &["platform"]),
    ("platform", &[]),
    ("gate", &[]),
    ("testkit", &[]),
];

/// Clients that belong to one crate, so that its rules are the only way to their server. `testkit` tests with both.
const CLIENTS: &[(&str, &str)] = &[("redis", "gate"), ("rdkafka", "dispatch")];

/// Where PostgreSQL is told that something is due; named as a metric might be.
const CHANNEL: &str = "tidegate_due";

const HEADER_LINES: usize = 12;
const FILE_LINES: usize = 500;

#[test]
fn every_source_file_starts_with_a_short_header() {
    check(
        "the header says what the file is for and what always holds, so that the layout reads like a map",
        |faults| {
            for file in files("rs") {
                let text = fs::read_to_string(&file).unwrap();
                match header_lines(&text) {
                    0 => faults.push(format!("{}: does not start with `//!`", name(&file))),
                    1..=HEADER_LINES => (),
                    lines => {
                        faults.push(format!("{}: its header has {lines} lines, more than {HEADER_LINES}", name(&file)))
                    }
                }
            }
        },
    );
}

#[test]
fn no_source_file_holds_two_ideas() {
    check("a file over 500 lines holds a second idea that wants a name and a file of its own", |faults| {
        for file in files("rs").iter().filter(|file| !is_test(file)) {
            let lines = fs::read_to_string(file).unwrap().lines().count();
            if lines > FILE_LINES {
                faults.push(format!("{}: {lines} lines", name(file)));
            }
        }
    });
}

#[test]
fn crates_see_only_what_stands_below_them() {
    check("app -> roles -> tenancy, gate, platform: what is absent from a crate cannot be broken by it", |faults| {
        let packages = packages();
        for (package, dependencies) in &packages {
            let Some((_, allowed)) = DIRECTIONS.iter().find(|(name, _)| name == package) else {
                faults.push(format!("{package}: give it a line in DIRECTIONS"));
                continue;
            };
            for (dependency, is_dev) in
                dependencies.iter().filter(|(name, _)| packages.iter().any(|(ours, _)| ours == name))
            {
                let is_for_tests = *is_dev && dependency == "testkit";
                if !is_for_tests && !allowed.contains(&dependency.as_str()) {
                    faults.push(format!("{package} must not depend on {dependency}"));
                }
            }
        }
    });
}

#[test]
fn every_client_stays_in_its_crate() {
    check(
        "one crate knows Redis and one knows Kafka, so deadlines and fallbacks cannot be forgotten elsewhere",
        |faults| {
            for (package, dependencies) in packages() {
                for (client, owner) in CLIENTS {
                    let is_allowed = |is_dev: bool| package == *owner || (package == "testkit" && is_dev);
                    if dependencies.iter().any(|(name, is_dev)| name == client && !is_allowed(*is_dev)) {
                        faults.push(format!("{package} must not depend on {client}: that is {owner}'s"));
                    }
                }
            }
        },
    );
}

#[test]
fn every_script_and_query_is_used() {
    check("a .lua or .sql file that no code includes is dead, and nobody notices when it rots", |faults| {
        let included = included();
        for file in [files("lua"), files("sql")].concat() {
            if !included.contains(&file) {
                faults.push(format!("{}: no .rs file includes it", name(&file)));
            }
        }
    });
}

#[test]
fn every_setting_is_explained() {
    check("config/default.toml is the reference of all settings: a key without a comment is a riddle", |faults| {
        let text = fs::read_to_string(root().join("config/default.toml")).unwrap();
        let mut before = "";
        for line in text.lines() {
            let is_key = line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" = ");
            if is_key && !line.contains(" # ") && !before.starts_with('#') {
                faults.push(line.to_owned());
            }
            before = line;
        }
    });
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    check(
        "a crate outside the workspace's lints is a crate outside its rules, `unsafe_code = \"forbid\"` among them",
        |faults| {
            let workspace = manifest(&root());
            if workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str() != Some("forbid") {
                faults.push("Cargo.toml: [workspace.lints.rust] must say unsafe_code = \"forbid\"".to_owned());
            }
            for folder in crates() {
                let manifest = manifest(&folder);
                if manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool)
                    != Some(true)
                {
                    faults.push(format!("{}/Cargo.toml: write `[lints] workspace = true`", name(&folder)));
                }
            }
        },
    );
}

#[test]
fn every_dependency_is_chosen_on_purpose() {
    check("docs/dependencies.md says of every dependency why this one, and what was rejected", |faults| {
        let table = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
        let first_cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let chosen: BTreeSet<&str> = first_cells.flat_map(|cell| cell.split(", ")).collect();
        let workspace = manifest(&root());
        let dependencies = workspace["workspace"]["dependencies"].as_table().unwrap();
        for (name, _) in dependencies.iter().filter(|(_, entry)| entry.get("path").is_none()) {
            if !chosen.contains(name.as_str()) {
                faults.push(format!("{name} has no line there"));
            }
        }
    });
}

#[test]
fn every_metric_is_in_the_guides_and_no_other() {
    let is_metric = |name: &str| {
        ["tidegate_", "redis_", "gate_"].iter().any(|ours| name.starts_with(ours))
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut metrics = BTreeSet::new();
    for file in files("rs").iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(file).unwrap();
        let constants = text.lines().filter_map(|line| line.split_once(": &str = \"")?.1.split('"').next());
        metrics.extend(constants.filter(|name| is_metric(name) && *name != CHANNEL).map(str::to_owned));
    }
    let guides = ["dispatch", "limits", "gates"].map(|guide| format!("docs/{guide}.md"));
    let guides = guides.map(|guide| fs::read_to_string(root().join(guide)).unwrap()).concat();
    let words: BTreeSet<String> =
        guides.split('`').skip(1).step_by(2).map(|word| word.split('{').next().unwrap().to_owned()).collect();
    check("a metric that no guide names is watched by nobody, and one that is gone is waited for in vain", |faults| {
        faults.extend(metrics.difference(&words).map(|name| format!("{name} is in no guide under docs/")));
        let gone = words.iter().filter(|word| is_metric(word) && !metrics.contains(*word));
        faults.extend(gone.map(|name| format!("docs/ tells of {name}, and no code does")));
    });
}

#[test]
fn nothing_names_a_folder_of_somebodys_machine() {
    // Put together here, or this file would accuse itself.
    let personal = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    check("a path of one machine breaks on every other", |faults| {
        for file in tracked() {
            let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
            for (number, line) in text.lines().enumerate() {
                let is_absolute =
                    |place: usize| !line[..place].ends_with(|c: char| c.is_alphanumeric() || "._-~})".contains(c));
                if personal
                    .iter()
                    .any(|folder| line.match_indices(folder.as_str()).any(|(place, _)| is_absolute(place)))
                {
                    faults.push(format!("{file}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    });
}

#[test]
fn every_test_with_a_long_form_is_soaked() {
    check("`make soak` runs what its filters name: a long form outside them never runs", |faults| {
        let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
        let (_, rest) = makefile.split_once("$(or $(ARGS),").unwrap();
        let filters: Vec<&str> = rest.split(')').next().unwrap().split(' ').collect();
        let tests = root().join("crates/app/tests/it");
        for file in files("rs").iter().filter(|file| file.starts_with(&tests) && !file.ends_with("support/mod.rs")) {
            let text = fs::read_to_string(file).unwrap();
            let is_call = |place: usize| !text[..place].ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c));
            let path = file.strip_prefix(&tests).unwrap().with_extension("");
            let parts = path.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod");
            let module = parts.collect::<Vec<&str>>().join("::");
            // What stands above a module that is soaked helps it.
            let is_soaked = |filter: &&str| module.starts_with(*filter) || filter.starts_with(module.as_str());
            if text.match_indices("size(").any(|(place, _)| is_call(place)) && !filters.iter().any(is_soaked) {
                faults.push(format!("{}: name {module} in the Makefile's soak", name(file)));
            }
        }
    });
}

/// Collects every fault before it fails, so that one run shows all there is to mend.
fn check(reason: &str, find: impl FnOnce(&mut Vec<String>)) {
    let mut faults = Vec::new();
    find(&mut faults);
    assert!(faults.is_empty(), "{reason}:\n  {}\n", faults.join("\n  "));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn crates() -> Vec<PathBuf> {
    fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect()
}

fn manifest(folder: &Path) -> toml::Table {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// All files under crates/ with this extension, in the order of their names.
fn files(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = crates();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of prose at the top: tables are maps and grow with their folder, examples are tests.
fn header_lines(text: &str) -> usize {
    let mut is_example = false;
    let is_prose = |line: &&str| {
        let is_fence = line.starts_with("//! ```");
        is_example ^= is_fence;
        !is_fence && !is_example && !line.starts_with("//! |")
    };
    text.lines().take_while(|line| line.starts_with("//!")).filter(is_prose).count()
}

fn is_test(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests")
}

/// The scripts and queries that code names: `"check.lua"` beside it, `"/src/check.lua"` in its crate, `query!("find_key")`.
fn included() -> BTreeSet<PathBuf> {
    let mut included = BTreeSet::new();
    for file in files("rs") {
        let text = fs::read_to_string(&file).unwrap();
        let folder = file.parent().unwrap();
        let home = crates().into_iter().find(|home| file.starts_with(home)).unwrap();
        let mut add = |path: String| match path.strip_prefix('/') {
            Some(path) => included.extend(home.join(path).canonicalize()),
            None => included.extend(folder.join(path).canonicalize()),
        };
        for ending in [".lua", ".sql"] {
            let pieces: Vec<&str> = text.split(&format!("{ending}\"")).collect();
            for before in &pieces[..pieces.len() - 1] {
                add(format!("{}{ending}", before.rsplit('"').next().unwrap()));
            }
        }
        for query in text.split("query!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            add(format!("sqlite/{query}.sql"));
            add(format!("postgres/{query}.sql"));
        }
    }
    included
}

/// Every crate of ours with its dependencies, and whether each is for tests only.
fn packages() -> Vec<(String, Vec<(String, bool)>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            (text(&package["name"]), dependencies.map(|found| (text(&found["name"]), found["kind"] == "dev")).collect())
        })
        .collect()
}

fn tracked() -> Vec<String> {
    let output = Command::new("git").args(["-c", "safe.directory=*", "ls-files"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
