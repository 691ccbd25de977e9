//! The commands beside `serve`: what they print, and that their help teaches.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::support::{Call, Setup};

#[test]
fn config_check_says_good_or_names_the_mistake() {
    let ended = Setup::command(&["config", "check"]).run().succeeded();
    assert_eq!(ended.stdout, "The configuration is good.\n");
    assert!(!ended.folder().join("data").exists());
    let ended = Setup::command(&["config", "check"]).env("DRAIN_TIMEOUT", "soon").run();
    assert_eq!(ended.code, Some(2), "{}", ended.output);
    assert!(ended.output.contains("DRAIN_TIMEOUT"), "{}", ended.output);
}

#[test]
fn config_print_shows_what_won_and_where_it_was_set() {
    let file =
        "[server]\naddr = \"127.0.0.1:1\"\nops_addr = \"127.0.0.1:2\"\nmax_body = \"2MiB\"\n[kafka]\ntopic = \"file\"";
    let printed = Setup::command(&["config", "print", "--config", "my.toml", "--data-dir", "flag"])
        .file("my.toml", file)
        .env("ADDR", "127.0.0.1:3")
        .env("TIDEGATE__SERVER__MAX_BODY", "3MiB")
        .env("TIDEGATE__KAFKA__TOPIC", "long")
        .env("KAFKA_TOPIC", "short")
        .env("REDIS_URL", "")
        .run()
        .succeeded()
        .stdout;
    for line in [
        "addr = \"127.0.0.1:3\"  # environment variable ADDR",
        "ops_addr = \"127.0.0.1:2\"  # server.ops_addr in my.toml",
        "max_body = \"3MiB\"  # environment variable TIDEGATE__SERVER__MAX_BODY",
        "data_dir = \"flag\"  # flag --data-dir",
        "topic = \"short\"  # environment variable KAFKA_TOPIC",
        "drain_timeout = \"30s\"",
        "url = \"\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is missing in {printed}");
    }
}

#[test]
fn config_print_hides_every_secret() {
    let secrets = [
        ("TIDEGATE_ADMIN_KEY", "canary-admin"),
        ("TIDEGATE_MASTER_KEY", "canary-master"),
        ("DATABASE_URL", "postgres://u:canary-db@h/d"),
        ("REDIS_URL", "redis://:canary-redis@h/"),
    ];
    let setup =
        secrets.into_iter().fold(Setup::command(&["config", "print"]), |setup, (name, value)| setup.env(name, value));
    let ended = setup.run().succeeded();
    assert!(!ended.output.contains("canary"), "{}", ended.output);
    assert_eq!(ended.stdout.matches("\"***\"").count(), secrets.len(), "{}", ended.stdout);
}

#[test]
fn what_config_print_prints_is_a_file_that_works() {
    let printed = Setup::command(&["config", "print"]).run().succeeded().stdout;
    let check = Setup::command(&["config", "check", "--config", "printed.toml"]).file("printed.toml", &printed);
    check.run().succeeded();
}

/// `--config <(…)`: whoever opens a pipe a second time finds nothing in it.
#[test]
fn serve_takes_its_configuration_from_a_pipe() {
    let setup = Setup::serve().arg("--config").arg("pipe");
    let pipe = setup.folder().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    thread::spawn(move || fs::write(pipe, "[server]\nmax_body = \"2MiB\"\n"));
    setup.start();
}

#[test]
fn the_openapi_document_holds_exactly_what_is_served() {
    let printed: Value = serde_json::from_str(&Setup::command(&["openapi"]).run().succeeded().stdout).unwrap();
    let tidegate = Setup::serve().start();
    assert_eq!(tidegate.get("/openapi.json").expect(200), printed);
    let mut operations = BTreeSet::new();
    for (path, methods) in printed["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            operations.insert(format!("{} {path}", method.to_uppercase()));
            let concrete = path.replace("{tenant}", "nobody").replace("{key}", "nobody");
            let response = Call::new(&method.to_uppercase(), &concrete).to(tidegate.addr());
            assert!(
                response.status != 405 && !response.body.contains("unknown_route"),
                "{method} {path}: {response:?}"
            );
        }
    }
    let known = [
        "DELETE /admin/tenants/{tenant}",
        "DELETE /admin/tenants/{tenant}/keys/{key}",
        "GET /admin/audit",
        "GET /admin/tenants",
        "GET /admin/tenants/{tenant}",
        "GET /admin/tenants/{tenant}/keys",
        "GET /health/live",
        "GET /health/ready",
        "GET /v1/me",
        "PATCH /admin/tenants/{tenant}",
        "POST /admin/tenants",
        "POST /admin/tenants/{tenant}/keys",
        "POST /admin/tenants/{tenant}/keys/{key}/rotate",
    ];
    for operation in known {
        assert!(operations.contains(operation), "{operation} is missing in {operations:?}");
    }
}

#[test]
fn every_reference_in_the_openapi_document_leads_somewhere() {
    let text = Setup::command(&["openapi"]).run().succeeded().stdout;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    for reference in text.split("\"$ref\": \"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Setup::command(&["completions", shell]).run().succeeded().stdout;
        assert!(script.contains("tidegate") && script.contains("serve"), "{shell}: {script}");
    }
    let setup = Setup::command(&["completions", "bash"]);
    let ended = setup.run().succeeded();
    let checked = Command::new("bash").arg("-n").arg(ended.folder().join("stdout")).status().unwrap();
    assert!(checked.success());
}

#[test]
fn the_version_is_the_crates() {
    let ended = Setup::command(&["--version"]).run().succeeded();
    assert_eq!(ended.stdout, concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_help_of_every_command_explains_it() {
    let mut commands = vec![Vec::new()];
    let mut leaves = 0;
    while let Some(command) = commands.pop() {
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = Setup::command(&args).run().succeeded().stdout;
        assert!(help.contains("Usage: tidegate"), "{help}");
        let sentence = help.lines().next().unwrap_or_default();
        assert!(sentence.split(' ').count() >= 2 && !sentence.starts_with("Usage"), "{command:?}: {help}");
        let below = help.split_once("\nCommands:\n").map_or("", |(_, list)| list.split("\n\n").next().unwrap());
        // A line that begins further to the right goes on with what was said.
        let own = below.lines().filter(|line| !line.starts_with("   "));
        let names = own.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        let before = commands.len();
        commands.extend(names.map(|name| [command.as_slice(), &[name.to_owned()]].concat()));
        leaves += usize::from(commands.len() == before);
    }
    assert!(leaves >= 10, "{leaves}");
    for command in
        [&[][..], &["serve"], &["migrate"], &["keys", "create"], &["sink"], &["produce"], &["tail"], &["completions"]]
    {
        let help = Setup::command(&[command, &["--help"]].concat()).run().succeeded().stdout;
        assert!(help.contains("Examples:") || help.contains("Try it:"), "{command:?}: {help}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("openapi")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
