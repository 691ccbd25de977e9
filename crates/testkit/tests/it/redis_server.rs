//! One Redis server: shared by the run, or one's own to break.

use redis::{Client, Commands, Connection, Script};
use testkit::{need, redis::Server};

fn connect(url: &str) -> Connection {
    Client::open(url).unwrap().get_connection().unwrap()
}

#[test]
fn the_shared_server_keeps_a_corner_for_each_test() {
    let one = need!(testkit::redis());
    let two = need!(testkit::redis());
    assert_eq!(one.url(), two.url());
    assert_ne!(one.prefix(), two.prefix());

    let mut connection = connect(&one.url());
    let key = format!("{}greeting", one.prefix());
    let () = connection.set(&key, "hello").unwrap();
    assert_eq!(connection.get::<_, String>(&key).unwrap(), "hello");
}

#[test]
fn a_script_runs_by_its_hash_and_survives_a_flush() {
    let server = need!(Server::start());
    let mut connection = connect(&server.url());
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    assert_eq!(script.key("count").arg(2).invoke::<i64>(&mut connection).unwrap(), 2);
    assert_eq!(server.cli(&["SCRIPT", "EXISTS", script.get_hash()]), "1");

    assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    assert_eq!(server.cli(&["SCRIPT", "EXISTS", script.get_hash()]), "0");
    assert_eq!(script.key("count").arg(3).invoke::<i64>(&mut connection).unwrap(), 5);
}

#[test]
fn a_killed_server_comes_back_empty_on_the_same_port() {
    let server = need!(Server::start());
    let port = server.port();
    server.cli(&["SET", "key", "value"]);
    server.kill();
    server.kill();
    assert_eq!(server.pid(), None);
    assert!(server.try_cli(&["PING"]).is_err());

    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.cli(&["EXISTS", "key"]), "0");
}

#[test]
fn a_persistent_server_keeps_what_it_acknowledged_through_kill_9() {
    let server = need!(Server::persistent());
    for number in 0..100 {
        server.cli(&["SET", &format!("key{number}"), "value"]);
    }
    server.restart();
    assert_eq!(server.cli(&["DBSIZE"]), "100");
}

#[test]
fn a_stopped_server_says_nothing_until_resumed() {
    let server = need!(Server::start());
    server.stop();
    let client = Client::open(server.url()).unwrap();
    let silence = client.get_connection_with_timeout(std::time::Duration::from_millis(100));
    assert!(silence.is_err_and(|error| error.is_timeout()));

    server.resume();
    assert_eq!(server.cli(&["PING"]), "PONG");
}

#[test]
fn own_arguments_reach_the_server() {
    let server = need!(Server::start_with(&["--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"]));
    assert_eq!(server.cli(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n10485760");
}

#[test]
fn a_server_that_refuses_to_start_is_quoted() {
    let unavailable = Server::start_with(&["--no-such-option", "1"]).err().unwrap();
    if unavailable.reason.contains("apt-get") {
        return;
    }
    assert!(unavailable.reason.contains("no-such-option"), "{}", unavailable.reason);
}
