//! A TLS server on loopback and the authorities behind its certificates.
//!
//! What it does depends on the path: `/hook` echoes; the others misbehave as their name says.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use platform::{
    http_client::{Answer, Call, CallError, HttpClient, Reachable, Target, TlsFiles, TlsIdentity},
    shutdown::Tasks,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::DEADLINE;

/// A certificate authority of this test.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key, as PEM.
    pub(super) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Trusts this authority alone, and shows a client certificate if there is one.
    pub(super) fn identity(&self, client: Option<&(String, String)>) -> Arc<TlsIdentity> {
        let pem = self.0.pem();
        let client = client.map(|(chain, key)| (chain.as_bytes(), key.as_bytes()));
        Arc::new(TlsIdentity::new(TlsFiles { authority: Some(pem.as_bytes()), client }).unwrap())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// Whose certificates callers may show, and whether they must.
pub(super) struct Clients<'a>(pub(super) &'a Authority, pub(super) bool);

/// Version, `host` or `:authority`, and who the caller proved to be.
pub(super) type Seen = (Version, String, Option<Vec<u8>>);

pub(super) struct Server {
    pub(super) addr: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    serving: AtomicUsize,
    closes_politely: AtomicBool,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    /// Serves with this certificate; asks for a client's where `clients` is given.
    pub(super) async fn start(
        certificate: &(String, String),
        clients: Option<Clients<'_>>,
        protocols: &[&str],
    ) -> Server {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(Clients(authority, must_show)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authority.roots(), provider);
                let verifier = if must_show { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = CertificateDer::pem_slice_iter(certificate.0.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(certificate.1.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server { addr: listener.local_addr().unwrap(), state: Arc::default(), tasks: Tasks::new() };
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        server.tasks.spawn("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                state.connections.fetch_add(1, Ordering::Relaxed);
                tasks.spawn("connection", connection(stream, acceptor.clone(), Arc::clone(&state)));
            }
        });
        server
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    pub(super) fn is_serving(&self) -> bool {
        self.state.serving.load(Ordering::Relaxed) > 0
    }

    /// From now on each connection answers one request, reads another, and says in TLS that it closes.
    pub(super) fn close_politely(&self) {
        self.state.closes_politely.store(true, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub(super) async fn call(
        &self,
        client: &HttpClient,
        path: &str,
        tls: Option<&Arc<TlsIdentity>>,
    ) -> Result<Answer, CallError> {
        self.call_within(client, path, tls, DEADLINE).await
    }

    pub(super) async fn call_within(
        &self,
        client: &HttpClient,
        path: &str,
        tls: Option<&Arc<TlsIdentity>>,
        deadline: Duration,
    ) -> Result<Answer, CallError> {
        let target =
            Target::parse(&format!("https://localhost:{}{path}", self.addr.port()), &Reachable::loopback()).unwrap();
        let body = Bytes::from_static(b"{\"a\":1}");
        client.post(Call { target: &target, headers: &[], body, deadline, tls }).await
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    state.serving.fetch_add(1, Ordering::Relaxed);
    serve(stream, acceptor, Arc::clone(&state)).await;
    state.serving.fetch_sub(1, Ordering::Relaxed);
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    if state.closes_politely.load(Ordering::Relaxed) {
        return polite(&mut stream).await.unwrap_or_default();
    }
    let peer = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
    let visit = Arc::new(Visit { state, peer, last: Notify::new(), dead: Notify::new() });
    let service = {
        let visit = Arc::clone(&visit);
        service_fn(move |request| answer(request, Arc::clone(&visit)))
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // What most receivers allow.
    builder.http2().max_concurrent_streams(100);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            _ = serving.as_mut() => return,
            () = visit.last.notified() => serving.as_mut().graceful_shutdown(),
            () = visit.dead.notified() => return,
        }
    }
}

async fn polite(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    // A request comes whole.
    let mut request = [0; 4096];
    if stream.read(&mut request).await? > 0 {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
    if stream.read(&mut request).await? > 0 {
        stream.shutdown().await?;
    }
    Ok(())
}

/// One connection, as its answers see it.
struct Visit {
    state: Arc<State>,
    peer: Option<Vec<u8>>,
    last: Notify,
    dead: Notify,
}

async fn answer(request: Request<Incoming>, visit: Arc<Visit>) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
    let host = host.or(request.uri().authority().map(ToString::to_string)).unwrap();
    visit.state.seen.lock().unwrap().push((request.version(), host, visit.peer.clone()));
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::new(body));
    match path.as_str() {
        "/last" => visit.last.notify_one(),
        "/huge" => *response.body_mut() = Full::new(vec![b'x'; 8 << 20].into()),
        "/head" => {
            let value = HeaderValue::try_from("x".repeat(1000)).unwrap();
            for _ in 0..90 {
                response.headers_mut().append("x-long", value.clone());
            }
        }
        "/die" => {
            visit.dead.notify_one();
            std::future::pending().await
        }
        "/hang" => std::future::pending().await,
        _ => (),
    }
    Ok(response)
}
