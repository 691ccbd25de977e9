//! A URL that may be called.
//!
//! It is parsed once, by the WHATWG parser, and dialled from the parsed value. What that parser would quietly repair
//! (tabs, backslashes, missing slashes, percent-encoded hosts) is refused instead: every other parser reads it otherwise.

use std::{fmt, net::IpAddr, sync::Arc};

use http::{HeaderValue, Uri, uri::PathAndQuery};
use url::{Host, Url};

use super::{Reachable, Refused};

const LONGEST_URL: usize = 2048;
const LONGEST_HOST: usize = 253;

/// Names that exist inside a network only. Their addresses are checked as well; this says no sooner and clearer.
const INTERNAL_SUFFIXES: [&str; 8] =
    [".internal", ".intranet", ".lan", ".local", ".localdomain", ".localhost", ".home.arpa", ".private"];

/// Where a call goes. Holds no address of a name: that is looked up and checked at every connect.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) is_https: bool,
    pub(super) host: TargetHost,
    pub(super) port: u16,
    /// `https://host:port`, the part of a URL that decides which connections may be shared.
    pub(super) origin: Arc<str>,
    pub(super) host_header: HeaderValue,
    pub(super) path: PathAndQuery,
    /// The whole, for HTTP/2.
    pub(super) uri: Uri,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetHost {
    Name(Arc<str>),
    Address(IpAddr),
}

impl Target {
    /// Checks a URL.
    pub fn parse(text: &str, reachable: &Reachable) -> Result<Target, Refused> {
        check_text(text)?;
        let url = Url::parse(text).map_err(|error| Refused::new("url_host", format!("not a URL: {error}")))?;
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(scheme()),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(userinfo());
        }
        let port = url.port_or_known_default().unwrap_or(0);
        check_port(port, reachable)?;
        let host = match url.host() {
            Some(Host::Domain(name)) => {
                check_name(name, reachable)?;
                TargetHost::Name(name.into())
            }
            Some(Host::Ipv4(ip)) => TargetHost::Address(check_address(ip.into(), reachable)?),
            Some(Host::Ipv6(ip)) => TargetHost::Address(check_address(ip.into(), reachable)?),
            None => return Err(Refused::new("url_host", "the URL names no host")),
        };
        Target::assemble(&url, is_https, host, port)
    }

    fn assemble(url: &Url, is_https: bool, host: TargetHost, port: u16) -> Result<Target, Refused> {
        let unusable =
            |_| Refused::new("url_syntax", "the URL holds characters that cannot be sent; percent-encode them");
        let scheme = url.scheme();
        let host_text = url.host_str().unwrap_or_default();
        // The parser drops a scheme's own port.
        let authority = url.port().map_or_else(|| host_text.to_owned(), |port| format!("{host_text}:{port}"));
        let path_text = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let path = PathAndQuery::try_from(path_text).map_err(|error| unusable(error.into()))?;
        let builder = Uri::builder().scheme(scheme).authority(authority.as_str()).path_and_query(path.clone());
        let uri = builder.build().map_err(unusable)?;
        // HTTP/2 sends this value. Both parsers must have seen the same host.
        if uri.host() != Some(host_text) || uri.port_u16() != url.port() {
            return Err(Refused::new("url_host", "the URL's host can be read in two ways"));
        }
        let host_header = HeaderValue::try_from(authority).map_err(|error| unusable(error.into()))?;
        let origin = format!("{scheme}://{host_text}:{port}").into();
        Ok(Target { is_https, host, port, origin, host_header, path, uri })
    }

    /// Scheme, host and port: enough for logs, and free of what people hide in paths.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }
}

/// Without the query, which often holds a token.
impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        let authority = self.host_header.to_str().unwrap_or_default();
        let query = if self.path.query().is_some() { "?***" } else { "" };
        write!(out, "{scheme}://{authority}{}{query}", self.path.path())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Target({self})")
    }
}

/// What no parser may be asked about, because they disagree.
fn check_text(text: &str) -> Result<(), Refused> {
    if text.len() > LONGEST_URL {
        return Err(Refused::new("url_length", format!("a URL has at most {LONGEST_URL} characters")));
    }
    let is_confusing = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\';
    if text.contains(is_confusing) {
        return Err(Refused::new("url_syntax", "a URL holds no spaces, control characters or backslashes"));
    }
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    let rest = if lower.starts_with("https://") {
        &text[8..]
    } else if lower.starts_with("http://") {
        &text[7..]
    } else {
        return Err(scheme());
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(Refused::new("url_host", "the URL names no host"));
    }
    if authority.contains('@') {
        return Err(userinfo());
    }
    if authority.contains('%') {
        return Err(Refused::new("url_host", "a host has no percent signs and no zone"));
    }
    if text.contains('#') {
        return Err(Refused::new("url_fragment", "the part after # is never sent; leave it out"));
    }
    Ok(())
}

fn check_port(port: u16, reachable: &Reachable) -> Result<(), Refused> {
    if !reachable.allows_port(port) {
        return Err(Refused::new("url_port", format!("port {port} may not be called: use 80, 443, or one from 1024")));
    }
    Ok(())
}

fn check_name(name: &str, reachable: &Reachable) -> Result<(), Refused> {
    let refuse = |detail: &str| Err(Refused::new("url_host", detail));
    if name.len() > LONGEST_HOST {
        return refuse("a host name has at most 253 characters");
    }
    if name.ends_with('.') {
        return refuse("a host name does not end with a dot");
    }
    let is_plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, b'-' | b'_');
    let is_label =
        |label: &str| (1..=63).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(is_plain);
    if !name.split('.').all(is_label) {
        return refuse("a host name is made of letters, digits and hyphens, in parts of 1 to 63 between dots");
    }
    if reachable.allows_inside_names() {
        return Ok(());
    }
    if !name.contains('.') {
        return refuse(
            "a host name needs a domain: names without a dot exist inside a network only (see dispatch.allow_networks)",
        );
    }
    if INTERNAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        return refuse(
            "names of this kind exist inside a network only (see dispatch.allow_networks); use a public name",
        );
    }
    Ok(())
}

fn check_address(ip: IpAddr, reachable: &Reachable) -> Result<IpAddr, Refused> {
    if reachable.allows(ip) { Ok(ip) } else { Err(Refused::address()) }
}

fn scheme() -> Refused {
    Refused::new("url_scheme", "a URL starts with https:// or http://")
}

fn userinfo() -> Refused {
    Refused::new("url_userinfo", "a URL holds no user name or password; send them in a header")
}
