//! Kafka and PostgreSQL that let nobody in without TLS: events pass with the right authority and password, and who has
//! another one is not let in, is told which setting to look at, and tells no secret.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
};

use serde_json::json;
use testkit::{
    Unavailable,
    kafka::{Broker, Guarded},
    need,
    postgres::Server,
    receiver::Receiver,
    wait_until,
};

use super::{LATER, replica, send, subscribe, tls::Authority, wait_for_status};
use crate::support::{Backend, Call, Setup, on_topic};

const PASSWORD: &str = "only-for-this-test-7391";

fn servers(authority: &Authority) -> Result<(Server, Broker), Unavailable> {
    let (chain, key) = authority.issue("127.0.0.1");
    let server = Server::start()?;
    speak_tls(&server, &chain, &key);
    let guarded = Guarded { chain: &chain, key: &key, user: "tidegate", password: PASSWORD };
    Ok((server, Broker::start_guarded(&guarded)?))
}

/// From now on it takes no other connection over TCP, but for those that are there to ask about it.
fn speak_tls(server: &Server, chain: &str, key: &str) {
    let data = server.sql("SHOW data_directory")[0][0].clone().unwrap();
    let owner = fs::metadata(&data).unwrap();
    for (name, pem) in [("server.crt", chain), ("server.key", key)] {
        let path = format!("{data}/{name}");
        fs::write(&path, pem).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
    wait_until(LATER, "PostgreSQL to speak TLS", || server.sql("SHOW ssl")[0][0].as_deref() == Some("on"));
}

fn setup(server: &Server, broker: &Broker, authority: &Authority) -> Setup {
    let setup = on_topic(replica(&Backend::Sqlite), &broker.guarded().unwrap(), "guarded");
    setup
        .file("ca.pem", &authority.0.pem())
        .env("DATABASE_URL", &format!("{}?sslmode=require", server.url()))
        .env("TIDEGATE__DATABASE__CA_FILE", "ca.pem")
        .env("TIDEGATE__KAFKA__SECURITY_PROTOCOL", "sasl_ssl")
        .env("TIDEGATE__KAFKA__SASL_MECHANISM", "PLAIN")
        .env("TIDEGATE__KAFKA__USERNAME", "tidegate")
        .env("TIDEGATE__KAFKA__PASSWORD", PASSWORD)
        .env("TIDEGATE__KAFKA__CA_FILE", "ca.pem")
}

#[test]
fn events_pass_over_tls_with_the_right_authority_and_password_only() {
    let authority = Authority::new();
    let (server, broker) = need!(servers(&authority));
    let receiver = Receiver::start();
    let tidegate = setup(&server, &broker, &authority).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    send(tidegate.addr(), json!({"id": "e1", "type": "order.paid", "data": {}}));
    wait_for_status(tidegate.addr(), "e1", "delivered");
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                 WHERE application_name = 'tidegate' AND NOT ssl";
    assert_eq!(server.sql(plain)[0][0].as_deref(), Some("0"), "a connection to PostgreSQL is in the clear");
    drop(tidegate);

    let stranger = Authority::new();
    let ended = setup(&server, &broker, &authority).file("other.pem", &stranger.0.pem());
    let ended = ended.env("TIDEGATE__DATABASE__CA_FILE", "other.pem").run();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("certificate"), "{}", ended.output);

    let wrong = [
        setup(&server, &broker, &authority).env("TIDEGATE__KAFKA__PASSWORD", "another-secret-4820"),
        setup(&server, &broker, &authority)
            .file("other.pem", &stranger.0.pem())
            .env("TIDEGATE__KAFKA__CA_FILE", "other.pem"),
    ];
    for setup in wrong {
        let tidegate = setup.env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "1s").spawn();
        wait_until(LATER, "it to listen", || Call::get("/v1/me").try_to(tidegate.addr()).is_ok());
        Call::post("/v1/events", json!({"type": "order.paid", "data": {}}))
            .to(tidegate.addr())
            .expect_problem(503, "kafka_unavailable");
        // A broker that is busy refuses the password after the event has been refused.
        let reason = || ["uthentication", "certificate"].iter().any(|word| tidegate.output().contains(word));
        wait_until(LATER, "the log to say why", reason);
        let output = tidegate.stop().output;
        for secret in [PASSWORD, "another-secret-4820"] {
            assert!(!output.contains(secret), "{output}");
        }
    }
}
