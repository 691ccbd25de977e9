//! Bad configuration: an exit code, one sentence that names the key and the fix, and nothing half started.

use std::{fs, net::TcpListener};

use crate::support::{ADMIN_KEY, Ended, MASTER_KEY, Setup};

/// Stands where a password would; it must never be printed.
const PASSWORD: &str = "hunter2canary";

/// What every refusal has in common.
#[track_caller]
fn expect_refusal(ended: &Ended, code: i32, says: &[&str]) {
    let output = &ended.output;
    assert_eq!(ended.code, Some(code), "{output}");
    let lines: Vec<&str> = output.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(lines.len(), 1, "one sentence: {output}");
    assert!(lines[0].starts_with("tidegate: "), "{output}");
    for part in says {
        assert!(lines[0].contains(part), "{part:?} is missing in {output}");
    }
    for part in ["panicked", "backtrace", PASSWORD, ADMIN_KEY, MASTER_KEY] {
        assert!(!output.contains(part), "{part:?} is in {output}");
    }
    assert!(!ended.folder().join("data").exists(), "something was started: {output}");
}

#[test]
fn a_mistake_in_the_file_names_its_key_and_the_fix() {
    let secret_on_a_broken_line = format!("[security]\nadmin_key = \"{PASSWORD}\nmaster_key = \"\"");
    let cases: &[(&str, &[&str])] = &[
        ("[server]\nadrr = \"127.0.0.1:1\"", &["my.toml", "\"server.adrr\"", "did you mean \"server.addr\"?"]),
        ("[sevrer]\naddr = \"127.0.0.1:1\"", &["my.toml", "\"sevrer.addr\"", "did you mean \"server.addr\"?"]),
        ("addr = \"127.0.0.1:1\"", &["my.toml", "\"addr\""]),
        ("[quite.different]\nthing = 1", &["my.toml", "\"quite.different.thing\"", "tidegate config print"]),
        ("[extra]", &["my.toml", "\"extra\""]),
        ("[server]\nrequest_timeout = \"30 parsecs\"", &["server.request_timeout in my.toml", "\"30s\""]),
        ("[server]\nrequest_timeout = \"1ms\"", &["server.request_timeout in my.toml", "100ms", "1h"]),
        ("[server]\nmax_body = \"1MB\"", &["server.max_body in my.toml", "\"1MiB\""]),
        ("[server]\nmax_body = \"2GiB\"", &["server.max_body in my.toml", "64MiB"]),
        ("[server]\nmax_connections = \"many\"", &["server.max_connections", "expected an integer, got a string"]),
        ("[server]\nmax_connections = 0", &["server.max_connections in my.toml", "1 to 1000000"]),
        ("[server]\nmax_connections = -1", &["server.max_connections in my.toml"]),
        ("[server]\nroles = [\"api\", \"wroker\"]", &["server.roles in my.toml", "wroker", "worker"]),
        ("[server]\nroles = []", &["server.roles in my.toml", "api"]),
        ("[server]\nroles = [\"gateway\"]", &["server.roles in my.toml", "not in this version", "worker"]),
        ("[server]\nroles = [1]", &["server.roles in my.toml"]),
        ("[database]\npool_size = 1\nurl = \"postgres://h/d\"", &["database.pool_size in my.toml", "2 to 1000"]),
        ("[database]\nca_file = \"no.pem\"\nurl = \"postgres://h/d\"", &["database.ca_file in my.toml", "no.pem"]),
        ("[shutdown]\ntimeout = \"10s\"", &["shutdown.timeout in my.toml", "shutdown.drain_timeout (30s)"]),
        ("[telemetry]\nlog = \"info,tenancy=loud\"", &["telemetry.log in my.toml", "\"info\""]),
        ("[telemetry]\nlog_format = \"xml\"", &["telemetry.log_format in my.toml", "json", "pretty"]),
        ("[server\naddr = 1", &["my.toml", "not TOML", "line 1"]),
        (&secret_on_a_broken_line, &["my.toml", "not TOML", "line 2"]),
    ];
    for (text, says) in cases {
        let ended = Setup::serve().file("my.toml", text).arg("--config").arg("my.toml").run();
        expect_refusal(&ended, 2, says);
    }
}

