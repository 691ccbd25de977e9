//! Real clients: `redis-cli`, redis-py, and what others send when they connect.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
};

use testkit::{Unavailable, fetch, need};

use super::{Server, command};
use crate::support::Setup;

const PYTHON_CLIENT: &str = "redis==8.1.0";

fn redis_cli(server: &Server, words: &[&str]) -> Result<String, Unavailable> {
    let program = testkit::find::program("redis-cli")
        .ok_or_else(|| Unavailable::program("redis-cli", "it is not installed: apt-get install redis-tools"))?;
    let port = server.addr().port().to_string();
    let done = Command::new(program).args(["-p", &port]).args(words).stdin(Stdio::null()).output().unwrap();
    Ok(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).trim_end().replace('\n', " "))
}

#[test]
fn redis_cli_gets_redis_cells_five_numbers() {
    let server = Server::start(Setup::serve());
    // The example of redis-cell's own page.
    assert_eq!(need!(redis_cli(&server, &["CL.THROTTLE", "user123", "15", "30", "60", "1"])), "0 16 15 -1 2");
    assert_eq!(need!(redis_cli(&server, &["cl.throttle", "user123", "15", "30", "60", "15"])), "0 16 0 -1 32");
    assert_eq!(need!(redis_cli(&server, &["-3", "CL.THROTTLE", "user123", "15", "30", "60"])), "1 16 0 2 32");
    assert_eq!(need!(redis_cli(&server, &["CL.THROTTLE", "user123", "15", "30", "60", "0"])), "0 16 0 -1 32");
    assert_eq!(need!(redis_cli(&server, &["CL.THROTTLE", "user123", "15", "30", "60", "17"])), "1 16 0 -1 32");
    // throttlecrab's words for the same: allowed, the limit is the burst, the wait comes last.
    assert_eq!(need!(redis_cli(&server, &["THROTTLE", "user456", "2", "30", "60"])), "1 2 1 2 0");
    assert_eq!(need!(redis_cli(&server, &["THROTTLE", "user456", "2", "30", "60", "5"])), "0 2 1 2 -1");
    let mistake = need!(redis_cli(&server, &["CL.THROTTLE", "user123", "15", "0", "60"]));
    assert!(mistake.starts_with("ERR count: not a whole number from 1 to"), "{mistake}");
}

/// Both versions of the protocol, pipelines, and errors as exceptions.
#[test]
fn redis_py_gets_the_same_numbers_in_both_versions_of_the_protocol() {
    let server = Server::start(Setup::serve());
    let found = fetch::python(&format!("python-{}", PYTHON_CLIENT.replace("==", "-")), &[PYTHON_CLIENT]);
    let folder = need!(found.map_err(|reason| Unavailable::program("redis-py", reason)));
    let script = "\
import redis, sys
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol, client_name='it')
    ask = ('CL.THROTTLE', 'k%d' % protocol, 2, 1, 10)
    assert client.ping() and client.client_getname() in ('it', b'it') and client.client_id() > 0
    assert client.execute_command(*ask) == [0, 3, 2, -1, 10]
    pipe = client.pipeline(transaction=False)
    for _ in range(3): pipe.execute_command(*ask)
    pipe.echo('in order')
    assert pipe.execute() == [[0, 3, 1, -1, 20], [0, 3, 0, -1, 30], [1, 3, 0, 10, 30], b'in order']
    try:
        client.execute_command('CL.THROTTLE', 'k', -1, 1, 10)
        raise SystemExit('no error')
    except redis.ResponseError as error:
        assert 'max_burst' in str(error), error
print('fine')
";
    let port = server.addr().port().to_string();
    let done = Command::new(folder.join("bin/python")).args(["-c", script, &port]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "fine\n", "{}", String::from_utf8_lossy(&done.stderr));
}

/// ioredis asks for INFO and waits until nothing is loading; redis-rs and go-redis introduce themselves in a pipeline.
#[test]
fn what_libraries_say_when_they_connect_is_answered() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    assert!(client.ask(&["INFO"]).contains("loading:0"));
    assert_eq!(client.ask(&["SELECT", "0"]), "OK");
    assert!(client.ask(&["SELECT", "1"]).starts_with("-ERR DB index"));
    assert_eq!(client.ask(&["COMMAND", "COUNT"]), "0");
    assert_eq!(client.ask(&["COMMAND", "DOCS"]), "");
    assert_eq!(client.ask(&["CLIENT", "SETINFO", "LIB-NAME", "redis-rs"]), "OK");
    assert!(client.ask(&["HELLO", "3", "SETNAME", "me"]).contains("proto 3"));
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), "me");
    assert!(client.ask(&["HELLO", "4"]).starts_with("-NOPROTO"));
    assert!(client.ask(&["SET", "a", "b"]).starts_with("-ERR unknown command 'SET'"));
    assert_eq!(client.ask(&["QUIT"]), "OK");
    assert_eq!(client.rest(), "");
}

#[test]
fn a_person_can_type_commands_line_by_line() {
    let server = Server::start(Setup::serve());
    let mut client = server.client();
    client.send(b"PING\n\r\n  cl.throttle 'a key' 0 1 60\r\necho \"a b\"\r\n").unwrap();
    assert_eq!([client.reply(), client.reply(), client.reply()], ["PONG", "0 1 0 -1 60", "a b"]);
}

#[test]
fn ten_thousand_commands_in_one_write_are_answered_in_order() {
    let server = Server::start(Setup::serve());
    let mut all = Vec::new();
    for number in 0..5_000 {
        all.extend(command(&["CL.THROTTLE", "hot", "99", "1", "3600"]));
        all.extend(command(&["ECHO", &number.to_string()]));
    }
    let mut client = server.client();
    let mut sending = client.0.get_ref().try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || sending.write_all(&all).unwrap());
        for number in 0..5_000 {
            let answer = client.reply();
            let expected = if number < 100 { format!("0 100 {}", 99 - number) } else { "1 100 0 36".to_owned() };
            assert!(answer.starts_with(&expected), "{number}: {answer}");
            assert_eq!(client.reply(), number.to_string());
        }
    });
}
