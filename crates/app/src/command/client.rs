//! Calls of the commands to a running Tidegate: HTTP/1.1 over one connection that is kept and opened again when it ends.
//!
//! Every failure says what the person at the terminal can do about it. A call is sent again by its caller, or by
//! [`until_answered`]; never by itself.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use platform::{config::Invalid, secret::Secret, shutdown::Tasks};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::cli;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(60);
const LARGEST_ANSWER: usize = 64 << 20;

/// Where Tidegate is, and who is calling. Cheap to clone.
#[derive(Clone)]
pub(super) struct Server(Arc<Inner>);

struct Inner {
    url: Url,
    key: Option<Secret>,
    tenant: Option<String>,
    tasks: Tasks,
}

impl Server {
    pub(super) fn new(arguments: &cli::Server, tasks: Tasks) -> Result<Self, Invalid> {
        let mistake = || {
            Invalid::new("--url", format!("{:?} is not a URL: write one such as http://127.0.0.1:8080", arguments.url))
        };
        let url = Url::parse(&arguments.url).map_err(|_| mistake())?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(mistake());
        }
        let key = arguments.key();
        Ok(Server(Arc::new(Inner { url, key, tenant: arguments.tenant.clone(), tasks })))
    }

    /// A client with a connection of its own, opened by its first call.
    pub(super) fn client(&self) -> Client {
        Client { server: self.clone(), connection: None }
    }

    /// Where its connections are driven.
    #[cfg(feature = "kafka")]
    pub(super) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    fn unreachable(&self) -> String {
        let url = self.to_string();
        format!("no Tidegate answers at {url}: start one with `tidegate serve`, or name another with --url")
    }
}

/// As it is written to people, without the last slash.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.url.as_str().trim_end_matches('/'))
    }
}

/// One connection, one call at a time.
pub(super) struct Client {
    server: Server,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// What came back, whatever its status.
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What an API says when it refuses.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub status: u16,
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub detail: String,
}

/// An answer that is of no use, and that asking again would not change. Every other failure may pass.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Final(String);

/// Asks until there is an answer or no hope of one. A server that restarts is waited for, and `say` is told why, once.
pub(super) async fn until_answered<T>(
    pause: Duration,
    say: impl Fn(&anyhow::Error),
    mut ask: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut is_said = false;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is::<Final>() => return Err(error),
            Err(error) if !is_said => {
                is_said = true;
                say(&error);
            }
            Err(_) => (),
        }
        tokio::time::sleep(pause).await;
    }
}

impl Answer {
    /// The body, once the status is a success; otherwise the API's own sentence.
    pub(super) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        if self.is_transient() {
            return Err(anyhow!(self.refusal()));
        }
        if !self.status.is_success() {
            return Err(Final(self.refusal()).into());
        }
        let foreign = || Final("the answer is not Tidegate's: check --url".to_owned());
        serde_json::from_slice(&self.body).with_context(foreign)
    }

    /// Why it was refused, and what to do where that is not said already.
    pub(super) fn refusal(&self) -> String {
        let refusal: Refusal = serde_json::from_slice(&self.body).unwrap_or_default();
        match (self.status, refusal.detail) {
            (StatusCode::UNAUTHORIZED, detail) => {
                format!("{detail}: pass one with --key or TIDEGATE_KEY; `tidegate keys create` makes one")
            }
            (status, detail) if detail.is_empty() => {
                format!("the answer was {status}, and not Tidegate's: check --url")
            }
            (status, detail) => format!("refused with {}: {detail}", status.as_u16()),
        }
    }

    /// It may be sent again: the server has no room, or is not whole right now.
    pub(super) fn is_transient(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS || self.status.is_server_error()
    }

    /// How long to wait before that.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        self.call(Method::GET, path, "", Bytes::new()).await?.read()
    }

    /// `None`: there is no such thing.
    pub(super) async fn find<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<Option<T>> {
        let answer = self.call(Method::GET, path, "", Bytes::new()).await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { answer.read().map(Some) }
    }

    pub(super) async fn post(&mut self, path: &str, content_type: &str, body: Bytes) -> anyhow::Result<Answer> {
        self.call(Method::POST, path, content_type, body).await
    }

    pub(super) async fn delete(&mut self, path: &str) -> anyhow::Result<Answer> {
        self.call(Method::DELETE, path, "", Bytes::new()).await
    }

    async fn call(&mut self, method: Method, path: &str, content_type: &str, body: Bytes) -> anyhow::Result<Answer> {
        let request = self.request(method, path, content_type, body)?;
        let exchange = tokio::time::timeout(DEADLINE, self.exchange(request)).await;
        exchange.unwrap_or_else(|_| Err(anyhow!("{} has not answered within {DEADLINE:?}", self.server)))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let Inner { url, key, tenant, .. } = &*self.server.0;
        let place = format!("{}{path}", url.path().trim_end_matches('/'));
        let mut request = Request::builder().method(method).uri(place).header(header::HOST, authority(url));
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(key) = key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", key.expose()));
        }
        if let Some(tenant) = tenant {
            request = request.header("x-tenant", tenant);
        }
        request.body(Full::new(body)).context("--key, --tenant or a filter holds a character that no header can")
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        // A connection that fails once is not used again: it is out of `self` until the exchange has ended well.
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && connection.ready().await.is_err()
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let ended = || format!("the connection to {} ended before the answer came", self.server);
        let response = connection.send_request(request).await.with_context(ended)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!(error)).with_context(ended)?.to_bytes();
        self.connection = Some(connection);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let Inner { url, tasks, .. } = &*self.server.0;
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(80);
        let opening = TcpStream::connect((host.trim_matches(['[', ']']), port));
        let opened =
            tokio::time::timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| anyhow!(self.server.unreachable()))?;
        let stream = opened.with_context(|| self.server.unreachable())?;
        stream.set_nodelay(true).context("the connection cannot be set up")?;
        if url.scheme() == "http" {
            return shake_hands(tasks, stream).await.with_context(|| self.server.unreachable());
        }
        let name =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).context("--url: the host has no name")?;
        let stream = tls()?.connect(name, stream).await.with_context(|| self.server.unreachable())?;
        shake_hands(tasks, stream).await.with_context(|| self.server.unreachable())
    }
}

