//! The fault proxy, each fault seen from both ends of a connection.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use testkit::{
    proxy::{Direction, FaultProxy, Faults},
    wait_until,
};

const LIMIT: Duration = Duration::from_secs(10);

/// A client and a server with a proxy between them.
struct Pair {
    proxy: FaultProxy,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

fn pair() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap());
    let (client, server) = connect(&proxy, &listener);
    Pair { proxy, listener, client, server }
}

fn connect(proxy: &FaultProxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.addr()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    (client, server)
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// How long `count` bytes take from the client to the server.
fn transfer(pair: &mut Pair, count: usize) -> Duration {
    let start = Instant::now();
    pair.client.write_all(&vec![7; count]).unwrap();
    assert_eq!(read(&mut pair.server, count), vec![7; count]);
    start.elapsed()
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let silent = stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    silent
}

#[test]
fn without_faults_bytes_and_ends_pass_both_ways() {
    let mut pair = pair();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut writer = pair.client.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        pair.server.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    });
    pair.server.write_all(b"still open").unwrap();
    assert_eq!(read(&mut pair.client, 10), b"still open");
}

#[test]
fn latency_delays_without_limiting() {
    let mut pair = pair();
    pair.proxy.set_one(Direction::ToServer, Faults { latency: Duration::from_secs(2), ..Faults::default() });
    let taken = transfer(&mut pair, 500_000);
    assert!((Duration::from_secs(2)..LIMIT).contains(&taken), "{taken:?}");

    let start = Instant::now();
    pair.server.write_all(b"x").unwrap();
    read(&mut pair.client, 1);
    assert!(start.elapsed() < Duration::from_secs(2), "the other direction has no latency");
}

#[test]
fn jitter_adds_up_to_its_amount_and_keeps_the_order() {
    let mut pair = pair();
    pair.proxy.set(Faults { jitter: Duration::from_millis(30), ..Faults::default() });
    for number in 0..20_u8 {
        pair.client.write_all(&[number]).unwrap();
    }
    assert_eq!(read(&mut pair.server, 20), (0..20).collect::<Vec<u8>>());
}

#[test]
fn a_fault_taken_back_releases_what_it_held() {
    let mut pair = pair();
    pair.proxy.set(Faults { latency: Duration::from_secs(3600), ..Faults::default() });
    pair.client.write_all(b"late").unwrap();
    assert!(is_silent(&mut pair.server));
    pair.proxy.heal();
    assert_eq!(read(&mut pair.server, 4), b"late");
}

#[test]
fn bandwidth_limits_each_connection() {
    let mut pair = pair();
    pair.proxy.set(Faults { bandwidth: Some(50_000), ..Faults::default() });
    let taken = transfer(&mut pair, 20_000);
    assert!((Duration::from_millis(300)..LIMIT).contains(&taken), "{taken:?}");
}

#[test]
fn slices_keep_every_byte_in_order() {
    let mut pair = pair();
    pair.proxy.set(Faults { slice: Some(3), ..Faults::default() });
    pair.client.write_all(b"abcdefgh").unwrap();
    assert_eq!(read(&mut pair.server, 8), b"abcdefgh");
}

#[test]
fn a_reset_hits_live_and_new_connections() {
    let mut pair = pair();
    transfer(&mut pair, 10);
    pair.proxy.set(Faults { reset: true, ..Faults::default() });
    for stream in [&mut pair.client, &mut pair.server] {
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    let mut new = TcpStream::connect(pair.proxy.addr()).unwrap();
    assert!(new.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));

    pair.proxy.heal();
    wait_until(LIMIT, "the reset connections to be gone", || pair.proxy.live() == 0);
}

#[test]
fn a_black_hole_holds_everything_until_it_is_taken_back() {
    let mut pair = pair();
    pair.proxy.set_one(Direction::ToClient, Faults { black_hole: true, ..Faults::default() });
    transfer(&mut pair, 10);
    pair.server.write_all(b"answer").unwrap();
    pair.server.shutdown(Shutdown::Both).unwrap();
    assert!(is_silent(&mut pair.client));

    pair.proxy.heal();
    let mut answer = Vec::new();
    pair.client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

#[test]
fn a_byte_limit_delivers_a_prefix_and_closes() {
    let mut pair = pair();
    pair.proxy.set_one(Direction::ToServer, Faults { byte_limit: Some(5), ..Faults::default() });
    pair.client.write_all(b"abcdefgh").unwrap();
    let mut received = Vec::new();
    pair.server.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"abcde");
    assert!(matches!(pair.client.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn refused_while_it_does_not_listen_and_back_on_the_same_port() {
    let mut pair = pair();
    pair.proxy.refuse();
    let refused = TcpStream::connect(pair.proxy.addr()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    transfer(&mut pair, 10);

    pair.proxy.accept();
    let (mut client, mut server) = connect(&pair.proxy, &pair.listener);
    client.write_all(b"new").unwrap();
    assert_eq!(read(&mut server, 3), b"new");
    assert_eq!((pair.proxy.accepted(), pair.proxy.live()), (2, 2));
}

#[test]
fn close_all_ends_the_connections_there_are_and_none_after() {
    let mut pair = pair();
    transfer(&mut pair, 10);
    pair.proxy.close_all();
    assert_eq!(pair.client.read(&mut [0]).unwrap(), 0);
    assert_eq!(pair.server.read(&mut [0]).unwrap(), 0);
    let (mut client, mut server) = connect(&pair.proxy, &pair.listener);
    client.write_all(b"new").unwrap();
    assert_eq!(read(&mut server, 3), b"new");
}

#[test]
fn a_server_that_is_gone_looks_gone_through_the_proxy() {
    let Pair { proxy, listener, .. } = pair();
    drop(listener);
    let mut client = TcpStream::connect(proxy.addr()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