#[test]
fn a_mistake_in_the_environment_names_its_variable_and_the_fix() {
    let mysql = format!("mysql://tide:{PASSWORD}@db/tide");
    let bad_port = format!("postgres://tide:{PASSWORD}@db:port/tide");
    let no_host = format!("postgres://tide:{PASSWORD}@/tide");
    let http_redis = format!("http://:{PASSWORD}@cache:6379");
    let slash_in_redis_password = format!("redis://tide:{PASSWORD}/x@cache:6379/");
    let cases: &[(&str, &str, &[&str])] = &[
        ("TIDEGATE__SERVER__MAX_BDOY", "1MiB", &["TIDEGATE__SERVER__MAX_BDOY", "did you mean \"server.max_body\"?"]),
        ("TIDEGATE__NOTHING", "1", &["TIDEGATE__NOTHING", "tidegate config print"]),
        ("TIDEGATE__SERVER__MAX_CONNECTIONS", "ten", &["TIDEGATE__SERVER__MAX_CONNECTIONS", "a whole number"]),
        ("DRAIN_TIMEOUT", "soon", &["DRAIN_TIMEOUT", "shutdown.drain_timeout", "\"30s\""]),
        ("SHUTDOWN_TIMEOUT", "1s", &["SHUTDOWN_TIMEOUT", "shutdown.timeout", "must be longer"]),
        ("ADDR", "8080", &["ADDR", "server.addr", "127.0.0.1:8080"]),
        ("DATABASE_URL", &mysql, &["DATABASE_URL", "database.url", "\"mysql\"", "postgres://"]),
        ("DATABASE_URL", PASSWORD, &["DATABASE_URL", "database.url", "postgres://"]),
        ("DATABASE_URL", &bad_port, &["DATABASE_URL", "database.url", "postgres://"]),
        ("DATABASE_URL", &no_host, &["DATABASE_URL", "database.url", "host"]),
        ("REDIS_URL", &http_redis, &["REDIS_URL", "redis.url", "redis://"]),
        ("REDIS_URL", "redis://cache:port/", &["REDIS_URL", "redis.url", "redis://"]),
        ("REDIS_URL", &slash_in_redis_password, &["REDIS_URL", "redis.url", "redis://"]),
        ("KAFKA_BROKERS", "kafka:9092,kafka:port", &["KAFKA_BROKERS", "kafka.brokers", "\"kafka:port\"", "host:9092"]),
        ("KAFKA_BROKERS", "kafka://kafka", &["KAFKA_BROKERS", "kafka.brokers", "host:9092"]),
        ("TIDEGATE_MASTER_KEY", PASSWORD, &["TIDEGATE_MASTER_KEY", "64 hex digits", "openssl rand -hex 32"]),
        ("TIDEGATE_MASTER_KEY", &MASTER_KEY[1..], &["TIDEGATE_MASTER_KEY", "64 hex digits"]),
    ];
    for (name, value, says) in cases {
        expect_refusal(&Setup::serve().env(name, value).run(), 2, says);
    }
}

#[test]
fn networks_that_may_not_be_opened_are_found_before_it_is_served() {
    let variable = "TIDEGATE__DISPATCH__ALLOW_NETWORKS";
    let cases: &[(&str, &[&str])] = &[
        ("0.0.0.0/0", &["\"0.0.0.0/0\"", "10.0.0.0/8"]),
        ("169.254.169.254/32", &["no other may ever be called", "10.0.0.0/8"]),
        ("10.20.0.0/16,fd00:ec2::/32", &["\"fd00:ec2::/32\"", "take it out"]),
        ("10.20.0.1/16", &["\"10.20.0.0/16\"", "\"10.20.0.1/32\""]),
        ("10.20.0.1", &["\"10.20.0.1/32\""]),
        ("intranet", &["\"intranet\"", "\"10.20.0.0/16\""]),
    ];
    for (value, says) in cases {
        for command in [Setup::serve(), Setup::command(&["config", "check"])] {
            expect_refusal(
                &command.env(variable, value).run(),
                2,
                &[&[variable, "dispatch.allow_networks"], *says].concat(),
            );
        }
    }
    for (text, says) in
        [("\"10.20.0.0/16\"", "expected an array, got a string"), ("[16]", "invalid type"), ("[\"\"]", "fd12::/48")]
    {
        let setup = Setup::serve().file("my.toml", &format!("[dispatch]\nallow_networks = {text}"));
        expect_refusal(&setup.arg("--config").arg("my.toml").run(), 2, &["dispatch.allow_networks", "my.toml", says]);
    }
}

