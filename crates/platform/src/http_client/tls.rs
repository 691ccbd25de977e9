//! TLS: always verified, 1.2 or newer, HTTP/2 where the receiver offers it.
//!
//! A subscription may bring an authority of its own, a client certificate, or both. Such an identity has connections
//! and sessions of its own: nothing opened with one is ever used with another.

use std::{fmt, io, net::IpAddr, sync::Arc};

use aws_lc_rs::digest;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use super::{Refused, target::TargetHost};

const SESSIONS: usize = 8192;
const SESSIONS_OF_AN_IDENTITY: usize = 32;

/// What a subscription brings to TLS, as PEM. Absent means: Mozilla's roots, no client certificate.
#[derive(Clone, Copy, Default)]
pub struct TlsFiles<'a> {
    /// Trusted instead of Mozilla's roots.
    pub authority: Option<&'a [u8]>,
    /// Certificate chain and private key shown to the receiver.
    pub client: Option<(&'a [u8], &'a [u8])>,
}

/// A subscription's own authority and client certificate, ready for use. Build it once and keep it.
pub struct TlsIdentity {
    pub(super) config: Arc<ClientConfig>,
    /// Of the material: what is the same to the receiver may share connections.
    pub(super) digest: [u8; 32],
}

impl TlsIdentity {
    pub fn new(files: TlsFiles<'_>) -> Result<Self, Refused> {
        let config = config(files, SESSIONS_OF_AN_IDENTITY).map_err(|error| {
            Refused::new("tls_identity", format!("the certificates or the key cannot be used: {error}"))
        })?;
        let mut context = digest::Context::new(&digest::SHA256);
        let (chain, key) = files.client.unwrap_or_default();
        for part in [files.authority.unwrap_or_default(), chain, key] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Ok(TlsIdentity { config: Arc::new(config), digest })
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TlsIdentity(***)")
    }
}

pub(super) fn default_config() -> Arc<ClientConfig> {
    Arc::new(config(TlsFiles::default(), SESSIONS).expect("without files there is nothing to be wrong"))
}

pub(super) fn server_name(host: &TargetHost) -> Result<ServerName<'static>, Refused> {
    match host {
        TargetHost::Address(ip) => Ok(ServerName::from(*ip as IpAddr)),
        TargetHost::Name(name) => ServerName::try_from(name.to_string())
            .map_err(|_| Refused::new("url_host", "the host name cannot be in a certificate")),
    }
}

fn config(files: TlsFiles<'_>, sessions: usize) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match files.authority {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    let mut config = match files.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| io::Error::other("no private key in PEM"))?;
            builder.with_client_auth_cert(certificates(chain)?, key).map_err(io::Error::other)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(sessions);
    Ok(config)
}

fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(io::Error::other("no certificate in PEM")),
    }
}
