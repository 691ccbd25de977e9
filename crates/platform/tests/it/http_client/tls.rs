//! TLS is verified, and identities never share a connection.

use http::Version;
use platform::http_client::{TlsFiles, TlsIdentity};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    open_client,
    tls_server::{Authority, Clients, Server},
};

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_refused() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("localhost"), None, &["http/1.1"]).await;
    let client = open_client();
    let error = server.call(&client, "/hook", None).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
    let error = server.call(&client, "/hook", Some(&Authority::new().identity(None))).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let server = Server::start(&authority.issue("example.com"), None, &["h2"]).await;
    let error = server.call(&open_client(), "/hook", Some(&authority.identity(None))).await.unwrap_err();
    assert_eq!(error.class(), "tls", "{error}");
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_and_http1_is_used_where_nothing_else_is_offered() {
    let authority = Authority::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let server = Server::start(&authority.issue("localhost"), None, protocols).await;
        let (client, identity) = (open_client(), authority.identity(None));
        for _ in 0..20 {
            assert_eq!(&server.call(&client, "/hook", Some(&identity)).await.unwrap().body[..], b"{\"a\":1}");
        }
        assert_eq!(server.connections(), 1);
        assert!(server.seen().iter().all(|seen| seen.0 == Version::HTTP_11));
    }
}

#[tokio::test]
async fn identities_never_share_a_connection() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (alice, bob) = (clients.issue("alice"), clients.issue("bob"));
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    for protocol in ["h2", "http/1.1"] {
        let server = Server::start(&authority.issue("localhost"), Some(Clients(&clients, false)), &[protocol]).await;
        let client = open_client();
        let identities = [
            (authority.identity(Some(&alice)), Some(der(&alice.0))),
            (authority.identity(Some(&bob)), Some(der(&bob.0))),
            (authority.identity(None), None),
            // The same material again: the same identity.
            (authority.identity(Some(&alice)), Some(der(&alice.0))),
        ];
        for _ in 0..3 {
            for (identity, proof) in &identities {
                server.call(&client, "/hook", Some(identity)).await.unwrap();
                assert_eq!(&server.seen().last().unwrap().2, proof);
            }
        }
        assert_eq!(server.connections(), 3, "{protocol}");
    }
}

/// In TLS 1.3 the handshake is over for the caller when the receiver looks at its certificate.
#[tokio::test]
async fn a_receiver_that_wants_a_certificate_and_gets_none_is_a_matter_of_tls() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let stranger = Authority::new().issue("stranger");
    for protocol in ["h2", "http/1.1"] {
        let server = Server::start(&authority.issue("localhost"), Some(Clients(&clients, true)), &[protocol]).await;
        for client in [None, Some(&stranger)] {
            let error = server.call(&open_client(), "/hook", Some(&authority.identity(client))).await.unwrap_err();
            assert_eq!(error.class(), "tls", "{protocol}: {error}");
            assert!(error.to_string().contains("alert"), "{protocol}: {error}");
        }
        assert_eq!(server.seen().len(), 0);
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
