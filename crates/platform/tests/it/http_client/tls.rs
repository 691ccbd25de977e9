//! TLS is verified, HTTP/2 is used where it is offered, and identities never share a connection.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use platform::{
    http_client::{Answer, Call, CallError, HttpClient, Target, TlsFiles, TlsIdentity},
    shutdown::Tasks,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{DEADLINE, open_client};

/// A certificate authority of this test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

fn identity(authority: &Authority, client: Option<&(String, String)>) -> Arc<TlsIdentity> {
    let pem = authority.pem();
    let client = client.map(|(chain, key)| (chain.as_bytes(), key.as_bytes()));
    Arc::new(TlsIdentity::new(TlsFiles { authority: Some(pem.as_bytes()), client }).unwrap())
}

/// Version, `host` or `:authority`, and who the caller proved to be.
type Seen = (Version, String, Option<Vec<u8>>);

struct Server {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: Tasks,
}

/// Serves with this certificate; asks for a client's where `clients` is given.
async fn serve(certificate: (String, String), clients: Option<&Authority>, protocols: &[&str]) -> Server {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authority.roots(), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(certificate.0.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(certificate.1.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, tasks) = (listener.local_addr().unwrap(), Tasks::new());
    let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let server = Server { addr, connections: Arc::clone(&connections), seen: Arc::clone(&seen), _tasks: tasks.clone() };
    let spawner = tasks.clone();
    tasks.spawn("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::Relaxed);
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            spawner.spawn("connection", async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let peer = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (seen, peer) = (Arc::clone(&seen), peer.clone());
                    async move {
                        let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
                        let host = host.or(request.uri().authority().map(ToString::to_string)).unwrap();
                        seen.lock().unwrap().push((request.version(), host, peer));
                        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        Ok::<_, Infallible>(Response::new(Full::new(body)))
                    }
                });
                drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    server
}

impl Server {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    async fn call(&self, client: &HttpClient, tls: Option<&Arc<TlsIdentity>>) -> Result<Answer, CallError> {
        let target = Target::parse(&format!("https://localhost:{}/hook", self.addr.port()), true).unwrap();
        let body = Bytes::from_static(b"{\"a\":1}");
        client.post(Call { target: &target, headers: &[], body, deadline: DEADLINE, tls }).await
    }
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_refused() {
    let authority = Authority::new();
    let server = serve(authority.issue("localhost"), None, &["http/1.1"]).await;
    let client = open_client();
    let error = server.call(&client, None).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
    let error = server.call(&client, Some(&identity(&Authority::new(), None))).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
    assert_eq!(server.seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let server = serve(authority.issue("example.com"), None, &["h2"]).await;
    let error = server.call(&open_client(), Some(&identity(&authority, None))).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_and_http1_is_used_where_nothing_else_is_offered() {
    let authority = Authority::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let server = serve(authority.issue("localhost"), None, protocols).await;
        let (client, identity) = (open_client(), identity(&authority, None));
        for _ in 0..20 {
            assert_eq!(&server.call(&client, Some(&identity)).await.unwrap().body[..], b"{\"a\":1}");
        }
        assert_eq!(server.connections(), 1);
        assert!(server.seen.lock().unwrap().iter().all(|seen| seen.0 == Version::HTTP_11));
    }
}

#[tokio::test]
async fn http2_carries_parallel_calls_over_one_connection() {
    let authority = Authority::new();
    let server = serve(authority.issue("localhost"), None, &["h2", "http/1.1"]).await;
    let (client, identity) = (open_client(), identity(&authority, None));
    server.call(&client, Some(&identity)).await.unwrap();
    for _ in 0..10 {
        for answer in join_all((0..50).map(|_| server.call(&client, Some(&identity)))).await {
            let answer = answer.unwrap();
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"{\"a\":1}"[..]));
        }
    }
    assert_eq!((server.connections(), client.idle()), (1, 1));
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.len(), 501);
    let host = format!("localhost:{}", server.addr.port());
    assert!(seen.iter().all(|seen| seen.0 == Version::HTTP_2 && seen.1 == host));
}

#[tokio::test]
async fn identities_never_share_a_connection() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (alice, bob) = (clients.issue("alice"), clients.issue("bob"));
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    for protocol in ["h2", "http/1.1"] {
        let server = serve(authority.issue("localhost"), Some(&clients), &[protocol]).await;
        let client = open_client();
        let identities = [
            (identity(&authority, Some(&alice)), Some(der(&alice.0))),
            (identity(&authority, Some(&bob)), Some(der(&bob.0))),
            (identity(&authority, None), None),
            // The same material again: the same identity.
            (identity(&authority, Some(&alice)), Some(der(&alice.0))),
        ];
        for _ in 0..3 {
            for (identity, proof) in &identities {
                server.call(&client, Some(identity)).await.unwrap();
                assert_eq!(&server.seen.lock().unwrap().last().unwrap().2, proof);
            }
        }
        assert_eq!(server.connections(), 3, "{protocol}");
    }
}

#[test]
fn files_that_are_no_certificates_are_refused_by_name() {
    let authority = Authority::new();
    let (chain, key) = authority.issue("alice");
    let (other, _) = authority.issue("bob");
    let refused = |authority, client| TlsIdentity::new(TlsFiles { authority, client }).unwrap_err().code;
    assert_eq!(refused(Some(&b"junk"[..]), None), "tls_identity");
    assert_eq!(refused(Some(&b""[..]), None), "tls_identity");
    assert_eq!(refused(None, Some((chain.as_bytes(), &b"junk"[..]))), "tls_identity");
    assert_eq!(refused(None, Some((other.as_bytes(), key.as_bytes()))), "tls_identity");
    let identity = TlsIdentity::new(TlsFiles { authority: None, client: Some((chain.as_bytes(), key.as_bytes())) });
    assert_eq!(format!("{:?}", identity.unwrap()), "TlsIdentity(***)");
}