/// `serve` with Kafka, for mistakes that are found before anything is connected.
#[cfg(feature = "kafka")]
fn expect_kafka_refusal(cases: &[(&str, &str, &[&str])]) {
    for (name, value, says) in cases {
        for command in [Setup::serve(), Setup::command(&["config", "check"])] {
            let setup = command.env("DATABASE_URL", "postgres://u@127.0.0.1:1/d").env("KAFKA_BROKERS", "127.0.0.1:1");
            let setup = setup.env("TIDEGATE__KAFKA__USERNAME", "u").env("TIDEGATE__KAFKA__PASSWORD", PASSWORD);
            expect_refusal(&setup.env(name, value).run(), 2, &[&[*name], *says].concat());
        }
    }
}

#[cfg(feature = "kafka")]
#[test]
fn settings_that_nothing_is_lost_by_are_not_librdkafkas_to_change() {
    expect_kafka_refusal(&[
        ("TIDEGATE__KAFKA__CLIENT", "enable.auto.commit=true", &["kafka.client", "enable.auto.commit", "take it out"]),
        ("TIDEGATE__KAFKA__CLIENT", "enable.auto.offset.store=true", &["enable.auto.offset.store", "take it out"]),
        ("TIDEGATE__KAFKA__CLIENT", "client.id=x,auto.offset.reset=latest", &["auto.offset.reset", "take it out"]),
        ("TIDEGATE__KAFKA__CLIENT", "request.required.acks=0", &["request.required.acks", "take it out"]),
        ("TIDEGATE__KAFKA__CLIENT", "transactional.id=x", &["transactional.id", "take it out"]),
        ("TIDEGATE__KAFKA__CLIENT", "group.id = other", &["group.id", "kafka.consumer_group"]),
        ("TIDEGATE__KAFKA__CLIENT", "sasl.mechanisms=PLAIN", &["sasl.mechanisms", "kafka.sasl_mechanism"]),
    ]);
}