async fn shake_hands<S>(tasks: &Tasks, stream: S) -> hyper::Result<SendRequest<Full<Bytes>>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
    // Its sender learns how it ended.
    tasks.spawn_servant("http connection", async move { drop(driver.await) });
    Ok(sender)
}

fn tls() -> anyhow::Result<TlsConnector> {
    let roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(versions.with_root_certificates(roots).with_no_client_auth())))
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
impl Server {
    /// Nobody ever answers there.
    pub(super) fn nowhere() -> Self {
        let url = Url::parse("http://127.0.0.1:0").expect("it is a URL");
        Server(Arc::new(Inner { url, key: None, tenant: None, tasks: Tasks::new() }))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::VecDeque};

    use serde_json::Value;

    use super::*;

    fn answer(status: u16, body: &'static str) -> anyhow::Result<Value> {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) }.read()
    }

    /// Returns what came of it, and how often it was said that the server is waited for.
    async fn ask(answers: Vec<anyhow::Result<Value>>) -> (anyhow::Result<Value>, u32) {
        let (mut answers, said) = (VecDeque::from(answers), Cell::new(0));
        let say = |_: &anyhow::Error| said.set(said.get() + 1);
        let outcome = until_answered(Duration::from_secs(1), say, async || answers.pop_front().unwrap()).await;
        assert!(answers.is_empty(), "it was asked once for every answer");
        (outcome, said.get())
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_for_and_said_once() {
        let outage = vec![Err(anyhow!("the connection ended")), answer(503, "{}"), answer(429, "{}"), answer(502, "x")];
        for (mut answers, said) in [(outage, 1), (Vec::new(), 0)] {
            answers.push(answer(200, "7"));
            let (outcome, is_said) = ask(answers).await;
            assert_eq!((outcome.unwrap(), is_said), (Value::from(7), said));
        }
    }

    /// `replay` and `tail` asked for ever, with a key that had been revoked meanwhile.
    #[tokio::test(start_paused = true)]
    async fn what_asking_again_would_not_change_is_an_error() {
        for (status, body, says) in [
            (401, r#"{"detail": "no key"}"#, "--key or TIDEGATE_KEY"),
            (403, r#"{"detail": "not yours"}"#, "refused with 403: not yours"),
            (404, r#"{"detail": "no job"}"#, "refused with 404: no job"),
            (404, "<html>", "check --url"),
            (200, "<html>", "check --url"),
        ] {
            let error = answer(status, body).context("a job could not be asked for");
            let (outcome, _) = ask(vec![answer(503, "{}"), error]).await;
            let error = outcome.unwrap_err();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
