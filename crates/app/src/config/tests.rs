//! The layers and the checks, without a process.

use std::io::Write;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Result<Config, Error> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(&Layers::defaults().with_environment(variables)?)
}

fn file(text: &str) -> Result<Layers, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Layers::defaults().with_file(file.path())
}

fn mistake(outcome: Result<Config, Error>) -> String {
    outcome.err().expect("the configuration is refused").to_string()
}

#[test]
fn the_compiled_in_defaults_are_good() {
    let config = Config::load(&Layers::defaults()).unwrap();
    assert_eq!(config.addr.to_string(), "127.0.0.1:8080");
    assert_eq!(config.roles.len(), 5);
}

#[test]
fn an_empty_file_and_empty_sections_change_nothing() {
    assert_eq!(file("").unwrap().print(), Layers::defaults().print());
    assert_eq!(file("[redis]\n[kafka]\n").unwrap().print(), Layers::defaults().print());
}

/// `dispatch.retention` refused the ten years that its comment offers.
#[test]
fn both_ends_of_every_range_in_the_defaults_are_taken() {
    let around = [
        ("DATABASE_URL", "postgres://h/d"),
        ("KAFKA_BROKERS", "h:9092"),
        ("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "20s"),
        ("TIDEGATE__KAFKA__CLIENT", "max.poll.interval.ms=1800000"),
        ("SHUTDOWN_TIMEOUT", "2h"),
    ];
    let (mut section, mut ranges) = ("", 0);
    for line in DEFAULT.lines() {
        section = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(section);
        let Some((setting, comment)) = line.split_once('#') else { continue };
        let Some(range) = comment.rsplit_once('(').and_then(|(_, range)| range.split_once(" to ")) else { continue };
        let least = range.0.rsplit(' ').next().unwrap();
        let most = range.1.split([',', ')']).next().unwrap();
        let key = setting.split_whitespace().next().unwrap();
        let variable = format!("TIDEGATE__{section}__{key}").to_uppercase();
        for end in [least, most] {
            let outcome = environment(&[&around[..], &[(&variable, end)]].concat());
            assert!(outcome.is_ok(), "{variable}={end}: {}", mistake(outcome));
        }
        ranges += 1;
    }
    assert!(ranges > 20, "only {ranges} were found");
}

#[test]
fn later_layers_win() {
    let layers = file("[server]\naddr = \"127.0.0.1:1\"\nops_addr = \"127.0.0.1:2\"").unwrap();
    let variables = [("ADDR", "127.0.0.1:3"), ("TIDEGATE__SERVER__ADDR", "127.0.0.1:9")];
    let layers = layers.with_environment(variables.map(|(n, v)| (n.to_owned(), v.to_owned())).into_iter()).unwrap();
    let config = Config::load(&layers).unwrap();
    assert_eq!((config.addr.port(), config.ops_addr.port()), (3, 2));
    let layers = layers.with_flag("--addr", "server.addr", Some("127.0.0.1:4")).unwrap();
    assert_eq!(Config::load(&layers).unwrap().addr.port(), 4);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    let error = file("[server]\nadress = \"x\"").err().unwrap().to_string();
    assert!(error.ends_with("there is no key \"server.adress\"; did you mean \"server.addr\"?"), "{error}");
    let error = mistake(environment(&[("TIDEGATE__DATABASE__POOLSIZE", "3")]));
    assert!(error.contains("TIDEGATE__DATABASE__POOLSIZE") && error.contains("database.pool_size"), "{error}");
    let error = file("[zzz]\nqqq = 1").err().unwrap().to_string();
    assert!(error.contains("`tidegate config print` lists all"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_names_key_and_place() {
    let error = file("[server]\nmax_connections = \"many\"").err().unwrap().to_string();
    assert!(error.contains("server.max_connections") && error.contains("expected an integer, got a string"), "{error}");
    let error = mistake(environment(&[("TIDEGATE__SERVER__MAX_CONNECTIONS", "many")]));
    assert_eq!(
        error,
        "environment variable TIDEGATE__SERVER__MAX_CONNECTIONS: server.max_connections: \"many\" is not a whole number"
    );
}

#[test]
fn a_bad_value_names_the_variable_the_key_and_the_fix() {
    for (variable, value, expected) in [
        ("ADDR", "nowhere", "environment variable ADDR: server.addr: \"nowhere\" is not an address to listen on"),
        (
            "DRAIN_TIMEOUT",
            "soon",
            "environment variable DRAIN_TIMEOUT: shutdown.drain_timeout: \"soon\" is not a duration",
        ),
        ("DRAIN_TIMEOUT", "50s", "shutdown.timeout: 40s must be longer than"),
        ("DATABASE_URL", "mysql://x", "environment variable DATABASE_URL: database.url: \"mysql\" is not a database"),
        (
            "REDIS_URL",
            "http://x",
            "environment variable REDIS_URL: redis.url: the Redis URL is not understood: its scheme is not",
        ),
        ("REDIS_URL", "redis://", "environment variable REDIS_URL: redis.url: the Redis URL is not understood"),
        (
            "KAFKA_BROKERS",
            "a:1,b:x",
            "environment variable KAFKA_BROKERS: kafka.brokers: \"b:x\" is not a host and port",
        ),
        ("TIDEGATE__SERVER__MAX_BODY", "1GB", "server.max_body: \"1GB\" is not a size"),
        ("TIDEGATE__SERVER__ROLES", "api,wroker", "server.roles: unknown variant `wroker`"),
        ("TIDEGATE__TELEMETRY__LOG", "info,gate=loud", "telemetry.log"),
        (
            "TIDEGATE_ADMIN_KEY",
            "short",
            "environment variable TIDEGATE_ADMIN_KEY: security.admin_key: an admin key has",
        ),
        ("TIDEGATE_ADMIN_KEY", "\n", "environment variable TIDEGATE_ADMIN_KEY: security.admin_key: an admin key has"),
        (
            "TIDEGATE_MASTER_KEY",
            "short",
            "environment variable TIDEGATE_MASTER_KEY: security.master_key: a master key is 32 random bytes",
        ),
    ] {
        let error = mistake(environment(&[(variable, value)]));
        assert!(error.contains(expected), "{variable}={value}: {error}");
    }
}

#[test]
fn an_address_others_can_reach_needs_both_keys() {
    let master = "ab".repeat(32);
    for addr in ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:80"] {
        let error = mistake(environment(&[("ADDR", addr), ("TIDEGATE_MASTER_KEY", &master)]));
        assert!(error.contains("security.admin_key") && error.contains("TIDEGATE_ADMIN_KEY"), "{error}");
        let error = mistake(environment(&[("ADDR", addr), ("TIDEGATE_ADMIN_KEY", &master)]));
        assert!(error.contains("security.master_key") && error.contains("TIDEGATE_MASTER_KEY"), "{error}");
        environment(&[("ADDR", addr), ("TIDEGATE_ADMIN_KEY", &master), ("TIDEGATE_MASTER_KEY", &master)]).unwrap();
    }
    mistake(environment(&[("OPS_ADDR", "0.0.0.0:9090")]));
    environment(&[("ADDR", "[::1]:8080")]).unwrap();
}

#[test]
fn an_empty_variable_means_not_set() {
    let config = environment(&[("REDIS_URL", ""), ("DATABASE_URL", ""), ("KAFKA_BROKERS", "")]).unwrap();
    assert!(config.redis.is_none() && config.kafka.is_none());
}

#[test]
fn brokers_are_hosts_and_ports_and_redis_comes_in_four_forms() {
    let postgres = ("DATABASE_URL", "postgres://u@h/d");
    let kafka = |variables: &[(&str, &str)]| environment(variables).map(|config| config.kafka.unwrap());
    let read = kafka(&[postgres, ("KAFKA_BROKERS", "a, [::1]:9093"), ("TIDEGATE__KAFKA__INSTANCE_ID", "auto")]);
    if cfg!(feature = "kafka") {
        let config = read.unwrap();
        assert_eq!((config.brokers.as_str(), config.partitions), ("a:9092,[::1]:9093", 12));
        assert!(config.instance_id.is_some_and(|id| id.starts_with("tidegate-") && id.ends_with("-8080")));
        let error = mistake(environment(&[("KAFKA_BROKERS", "a")]));
        assert!(error.contains("KAFKA_BROKERS") && error.contains("set database.url (DATABASE_URL)"), "{error}");
        let error = mistake(environment(&[postgres, ("KAFKA_BROKERS", "a"), ("TIDEGATE__KAFKA__CLIENT", "x")]));
        assert!(error.contains("kafka.client") && error.contains("name=value"), "{error}");
    } else {
        assert!(read.is_err_and(|error| error.to_string().contains("built without Kafka")));
    }
    for (text, is_shared) in [("true", true), ("false", false)] {
        let redis = environment(&[("REDIS_URL", "redis://x"), ("USE_DISTRIBUTED_CB", text)]).unwrap().redis.unwrap();
        assert_eq!(redis.shares_circuits, is_shared);
    }
    assert!(environment(&[("REDIS_URL", "redis://x")]).unwrap().redis.unwrap().shares_circuits);
    assert!(environment(&[("USE_DISTRIBUTED_CB", "maybe")]).is_err());
    let fewest = |count| environment(&[("REDIS_URL", "redis://x"), ("TIDEGATE__REDIS__FEWEST_REPLICAS", count)]);
    assert_eq!(fewest("3").unwrap().redis.unwrap().fallback.fewest_replicas, 3);
    let error = mistake(fewest("0"));
    assert!(error.contains("redis.fewest_replicas: 0 is out of range: use 1 to 1000"), "{error}");
    for url in ["redis://:p%40ss@x:1/2", "rediss://u:p@x", "redis+sentinel://a,b/main", "redis+cluster://a:1,b:2"] {
        assert_eq!(environment(&[("REDIS_URL", url)]).unwrap().redis.unwrap().server.url, url);
    }
}

#[test]
fn printing_hides_secrets_and_shows_sources() {
    let variables = [("REDIS_URL", "redis://:hunter2@x"), ("TIDEGATE_ADMIN_KEY", "hunter2"), ("KAFKA_TOPIC", "t")];
    let layers =
        Layers::defaults().with_environment(variables.map(|(n, v)| (n.to_owned(), v.to_owned())).into_iter()).unwrap();
    let text = layers.print();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("admin_key = \"***\"  # environment variable TIDEGATE_ADMIN_KEY"), "{text}");
    assert!(text.contains("topic = \"t\"  # environment variable KAFKA_TOPIC"), "{text}");
    assert!(text.parse::<toml::Table>().is_ok(), "{text}");
}

/// Kubernetes makes variables from files, and those end with a newline.
#[test]
fn the_newline_at_the_end_of_a_variable_is_not_part_of_it() {
    let line = |text: &str| format!("{text}\r\n");
    let key = "0123456789abcdef".repeat(4);
    let config = environment(&[
        ("ADDR", &line("127.0.0.1:3")),
        ("TIDEGATE_ADMIN_KEY", &line(&key)),
        ("TIDEGATE_MASTER_KEY", &line(&key)),
        ("DATABASE_URL", &line("sqlite:/x.db")),
        ("REDIS_URL", &line("redis://x")),
        ("TIDEGATE__SERVER__MAX_CONNECTIONS", &line("7")),
    ])
    .unwrap();
    assert_eq!((config.addr.port(), config.http.max_connections), (3, 7));
    assert_eq!(config.security.doors, tenancy::config::Doors::Locked { admin_key: Secret::new(&key) });
    assert_eq!(config.redis.unwrap().server.url, "redis://x");
    assert!(matches!(config.database, db::Config::Sqlite(path) if path == std::path::Path::new("/x.db")));
}

/// Passed over, a misspelt admin key would leave the door open.
#[test]
fn a_variable_that_is_nearly_one_of_ours_is_refused_with_the_one_that_was_meant() {
    for (name, meant) in [
        ("TIDEGATE_ADMIN_KY", "TIDEGATE_ADMIN_KEY"),
        ("TIDEGATE_ADMNI_KEY", "TIDEGATE_ADMIN_KEY"),
        ("TIDEGATE_ADMINKEY", "TIDEGATE_ADMIN_KEY"),
        ("TIDGATE_ADMIN_KEY", "TIDEGATE_ADMIN_KEY"),
        ("tidegate_admin_key", "TIDEGATE_ADMIN_KEY"),
        ("TIDEGATE_MASTERKEY", "TIDEGATE_MASTER_KEY"),
        ("TIDEGATE_SECURITY_ADMIN_KEY", "TIDEGATE__SECURITY__ADMIN_KEY"),
        ("TIDEGATE_SERVER__ADDR", "TIDEGATE__SERVER__ADDR"),
    ] {
        let expected = format!("environment variable {name}: there is no such setting; did you mean {meant}?");
        assert_eq!(mistake(environment(&[(name, "0123456789abcdef")])), expected);
    }
}

#[test]
fn what_kubernetes_and_others_set_beside_it_is_left_alone() {
    for service in ["", "_API", "_ADMIN", "_MASTER", "_REDIS", "_KAFKA", "_DATABASE", "_POSTGRES", "_LIMITS", "_SERVER"]
    {
        for what in ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP", "PORT_8080_TCP_ADDR"]
        {
            environment(&[(&format!("TIDEGATE{service}_{what}"), "tcp://10.0.0.1:80")]).unwrap();
        }
    }
    for name in ["TIDEGATE_KEY", "TIDEGATE_CRASH_AT", "TIDEGATE_VERSION", "TIDEGATE_HOME", "TIDE", "TIDES_URL"] {
        environment(&[(name, "x")]).unwrap();
    }
}
