//! A subscription's own certificate authority and client certificate, as PEM.
//!
//! All of it is kept sealed, with the private key in it; what may be known of it is shown again, the key never is.

use std::sync::Arc;

use platform::{
    config::Invalid,
    http_client::{TlsFiles, TlsIdentity},
    secret::Secret,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

/// Bytes of each part: a long chain has some ten thousand.
const LONGEST: usize = 64 << 10;

/// What a subscription brings to TLS.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Trusted instead of the public authorities, for a receiver whose certificate none of them signed.
    #[schema(example = "-----BEGIN CERTIFICATE-----\n…")]
    pub ca: Option<String>,
    /// The certificate chain that is shown to the receiver (mutual TLS), its own certificate first.
    #[schema(example = "-----BEGIN CERTIFICATE-----\n…")]
    pub certificate: Option<String>,
    /// The private key of `certificate`. Kept sealed and never shown again.
    #[schema(value_type = Option<String>, example = "-----BEGIN PRIVATE KEY-----\n…")]
    pub key: Option<Secret>,
}

/// The same as it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TlsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// `***` where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'static str>,
}

impl Tls {
    /// Ready for use; the error names the part that cannot be used.
    pub fn identity(&self) -> Result<Arc<TlsIdentity>, Invalid> {
        let Tls { ca, certificate, key } = self;
        let parts = [("tls.ca", ca.as_deref()), ("tls.certificate", certificate.as_deref()), ("tls.key", self.key())];
        for (field, text) in parts {
            if text.is_some_and(|text| text.len() > LONGEST) {
                return Err(Invalid::new(field, format!("more than {LONGEST} bytes are too many")));
            }
        }
        let client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.as_bytes(), key.expose().as_bytes())),
            (Some(_), None) => return Err(Invalid::new("tls.key", "the certificate needs its private key, as PEM")),
            (None, Some(_)) => {
                return Err(Invalid::new("tls.certificate", "the private key needs its certificate, as PEM"));
            }
            (None, None) if ca.is_none() => {
                return Err(Invalid::new("tls", "name a ca, a certificate with its key, or both; null takes tls away"));
            }
            (None, None) => None,
        };
        let authority = ca.as_ref().map(|ca| ca.as_bytes());
        build("tls.ca", TlsFiles { authority, client: None })?;
        if key.as_ref().is_some_and(|key| !key.expose().contains("PRIVATE KEY-----")) {
            return Err(Invalid::new("tls.key", "there is no private key in it: send PEM that is not encrypted"));
        }
        build("tls.certificate", TlsFiles { authority, client }).map(Arc::new)
    }

    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::expose)
    }

    /// As it is sealed.
    pub(crate) fn text(tls: Option<&Tls>) -> Secret {
        let json = tls.map(|tls| json!({"ca": tls.ca, "certificate": tls.certificate, "key": tls.key()}));
        Secret::new(json!(json).to_string())
    }

    pub(crate) fn from_text(text: &Secret) -> Option<Tls> {
        serde_json::from_str(text.expose()).unwrap_or_default()
    }

    pub fn view(&self) -> TlsView {
        let key = self.key.as_ref().map(|_| "***");
        TlsView { ca: self.ca.clone(), certificate: self.certificate.clone(), key }
    }
}

fn build(field: &str, files: TlsFiles<'_>) -> Result<TlsIdentity, Invalid> {
    TlsIdentity::new(files).map_err(|refused| Invalid::new(field, refused.detail))
}