#[cfg(feature = "kafka")]
#[test]
fn what_librdkafka_or_kafka_would_refuse_is_found_before_it_is_served() {
    expect_kafka_refusal(&[
        ("TIDEGATE__KAFKA__CLIENT", "no.such.thing=1", &["kafka.client", "no.such.thing"]),
        ("TIDEGATE__KAFKA__CLIENT", "batch.size=large", &["kafka.client", "batch.size"]),
        ("TIDEGATE__KAFKA__CLIENT", "max.poll.interval.ms=1", &["kafka.client", "max.poll.interval.ms"]),
        ("TIDEGATE__KAFKA__CLIENT", "max.in.flight=100", &["kafka.client", "max.in.flight"]),
        ("TIDEGATE__KAFKA__LINGER", "1s", &["kafka.linger", "librdkafka"]),
        ("KAFKA_TOPIC", "..", &["kafka.topic", "\"..\""]),
        ("KAFKA_BROKERS", "[", &["kafka.brokers", "host:9092"]),
        ("KAFKA_BROKERS", "[x]:9092", &["kafka.brokers", "host:9092"]),
        ("KAFKA_BROKERS", "a:1;b:2", &["kafka.brokers", "host:9092"]),
        ("KAFKA_BROKERS", ", ,", &["kafka.brokers", "nothing between them"]),
        ("TIDEGATE__KAFKA__SESSION_TIMEOUT", "5s", &["kafka.session_timeout", "6s"]),
        ("TIDEGATE__KAFKA__SECURITY_PROTOCOL", "sasl_loud", &["kafka.security_protocol"]),
    ]);
    let with = |setup: Setup| setup.env("DATABASE_URL", "postgres://u@127.0.0.1:1/d").env("KAFKA_BROKERS", "b");
    let check = || with(Setup::command(&["config", "check"]));
    let tls = || check().env("TIDEGATE__KAFKA__SECURITY_PROTOCOL", "ssl");
    let missing = tls().env("TIDEGATE__KAFKA__CA_FILE", "no.pem").run();
    expect_refusal(&missing, 2, &["TIDEGATE__KAFKA__CA_FILE", "kafka.ca_file", "no.pem"]);
    let no_pem = tls().file("ca.pem", "hello").env("TIDEGATE__KAFKA__CA_FILE", "ca.pem").run();
    expect_refusal(&no_pem, 2, &["TIDEGATE__KAFKA__CA_FILE", "kafka.ca_file", "librdkafka"]);
    let sasl = check().env("TIDEGATE__KAFKA__SECURITY_PROTOCOL", "sasl_plaintext");
    let sasl = sasl.env("TIDEGATE__KAFKA__USERNAME", "u").env("TIDEGATE__KAFKA__PASSWORD", PASSWORD);
    let gssapi = sasl.env("TIDEGATE__KAFKA__SASL_MECHANISM", "GSSAPI").run();
    expect_refusal(&gssapi, 2, &["TIDEGATE__KAFKA__SASL_MECHANISM", "kafka.sasl_mechanism", "SCRAM-SHA-512"]);
    let good = check().env("TIDEGATE__KAFKA__CLIENT", "client.id=mine,fetch.wait.max.ms=50,batch.size=1000");
    good.run().succeeded();
}

#[cfg(feature = "otel")]
#[test]
fn a_collector_that_is_no_url_is_refused() {
    for endpoint in ["collector:4317", "http://", "http://a b:1", "ftp://collector:4317"] {
        let ended = Setup::serve().env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).run();
        expect_refusal(&ended, 2, &["OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint", "http://127.0.0.1:4317"]);
    }
}

#[cfg(feature = "otel")]
#[test]
fn a_collector_behind_tls_that_nothing_vouches_for_is_refused() {
    let setup = Setup::serve().env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4317");
    let ended = setup.file("none.pem", "").env("SSL_CERT_FILE", "none.pem").run();
    expect_refusal(&ended, 2, &["telemetry.otlp_endpoint", "https://127.0.0.1:4317", "SSL_CERT_FILE"]);
}

#[test]
fn a_misspelt_admin_key_is_refused_instead_of_passed_over() {
    for command in [&["serve"][..], &["config", "check"]] {
        let ended = Setup::command(command).env("TIDEGATE_ADMIN_KY", ADMIN_KEY).run();
        expect_refusal(&ended, 2, &["TIDEGATE_ADMIN_KY", "did you mean TIDEGATE_ADMIN_KEY?"]);
    }
}

#[test]
fn a_variable_that_is_not_text_is_refused_instead_of_ignored() {
    // Ignored, this admin key would leave the door open.
    let ended = Setup::serve().raw_env("TIDEGATE_ADMIN_KEY", &[b'k', 0xff]).run();
    expect_refusal(&ended, 2, &["TIDEGATE_ADMIN_KEY", "UTF-8"]);
}

#[test]
fn an_address_that_others_can_reach_needs_both_keys() {
    for variable in ["ADDR", "OPS_ADDR", "GRPC_ADDR"] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080"] {
            let exposed = || Setup::serve().env(variable, address);
            let key = variable.to_lowercase();
            let says: &[&str] = &["security.admin_key", &key, "TIDEGATE_ADMIN_KEY", "openssl rand -hex 32"];
            expect_refusal(&exposed().run(), 2, says);
            let says: &[&str] = &["security.master_key", &key, "TIDEGATE_MASTER_KEY", "openssl rand -hex 32"];
            expect_refusal(&exposed().env("TIDEGATE_ADMIN_KEY", ADMIN_KEY).run(), 2, says);
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let ended = Setup::serve().arg("--config").arg("nowhere.toml").run();
    expect_refusal(&ended, 2, &["nowhere.toml", "--config"]);
    expect_refusal(&Setup::serve().arg("--config").arg("/").run(), 2, &["--config"]);
}

