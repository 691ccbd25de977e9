//! What a request's headers say of its caller: the key, the tenant, and whether a web page of another site sent it. Pure.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header, uri::Authority};
use platform::problem::Problem;

use super::unauthorized;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// The key as sent, from either header; anything that is not readable text is no key.
pub(super) fn presented_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let (scheme, key) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") || key.trim().is_empty() {
            return Err(unauthorized("invalid_key", "write the header as `Authorization: Bearer <key>`"));
        }
        return Ok(Some(key.trim()));
    }
    Ok(headers.get(API_KEY).map(|value| value.to_str().unwrap_or_default()))
}

pub(super) fn presented_tenant(headers: &HeaderMap) -> Option<&str> {
    headers.get(TENANT).map(|value| value.to_str().unwrap_or_default())
}

/// Dev mode trusts this machine, but a browser on it also runs other people's pages: a page must not reach us through a
/// name of its own that resolves to loopback, nor post across origins.
pub(super) fn refuse_other_sites(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(Authority::as_str));
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let origin_host = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if [host, origin_host].into_iter().flatten().all(is_this_machine) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "foreign_host",
        "without an admin key only localhost may be named here: use http://127.0.0.1 or set TIDEGATE_ADMIN_KEY",
    ))
}

fn is_this_machine(host: &str) -> bool {
    // As nearly everyone writes it.
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    if matches!(name, "localhost" | "127.0.0.1") && port.bytes().all(|digit| digit.is_ascii_digit()) {
        return true;
    }
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn only_loopback_names_are_this_machine() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "10.0.0.1", "", "null", "[::]"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
