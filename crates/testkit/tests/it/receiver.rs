//! The webhook receiver, seen from a plain socket: what it records, and every way it can answer.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use testkit::receiver::{Answer, Behaviour, Receiver, Secret, Verdict};

const LIMIT: Duration = Duration::from_secs(10);

fn connect(receiver: &Receiver) -> TcpStream {
    let stream = TcpStream::connect(receiver.addr()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn send(stream: &mut TcpStream, path: &str, headers: &str, body: &str) {
    let length = body.len();
    let request = format!("POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
}

/// The answer to one request over a connection of its own.
fn post(receiver: &Receiver, path: &str, headers: &str, body: &str) -> String {
    let mut stream = connect(receiver);
    send(&mut stream, path, &format!("{headers}connection: close\r\n"), body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(receiver: &Receiver, path: &str, id: &str) -> u16 {
    let answer = post(receiver, path, &format!("webhook-id: {id}\r\n"), "{}");
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Starts a request and gives the first `count` bytes of the answer.
fn beginning(receiver: &Receiver, answer: Answer, count: usize) -> (TcpStream, Vec<u8>) {
    receiver.set(answer);
    let mut stream = connect(receiver);
    send(&mut stream, "/", "", "{}");
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    (stream, bytes)
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn every_request_is_on_record_before_its_answer() {
    let receiver = Receiver::start();
    receiver.set_path("/slow", Answer::Hang);
    let answer = post(&receiver, "/hook?a=1", "webhook-id: msg_1\r\n", "payload");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut waiting = connect(&receiver);
    send(&mut waiting, "/slow", "webhook-id: msg_1\r\n", "again");

    let requests = receiver.received(2, LIMIT).await;
    assert_eq!((requests[0].path.as_str(), requests[0].query.as_deref()), ("/hook", Some("a=1")));
    assert_eq!((requests[0].id(), &requests[0].body[..]), ("msg_1", &b"payload"[..]));
    assert_eq!((requests[1].path.as_str(), &requests[1].body[..]), ("/slow", &b"again"[..]));
    assert!(requests[0].at <= requests[1].at);
    assert_eq!(requests[0].verdict, Verdict::NotAsked);
    assert_eq!(receiver.duplicates(), [("msg_1".to_owned(), 2)].into());
    assert_eq!((receiver.count(), receiver.distinct(), receiver.connections()), (2, 1, 2));
    receiver.clear();
    assert_eq!(receiver.count(), 0);
}

#[test]
#[should_panic(expected = "waited 20ms in vain for request 2; 1 arrived")]
fn a_request_that_does_not_come_is_named() {
    let receiver = Receiver::start();
    post(&receiver, "/", "", "");
    receiver.received_blocking(2, Duration::from_millis(20));
}

#[test]
fn signatures_are_verified_and_bad_ones_refused() {
    let receiver = Receiver::start();
    let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    receiver.verify_with([secret.clone()]);
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let headers = |signature: &str| {
        format!("webhook-id: msg_1\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n")
    };
    let good = headers(&secret.sign("msg_1", now_s, b"payload"));
    assert!(post(&receiver, "/", &good, "payload").starts_with("HTTP/1.1 200 "));
    assert!(post(&receiver, "/", &good, "tampered").starts_with("HTTP/1.1 401 "));
    assert!(post(&receiver, "/", "", "payload").starts_with("HTTP/1.1 401 "));
    let verdicts: Vec<Verdict> = receiver.requests().into_iter().map(|request| request.verdict).collect();
    assert_eq!(verdicts, [Verdict::Valid, Verdict::Wrong, Verdict::Missing("webhook-id")]);
}

#[test]
fn failures_come_first_by_path_and_by_id() {
    let receiver = Receiver::start();
    receiver.set_path("/twice", Behaviour { fail_first: 2, failure: Answer::Status(503), ..Behaviour::default() });
    receiver.set_path("/each", Behaviour { fail_first_of_each: 1, ..Behaviour::default() });
    assert_eq!(["a", "b", "a", "b"].map(|id| status(&receiver, "/twice", id)), [503, 503, 200, 200]);
    assert_eq!(["a", "b", "a", "b", "a"].map(|id| status(&receiver, "/each", id)), [500, 500, 200, 200, 200]);
}

#[test]
fn decent_answers_have_status_headers_body_and_delay() {
    let receiver = Receiver::start();
    receiver.set_path("/gone", Answer::Status(410));
    receiver.set_path("/busy", Answer::RetryAfter { status: 429, value: "7".into() });
    let headers = vec![("x-a", "b".to_owned())];
    receiver.set_path("/full", Answer::Full { status: 201, headers, body: b"made".to_vec() });
    receiver.set_path("/late", Behaviour { delay: Duration::from_millis(200), ..Behaviour::default() });
    assert!(post(&receiver, "/gone", "", "").starts_with("HTTP/1.1 410 Gone\r\n"));
    let busy = post(&receiver, "/busy", "", "");
    assert!(busy.starts_with("HTTP/1.1 429 ") && busy.contains("\r\nretry-after: 7\r\n"), "{busy}");
    let full = post(&receiver, "/full", "", "");
    assert!(
        full.starts_with("HTTP/1.1 201 ") && full.contains("\r\nx-a: b\r\n") && full.ends_with("\r\nmade"),
        "{full}"
    );
    let start = Instant::now();
    post(&receiver, "/late", "", "");
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_kept() {
    let receiver = Receiver::start();
    receiver.close_idle_after(Duration::from_secs(2));
    let mut stream = connect(&receiver);
    let mut start = Instant::now();
    for _ in 0..3 {
        start = Instant::now();
        send(&mut stream, "/", "", "{}");
        let mut answer = [0; 512];
        assert!(stream.read(&mut answer).unwrap() > 0);
    }
    assert_eq!(receiver.requests().iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!((Duration::from_secs(2)..Duration::from_secs(9)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn silence_hang_and_half_an_answer_leave_the_connection_open() {
    let receiver = Receiver::start();
    let (mut hung, _) = beginning(&receiver, Answer::Hang, 0);
    assert!(is_silent(&mut hung));
    let (mut half, head) = beginning(&receiver, Answer::HalfBody, 44);
    assert!(head.ends_with(b"\r\n\r\nhalf."), "{}", String::from_utf8_lossy(&head));
    assert!(is_silent(&mut half));

    receiver.set_silent(true);
    let count = receiver.count();
    let (mut silent, _) = beginning(&receiver, Answer::Status(200), 0);
    assert!(is_silent(&mut silent));
    assert_eq!(receiver.count(), count);
}

#[test]
fn a_connection_can_end_without_a_byte() {
    let receiver = Receiver::start();
    let (mut closed, _) = beginning(&receiver, Answer::Close, 0);
    assert_eq!(closed.read(&mut [0]).unwrap(), 0);
    let (mut reset, _) = beginning(&receiver, Answer::Reset, 0);
    assert_eq!(reset.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn drips_arrive_byte_by_byte() {
    let receiver = Receiver::start();
    let every = Duration::from_millis(20);
    let start = Instant::now();
    let (_, head) = beginning(&receiver, Answer::DripHead { every }, 12);
    assert_eq!(head, b"HTTP/1.1 200");
    assert!(start.elapsed() >= 11 * every);

    let start = Instant::now();
    let (_, answer) = beginning(&receiver, Answer::DripBody { every }, 57);
    assert!(answer.ends_with(b"\r\n\r\nxxxxxxxxxx"), "{}", String::from_utf8_lossy(&answer));
    assert!(start.elapsed() >= 9 * every);
}

#[test]
fn bombs_go_on_until_the_caller_has_had_enough() {
    let receiver = Receiver::start();
    let enough = 3_000_000;
    let (_, flood) = beginning(&receiver, Answer::InformationalFlood, enough);
    assert!(flood.starts_with(b"HTTP/1.1 103 Early Hints\r\n"));
    assert!(!flood.windows(12).any(|window| window == b"HTTP/1.1 200"));
    let (_, headers) = beginning(&receiver, Answer::EndlessHeaders, enough);
    assert!(!headers.windows(4).any(|window| window == b"\r\n\r\n"));
    let (_, huge) = beginning(&receiver, Answer::HugeBody { bytes: 10 << 30 }, enough);
    assert!(huge.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n"));
    receiver.set(Answer::Status(200));
    assert_eq!(status(&receiver, "/", "a"), 200, "the receiver survives its own bombs");
}

#[test]
fn a_gzip_bomb_unpacks_to_a_thousand_times_its_size() {
    let receiver = Receiver::start();
    let (_, answer) = beginning(&receiver, Answer::GzipBomb, 20_000);
    let start = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let packed = &answer[start..];
    let mut gzip = Command::new("gzip");
    let mut gzip = gzip.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let unpacked = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(packed).unwrap());
        let mut unpacked = Vec::new();
        gzip.stdout.take().unwrap().read_to_end(&mut unpacked).unwrap();
        unpacked
    });
    gzip.wait().unwrap();
    assert!(unpacked.len() > 1000 * packed.len(), "{} from {}", unpacked.len(), packed.len());
    assert!(unpacked.iter().all(|byte| *byte == 0));
}
