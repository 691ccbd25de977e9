//! One PostgreSQL server: shared by the run, or one's own to break.

use std::time::Duration;

use testkit::{need, postgres::Server};
use tokio_postgres::{Client, NoTls};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn each_test_has_a_database_of_its_own() {
    let one = need!(testkit::postgres());
    let two = need!(testkit::postgres());
    for shared in [&one, &two] {
        let client = connect(&shared.url()).await;
        client.batch_execute("CREATE TABLE event (id bigint PRIMARY KEY)").await.unwrap();
        assert_eq!(
            client.execute("INSERT INTO event SELECT generate_series(1, $1::bigint)", &[&10_i64]).await.unwrap(),
            10
        );
    }
    assert_eq!(one.sql("SELECT count(*), NULL FROM event"), [[Some("10".to_owned()), None]]);
    assert_eq!(one.port(), two.port());
    assert_ne!(one.database(), two.database());
}

#[tokio::test]
async fn what_was_committed_survives_kill_9_and_a_restart() {
    let server = need!(Server::start());
    assert_eq!(server.sql("SHOW fsync"), [[Some("on".to_owned())]]);
    let client = connect(&server.url()).await;
    client.batch_execute("CREATE TABLE event (id bigint)").await.unwrap();
    for id in 0..50_i64 {
        client.execute("INSERT INTO event VALUES ($1)", &[&id]).await.unwrap();
    }
    let port = server.port();
    server.kill();
    assert!(client.query("SELECT 1", &[]).await.is_err());
    assert!(tokio_postgres::connect(&server.url(), NoTls).await.is_err());

    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.sql("SELECT count(*), max(id) FROM event"), [[Some("50".to_owned()), Some("49".to_owned())]]);
}

#[tokio::test]
async fn a_stopped_server_leaves_open_connections_waiting_until_resumed() {
    let server = need!(Server::start());
    let client = connect(&server.url()).await;
    server.stop();
    let question = client.query_one("SELECT 1", &[]);
    tokio::pin!(question);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut question).await.is_err());

    server.resume();
    assert_eq!(question.await.unwrap().get::<_, i32>(0), 1);
}

#[test]
fn two_hundred_clients_fit() {
    let server = need!(Server::start());
    assert_eq!(server.sql("SHOW max_connections"), [[Some("200".to_owned())]]);
}

#[test]
fn a_bad_setting_is_quoted() {
    let unavailable = Server::start_with(&["no_such_setting=1"]).err().unwrap();
    if unavailable.reason.contains("apt-get") {
        return;
    }
    assert!(unavailable.reason.contains("no_such_setting"), "{}", unavailable.reason);
}

#[test]
fn a_stopped_server_is_dropped_without_waiting_for_its_stopped_children() {
    let server = need!(Server::start());
    server.stop();
    let start = std::time::Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}
