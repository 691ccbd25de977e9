//! What a request's headers say of its caller: the key, the tenant, and whether a web page of another site sent it. Pure.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, StatusCode, header, uri::Authority};
use platform::problem::Problem;

use super::{Caller, unauthorized};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// What a request shows of its sender. A header that is not readable text is empty.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    authorization: Option<&'a str>,
    api_key: Option<&'a str>,
    tenant: Option<&'a str>,
    is_tenant_repeated: bool,
    host: Option<&'a str>,
    origin: Option<&'a str>,
}

impl<'a> Shown<'a> {
    /// `value` is a header's, and which of those that it has, from 0.
    pub fn read(value: impl Fn(&HeaderName, usize) -> Option<&'a str>) -> Self {
        let text = |name| value(name, 0);
        Shown {
            authorization: text(&header::AUTHORIZATION),
            api_key: text(&API_KEY),
            tenant: text(&TENANT),
            is_tenant_repeated: value(&TENANT, 1).is_some(),
            host: text(&header::HOST),
            origin: text(&header::ORIGIN),
        }
    }

    /// HTTP/2 names the host in the request's `authority`.
    pub(super) fn by_headers(headers: &'a HeaderMap, authority: Option<&'a Authority>) -> Self {
        let value = |name: &HeaderName, place| headers.get_all(name).iter().nth(place);
        let shown = Shown::read(|name, place| value(name, place).map(|value| value.to_str().unwrap_or_default()));
        Shown { host: shown.host.or_else(|| authority.map(Authority::as_str)), ..shown }
    }

    /// The key as sent, from either header; anything that is not readable text is no key.
    pub(super) fn key(&self) -> Result<Option<&'a str>, Problem> {
        let Some(text) = self.authorization else { return Ok(self.api_key) };
        let (scheme, key) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") || key.trim().is_empty() {
            return Err(unauthorized("invalid_key", "write the header as `Authorization: Bearer <key>`"));
        }
        Ok(Some(key.trim()))
    }

    /// For whom the caller means to act. Of two tenants neither is: a proxy may have written one of them.
    pub(super) fn tenant(&self) -> Result<Option<&'a str>, Problem> {
        if self.is_tenant_repeated {
            let detail = "x-tenant is sent more than once: send it once";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "repeated_header", detail).field("x-tenant"));
        }
        Ok(self.tenant)
    }

    /// A key has its own tenant: whoever names another is not answered for the wrong one.
    pub(super) fn refuse_other_tenant(&self, caller: &Caller) -> Result<(), Problem> {
        if self.tenant.is_none_or(|tenant| caller.can_see(tenant)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "other_tenant",
            "this key is not of the tenant that x-tenant names: leave the header out, or use a key of that tenant",
        )
        .field("x-tenant"))
    }

    /// Dev mode trusts this machine, but a browser on it also runs other people's pages: a page must not reach us through
    /// a name of its own that resolves to loopback, nor post across origins.
    pub(super) fn refuse_other_sites(&self) -> Result<(), Problem> {
        let origin_host = self.origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
        if [self.host, origin_host].into_iter().flatten().all(is_this_machine) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "foreign_host",
            "without an admin key only localhost may be named here: use http://127.0.0.1 or set TIDEGATE_ADMIN_KEY",
        ))
    }
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
