//! Just enough of PostgreSQL's protocol to see that a server answers and to run a statement, so that neither a client
//! crate nor `psql` is needed for it. Trust authentication and simple queries only.

use std::{
    io::{self, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// A server that is stopped by a signal accepts and says nothing: no question waits longer than this.
const DEADLINE: Duration = Duration::from_secs(20);
const PROTOCOL_3_0: u32 = 196_608;
const LONGEST_MESSAGE: usize = 16 << 20;

/// A row's columns as text; NULL is None.
pub type Row = Vec<Option<String>>;

/// Runs one statement over a connection of its own and gives its rows.
pub fn query(port: u16, database: &str, sql: &str) -> io::Result<Vec<Row>> {
    let mut connection = connect(port, database)?;
    send(connection.get_mut(), Some(b'Q'), format!("{sql}\0").as_bytes())?;
    let mut rows = Vec::new();
    until_ready(&mut connection, |body| rows.push(row(body)))?;
    rows.into_iter().collect()
}

fn connect(port: u16, database: &str) -> io::Result<BufReader<TcpStream>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let mut hello = PROTOCOL_3_0.to_be_bytes().to_vec();
    hello.extend_from_slice(format!("user\0postgres\0database\0{database}\0\0").as_bytes());
    send(&mut stream, None, &hello)?;
    let mut connection = BufReader::new(stream);
    until_ready(&mut connection, |_| ())?;
    Ok(connection)
}

fn send(stream: &mut TcpStream, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
    let mut message: Vec<u8> = kind.into_iter().collect();
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(body);
    stream.write_all(&message)
}

/// Reads up to "ready for query", gives each row's body to `on_row`, and reports the first error on the way.
fn until_ready(stream: &mut impl Read, mut on_row: impl FnMut(&[u8])) -> io::Result<()> {
    let mut error = None;
    loop {
        let mut head = [0; 5];
        if let Err(end) = stream.read_exact(&mut head) {
            return Err(error.unwrap_or(end));
        }
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        let mut body = vec![0; length.saturating_sub(4).min(LONGEST_MESSAGE)];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => return error.map_or(Ok(()), Err),
            b'D' => on_row(&body),
            b'E' => error = error.or(Some(server_error(&body))),
            _ => {}
        }
    }
}

/// An error is a list of fields, each a letter and a text; `M` is the message.
fn server_error(body: &[u8]) -> io::Error {
    let fields = String::from_utf8_lossy(body);
    let message = fields.split('\0').find_map(|field| field.strip_prefix('M'));
    io::Error::other(message.unwrap_or("the server gave no message").to_owned())
}

fn row(mut body: &[u8]) -> io::Result<Row> {
    let mut count = [0; 2];
    body.read_exact(&mut count)?;
    (0..u16::from_be_bytes(count))
        .map(|_| {
            let mut length = [0; 4];
            body.read_exact(&mut length)?;
            let Ok(length) = usize::try_from(i32::from_be_bytes(length)) else { return Ok(None) };
            let mut text = vec![0; length];
            body.read_exact(&mut text)?;
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}
