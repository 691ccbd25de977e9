//! `THROTTLE` through the binary: real clients, tenants, replicas on one Redis, and strangers who mean no good.

mod clients;
mod doors;
mod hostile;
mod replicas;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::support::{Port, Setup, Tidegate};

const PATIENCE: Duration = Duration::from_secs(20);

/// The binary with its RESP listener open.
struct Server {
    tidegate: Tidegate,
    port: Port,
}

impl Server {
    fn start(setup: Setup) -> Server {
        let port = Port::reserve();
        let tidegate = setup.env("RESP_ADDR", &port.addr().to_string()).start();
        Server { tidegate, port }
    }

    fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    fn client(&self) -> Client {
        Client::open(self.addr()).unwrap()
    }
}

/// The protocol by hand: it also says what no library would.
struct Client(BufReader<TcpStream>);

impl Client {
    fn open(addr: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// One command and its reply, on one line: arrays as their items between spaces.
    fn ask(&mut self, words: &[&str]) -> String {
        self.send(&command(words)).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match (line.get(..1), line.get(1..).and_then(|length| length.parse::<usize>().ok())) {
            (Some("*"), Some(length)) => (0..length).map(|_| self.reply()).collect::<Vec<_>>().join(" "),
            (Some("%"), Some(length)) => (0..length * 2).map(|_| self.reply()).collect::<Vec<_>>().join(" "),
            (Some("$"), Some(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..length]).into_owned()
            }
            _ => line.strip_prefix([':', '+']).unwrap_or(line).to_owned(),
        }
    }

    /// Everything until the server hangs up.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A server that hangs up on unread bytes resets the connection: what it said before counts.
        drop::<io::Result<usize>>(self.0.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Has the server closed it? Asks without waiting.
    fn is_closed(&mut self) -> bool {
        let stream = self.0.get_mut();
        stream.set_nonblocking(true).unwrap();
        let seen = stream.read(&mut [0; 1024]);
        stream.set_nonblocking(false).unwrap();
        match seen {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// A command as libraries write it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