#[test]
fn a_port_in_use_is_named_with_the_key_that_chose_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (variable, key, flag) in [("ADDR", "server.addr", "--addr"), ("OPS_ADDR", "server.ops_addr", "--ops-addr")] {
        let ended = Setup::serve().env(variable, &address).run();
        expect_refusal(&ended, 1, &[key, &address, flag, variable]);
    }
}

#[test]
fn two_listeners_on_one_address_are_refused() {
    let setup = Setup::serve();
    let address = setup.addr().to_string();
    expect_refusal(&setup.env("OPS_ADDR", &address).run(), 1, &["server.ops_addr", &address]);
}

#[test]
fn an_unreachable_postgres_is_named_without_its_password() {
    let nobody = Setup::serve();
    let place = nobody.addr().to_string();
    let url = format!("postgres://tide:{PASSWORD}@{place}/tide");
    expect_refusal(&Setup::serve().env("DATABASE_URL", &url).run(), 1, &["database.url", "DATABASE_URL", &place]);
    let migrate = Setup::command(&["migrate"]).env("DATABASE_URL", &url).run();
    expect_refusal(&migrate, 1, &["database.url", "DATABASE_URL", &place]);
}

#[test]
fn a_data_dir_that_cannot_be_one_is_named() {
    let setup = Setup::serve().file("taken", "").env("TIDEGATE__SERVER__DATA_DIR", "taken/below");
    expect_refusal(&setup.run(), 1, &["server.data_dir", "--data-dir", "taken/below"]);
    let setup = Setup::serve().file("taken", "").env("TIDEGATE__SERVER__DATA_DIR", "taken");
    expect_refusal(&setup.run(), 1, &["server.data_dir", "--data-dir", "taken"]);
    expect_refusal(&Setup::serve().env("TIDEGATE__SERVER__DATA_DIR", "").run(), 2, &["server.data_dir", "\"data\""]);
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let setup =
        Setup::serve().file("not.db", &"this is no database\n".repeat(100)).env("DATABASE_URL", "sqlite:not.db");
    expect_refusal(&setup.run(), 1, &["database.url", "not.db"]);
}

#[test]
fn the_wrong_master_key_is_refused_before_anything_is_served() {
    let ended = Setup::locked().start().stop().succeeded();
    let wrong = "f".repeat(64);
    let ended = ended.again().env("TIDEGATE_MASTER_KEY", &wrong).run();
    assert_eq!(ended.code, Some(2), "{}", ended.output);
    assert!(ended.output.contains("security.master_key") && ended.output.contains("TIDEGATE_MASTER_KEY"));
    assert!(!ended.output.contains(&wrong) && !ended.output.contains("ready"), "{}", ended.output);
    let rotation = format!("{wrong},{MASTER_KEY}");
    ended.again().env("TIDEGATE_MASTER_KEY", &rotation).start().stop().succeeded();
}

#[test]
fn a_damaged_master_key_file_is_refused() {
    let setup = Setup::serve();
    fs::create_dir(setup.folder().join("data")).unwrap();
    let ended = setup.file("data/master.key", PASSWORD).run();
    assert_eq!(ended.code, Some(2), "{}", ended.output);
    assert!(ended.output.contains("master.key") && !ended.output.contains(PASSWORD), "{}", ended.output);
}

#[test]
fn wrong_arguments_exit_with_2_and_a_suggestion() {
    for (args, says) in [
        (&["sevre"][..], "serve"),
        (&["serve", "--adrr", "127.0.0.1:1"], "--addr"),
        (&["serve", "--roles", "api,wroker"], "worker"),
        (&["serve", "--roles", "gateway,dashboard"], "not in this version"),
        (&["serve", "extra"], "extra"),
        (&["completions", "tcsh"], "bash"),
        (&[], "Usage"),
    ] {
        let ended = Setup::command(args).run();
        assert_eq!(ended.code, Some(2), "{}", ended.output);
        assert!(ended.output.contains(says), "{}", ended.output);
    }
}
