//! A plain client of the listeners under test, and limits for them: generous ones, and such that are soon reached.

use std::{net::SocketAddr, time::Duration};

use platform::http_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// For everything that happens in milliseconds, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Longer than any test waits.
const NEVER: Duration = Duration::from_mins(1);
pub(crate) const LIMITS: Limits = Limits {
    max_connections: 64,
    header_timeout: NEVER,
    request_timeout: NEVER,
    idle_timeout: NEVER,
    max_body: 1024,
    drain_timeout: NEVER,
};
/// For tests that wait for the end of a time.
pub(crate) const BRIEF: Limits = Limits {
    header_timeout: Duration::from_millis(300),
    request_timeout: Duration::from_millis(600),
    drain_timeout: Duration::from_millis(500),
    ..LIMITS
};

/// A connection.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn open(addr: SocketAddr) -> Client {
        Client(TcpStream::connect(addr).await.unwrap())
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// One whole answer.
    pub(crate) async fn answer(&mut self) -> String {
        let mut answer = String::new();
        let read = async {
            while !is_whole(&answer) {
                answer.push(char::from(self.0.read_u8().await.expect("an answer is whole")));
            }
        };
        timeout(SOON, read).await.expect("an answer comes");
        answer
    }

    /// The rest, up to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset after the answer is as good an end as any.
        drop(timeout(SOON, self.0.read_to_end(&mut rest)).await.expect("the server closes the connection"));
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Sends these bytes again and again, one at a time, until the server hangs up.
    pub(crate) async fn drip(&mut self, bytes: &[u8]) {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        let drip = async {
            for byte in bytes.iter().cycle() {
                tick.tick().await;
                if self.0.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
        };
        timeout(SOON, drip).await.expect("the server hangs up on a dripping head");
    }
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.split_once("content-length: ").expect("every answer has a length").1;
    body.len() == length.split("\r\n").next().unwrap().parse::<usize>().unwrap()
}
