//! HTTP/1.1 by hand: it sends what a decent client library would refuse to send, and sees exactly what comes back.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use super::ADMIN_KEY;

const PATIENCE: Duration = Duration::from_secs(30);

/// A request to be sent on a connection of its own.
#[derive(Clone)]
pub(crate) struct Call {
    head: Vec<u8>,
    has_host: bool,
    body: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Call { head: format!("{method} {path} HTTP/1.1\r\n").into_bytes(), has_host: false, body: None }
    }

    pub(crate) fn get(path: &str) -> Self {
        Call::new("GET", path)
    }

    /// POST with a JSON body.
    pub(crate) fn post(path: &str, body: Value) -> Self {
        Call::new("POST", path).json(body)
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.has_host |= name == "host";
        self.head.extend_from_slice(&[name.as_bytes(), b": ", value.as_ref(), b"\r\n"].concat());
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    pub(crate) fn admin(self) -> Self {
        self.key(ADMIN_KEY)
    }

    pub(crate) fn json(self, body: Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(crate) fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self = self.header("content-type", content_type).header("content-length", body.len().to_string());
        self.body = Some(body);
        self
    }

    #[track_caller]
    pub(crate) fn to(self, addr: SocketAddr) -> Response {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        self.try_to(addr).unwrap_or_else(|error| panic!("{error} after {head}"))
    }

    pub(crate) fn try_to(self, addr: SocketAddr) -> io::Result<Response> {
        let mut connection = Connection::open(addr)?;
        let mut request = self.head;
        if !self.has_host {
            request.extend_from_slice(format!("host: {addr}\r\n").as_bytes());
        }
        request.extend_from_slice(b"connection: close\r\n\r\n");
        request.extend(self.body.unwrap_or_default());
        // A server that refuses a body may answer and close before it has read all of it.
        let sent = connection.send(&request);
        let answer = connection.receive();
        if answer.is_err() { sent.and(answer) } else { answer }
    }
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The answer's body, once its status is right.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// A problem with this status and code, in the one shape that problems have.
    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }
}

/// An open connection, to send a request piece by piece.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection(stream))
    }

    /// A request that the server has begun to handle and whose body is still missing.
    pub(crate) fn in_flight(addr: SocketAddr, path: &str, body_len: usize) -> Self {
        let mut connection = Connection::open(addr).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {ADMIN_KEY}\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: {body_len}\r\n\r\n"
        );
        connection.send(head.as_bytes()).unwrap();
        // The server says this when the handler asks for the body.
        let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut answer = vec![0; go_on.len()];
        connection.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, go_on);
        connection
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads to the end of the connection: every request says `connection: close`.
    pub(crate) fn receive(&mut self) -> io::Result<Response> {
        let mut bytes = Vec::new();
        let ended = self.0.read_to_end(&mut bytes);
        match parse(&bytes) {
            Some(response) => Ok(response),
            None => ended.and(Err(io::Error::other(format!("no whole answer: {:?}", String::from_utf8_lossy(&bytes))))),
        }
    }

    /// Has the server closed it? Asks without waiting.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let seen = self.0.read(&mut [0; 1024]);
        self.0.set_nonblocking(false).unwrap();
        match seen {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// A header that makes no difference to anyone, but the lane before the router leaves such a request alone.
pub(crate) const NOT_PLAIN: &str = "te: trailers\r\n";

/// A connection that stays open, and what is sent in one write.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn open(addr: SocketAddr) -> Self {
        Client(Connection::open(addr).unwrap().0)
    }

    /// POST with these header lines; the whole answer.
    pub(crate) fn ask(&mut self, target: &str, headers: &str, body: &str) -> String {
        let request = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while parse(&answer).is_none() {
            let mut chunk = [0; 4096];
            let count = self.0.read(&mut chunk).unwrap();
            assert!(count > 0, "the connection was closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// `None` unless the answer is whole.
fn parse(bytes: &[u8]) -> Option<Response> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let response = Response { status, headers, body: body.to_owned() };
    let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
    (response.body.len() == length).then_some(response)
}
