//! Just enough of Redis' protocol to start, arrange and question servers, so that neither a client crate nor
//! `redis-cli` is needed for it.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// A server that is stopped by a signal accepts and says nothing: no question waits longer than this.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    Error(String),
    List(Vec<Reply>),
}

/// As `redis-cli` prints it into a pipe: one value per line.
impl fmt::Display for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => Ok(()),
            Reply::Integer(number) => write!(out, "{number}"),
            Reply::Text(text) | Reply::Error(text) => out.write_str(text),
            Reply::List(replies) => {
                for (place, reply) in replies.iter().enumerate() {
                    let separator = if place == 0 { "" } else { "\n" };
                    write!(out, "{separator}{reply}")?;
                }
                Ok(())
            }
        }
    }
}

/// One question over a connection of its own. An error reply is an `Ok(Reply::Error)`.
pub fn ask<S: AsRef<str>>(port: u16, command: &[S]) -> io::Result<Reply> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        let word = word.as_ref();
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    read(&mut BufReader::new(stream))
}

fn read(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let Some((kind, rest)) = line.split_at_checked(1) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    let rest = rest.trim_end();
    let length = || rest.parse::<i64>().map_err(io::Error::other);
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Integer(length()?)),
        "$" => match usize::try_from(length()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
        },
        "*" => match usize::try_from(length()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => (0..length).map(|_| read(stream)).collect::<io::Result<_>>().map(Reply::List),
        },
        _ => Err(io::Error::other(format!("this is not Redis' protocol: {line:?}"))),
    }
}
