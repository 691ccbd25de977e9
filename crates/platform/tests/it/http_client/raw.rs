//! A server that answers byte for byte as a test says, and keeps a list of who called it at which address.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[derive(Clone, Debug)]
pub(super) enum Action {
    Send(String),
    /// The last words of this connection; they may be none.
    End(String),
}

/// What is done with the nth request of the nth connection.
type Script = dyn Fn(usize, usize) -> Action + Send + Sync;

pub(super) struct RawServer {
    pub(super) addr: SocketAddr,
    /// The address that each connection was made to.
    accepted: Arc<Mutex<Vec<IpAddr>>>,
    /// Head and body of each request.
    requests: Arc<Mutex<Vec<String>>>,
}

impl RawServer {
    pub(super) fn start(bind: &str, script: impl Fn(usize, usize) -> Action + Send + Sync + 'static) -> RawServer {
        RawServer::start_impatient(bind, None, script)
    }

    /// Closes a connection that is idle for this long after an answer; a new one may take its time.
    pub(super) fn start_impatient(
        bind: &str,
        idle: Option<Duration>,
        script: impl Fn(usize, usize) -> Action + Send + Sync + 'static,
    ) -> RawServer {
        let listener = TcpListener::bind(bind).unwrap();
        let addr = listener.local_addr().unwrap();
        let (accepted, requests) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let server = RawServer { addr, accepted: Arc::clone(&accepted), requests: Arc::clone(&requests) };
        let script: Arc<Script> = Arc::new(script);
        // Ends with the process.
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                accepted.lock().unwrap().push(stream.local_addr().unwrap().ip().to_canonical());
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                thread::spawn(move || serve(stream, number, idle, &*script, &requests));
            }
        });
        server
    }

    pub(super) fn accepted(&self) -> Vec<IpAddr> {
        self.accepted.lock().unwrap().clone()
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }
}

fn serve(
    mut stream: TcpStream,
    connection: usize,
    idle: Option<Duration>,
    script: &Script,
    requests: &Mutex<Vec<String>>,
) {
    stream.set_nodelay(true).unwrap();
    for nth in 0.. {
        let Some(request) = read_request(&mut stream) else { return };
        requests.lock().unwrap().push(request);
        stream.set_read_timeout(idle).unwrap();
        match script(connection, nth) {
            Action::Send(bytes) => {
                if stream.write_all(bytes.as_bytes()).is_err() {
                    return;
                }
            }
            Action::End(bytes) => {
                drop(stream.write_all(bytes.as_bytes()));
                return;
            }
        }
    }
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(count @ 1..) => bytes.extend(&part[..count]),
            _ => return None,
        }
    }
}
