//! What a record of the topic is: the event as the API takes it, byte for byte, and headers beside it.
//!
//! | part | what |
//! | --- | --- |
//! | key | the ordering key, else the event's id: equal keys keep their order |
//! | value | the event as JSON, exactly as it was sent in |
//! | `tidegate-version` | of this shape; absent: 1 |
//! | `tidegate-tenant` | absent: the default tenant |
//! | `tidegate-id` | of the event, where its sender chose none |
//! | `tidegate-catalog` | the version of the subscriptions that its taker knew: nobody routes it with older ones |
//! | `traceparent` | the trace it belongs to |

use std::sync::Arc;

use tenancy::door::DEFAULT_TENANT;

use super::VERSION;
use crate::{intake::EventIn, store::rejected::Rejected};

pub const VERSION_HEADER: &str = "tidegate-version";
pub const TENANT_HEADER: &str = "tidegate-tenant";
pub const ID_HEADER: &str = "tidegate-id";
pub const CATALOG_HEADER: &str = "tidegate-catalog";
pub const TRACE_HEADER: &str = "traceparent";

/// The reason of a record whose tenant is none: it belongs to nobody, also if such a tenant is made later.
pub const BAD_TENANT: &str = "bad_tenant";
/// The reason of a record whose headers are not text, and so were not kept as they were.
pub const BAD_HEADER: &str = "bad_header";

/// A record as it was read, whatever it holds.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub partition: i32,
    pub offset: i64,
    /// By the broker's clock, where the topic is ours.
    pub at_ms: i64,
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub headers: Vec<(String, Vec<u8>)>,
    /// The name of a header is not UTF-8; neither it nor those behind it are among the others.
    pub is_cut: bool,
}

/// An event that was read from a record, and not yet checked.
#[derive(Debug)]
pub struct Decoded {
    pub tenant: Arc<str>,
    pub event: EventIn,
}

/// Why a record cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// A bounded word, for programs.
    pub reason: &'static str,
    /// One sentence, for people.
    pub detail: String,
}

impl Rejection {
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        Rejection { reason, detail: detail.into() }
    }
}

impl Incoming {
    /// A rejected record as it was read, or why it cannot be had again. All but its headers was kept byte for byte.
    pub fn kept(record: &Rejected, key: Option<Vec<u8>>, value: Vec<u8>) -> Result<Self, Rejection> {
        if record.reason == BAD_HEADER {
            return Err(Rejection::new(BAD_HEADER, record.detail.clone()));
        }
        let headers = record.named_headers();
        let headers = headers.ok_or_else(|| Rejection::new(BAD_HEADER, "its headers were not kept as they were"))?;
        Ok(Incoming {
            partition: i32::try_from(record.partition).unwrap_or_default(),
            offset: record.offset,
            at_ms: i64::try_from(record.at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default(),
            key,
            value,
            headers,
            is_cut: false,
        })
    }

    /// In memory.
    pub fn size(&self) -> usize {
        let headers = self.headers.iter().map(|header| size_of_val(header) + header.0.len() + header.1.len());
        self.value.len() + self.key.as_ref().map_or(0, Vec::len) + headers.sum::<usize>()
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>, Rejection> {
        let Some(value) = self.header(name) else { return Ok(None) };
        std::str::from_utf8(value)
            .map(Some)
            .map_err(|_| Rejection::new(BAD_HEADER, format!("the header {name} is not UTF-8 text")))
    }

    /// Whose it is. Nobody's that can be told, where a header is cut off: it may be the one that names the tenant.
    pub fn tenant(&self) -> Result<&str, Rejection> {
        if self.is_cut {
            return Err(Rejection::new(BAD_HEADER, "the name of one of its headers is not UTF-8 text"));
        }
        let tenant = self.text(TENANT_HEADER)?.unwrap_or(DEFAULT_TENANT);
        platform::id::check(tenant)
            .map_err(|rule| Rejection::new(BAD_TENANT, format!("the header {TENANT_HEADER} names no tenant: {rule}")))
    }

    /// The version of the subscriptions that must be known to route it.
    pub fn catalog_version(&self) -> i64 {
        let text = self.header(CATALOG_HEADER).and_then(|value| std::str::from_utf8(value).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub fn decode(&self, max_event: usize) -> Result<Decoded, Rejection> {
        let tenant = Arc::from(self.tenant()?);
        if let Some(version) = self.text(VERSION_HEADER)?
            && version.parse() != Ok(VERSION)
        {
            let detail = format!("this version of Tidegate reads records of version {VERSION}, not {version:?}");
            return Err(Rejection::new("unknown_version", detail));
        }
        if self.value.len() > max_event {
            let detail = format!("the event has {} bytes; dispatch.max_event allows {max_event}", self.value.len());
            return Err(Rejection::new("event_too_large", detail));
        }
        let mut event: EventIn = platform::http::parse_json(&self.value).map_err(|problem| {
            let detail = problem.detail();
            let named = problem.wrong_field().map(|field| format!("{field}: {detail}"));
            Rejection::new("unreadable", named.unwrap_or_else(|| detail.to_owned()))
        })?;
        if event.id.is_none() {
            event.id = match self.text(ID_HEADER)? {
                Some(id) => Some(id.to_owned()),
                // Reading the record again must find the same event.
                None => Some(format!("kafka-{}-{}-{}", self.partition, self.offset, self.at_ms)),
            };
        }
        Ok(Decoded { tenant, event })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use time::OffsetDateTime;

    use super::*;

    fn record(value: &[u8], headers: &[(&str, &str)]) -> Incoming {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        Incoming { partition: 3, offset: 7, at_ms: 99, key: None, value: value.to_vec(), headers, is_cut: false }
    }

    #[test]
    fn a_record_is_what_the_api_takes() {
        let read = record(br#"{"id":"a","type":"a.b","data":{ "n": 1e2 }}"#, &[(TENANT_HEADER, "acme")]);
        let decoded = read.decode(1000).unwrap();
        assert_eq!((&*decoded.tenant, decoded.event.id.as_deref()), ("acme", Some("a")));
        assert_eq!(decoded.event.data.get(), r#"{ "n": 1e2 }"#);
    }

    #[test]
    fn an_event_without_an_id_keeps_one_however_often_it_is_read() {
        let body = br#"{"type":"a.b","data":1}"#;
        let id = |headers| record(body, headers).decode(1000).unwrap().event.id.unwrap();
        assert_eq!(id(&[(ID_HEADER, "evt_1")]), "evt_1");
        assert_eq!(id(&[]), "kafka-3-7-99");
    }

    /// It was filed under the default tenant, whose keys could read it.
    #[test]
    fn a_record_whose_headers_are_cut_off_is_nobodys() {
        let cut = Incoming { is_cut: true, ..record(b"{}", &[(TENANT_HEADER, "acme")]) };
        assert_eq!(cut.tenant().unwrap_err().reason, "bad_header");
    }

    fn rejected(reason: &str, headers: &str) -> Rejected {
        Rejected {
            id: "rej_1".to_owned(),
            tenant: None,
            topic: "t".to_owned(),
            partition: 3,
            offset: 7,
            at: OffsetDateTime::from_unix_timestamp_nanos(99_000_000).unwrap(),
            size: 0,
            headers: RawValue::from_string(headers.to_owned()).unwrap(),
            reason: reason.to_owned(),
            detail: "because".to_owned(),
            created_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_record_that_was_kept_is_read_like_any_other() {
        let kept = |record: &Rejected| Incoming::kept(record, None, br#"{"type":"a.b","data":1}"#.to_vec());
        let stray = rejected(BAD_TENANT, r#"[{"name":"tidegate-tenant","value":"acme"}]"#);
        let decoded = kept(&stray).unwrap().decode(1000).unwrap();
        assert_eq!((&*decoded.tenant, decoded.event.id.as_deref()), ("acme", Some("kafka-3-7-99")));
        for without_headers in [rejected(BAD_HEADER, "[]"), rejected("event_too_large", "null")] {
            assert_eq!(kept(&without_headers).unwrap_err().reason, BAD_HEADER);
        }
    }

    #[test]
    fn what_cannot_be_an_event_has_a_reason() {
        let good = br#"{"type":"a.b","data":1}"#.as_slice();
        let cases = [
            (record(br#"{"type":"a.b","da"#, &[]), "unreadable"),
            (record(b"{\"type\":\"a.\xff\",\"data\":1}", &[]), "unreadable"),
            (record(b"", &[]), "unreadable"),
            (record(good, &[(VERSION_HEADER, "2")]), "unknown_version"),
            (record(good, &[(TENANT_HEADER, "No Such")]), "bad_tenant"),
            (record(&[b' '; 2000], &[]), "event_too_large"),
            (Incoming { is_cut: true, ..record(good, &[]) }, "bad_header"),
        ];
        for (record, reason) in cases {
            assert_eq!(record.decode(1000).unwrap_err().reason, reason);
        }
        let detail = record(good, &[(VERSION_HEADER, "2")]).decode(1000).unwrap_err().detail;
        assert!(detail.ends_with("reads records of version 1, not \"2\""), "{detail}");
        for time in ["soon", "9999-12-31T23:59:59-00:01"] {
            let body = format!(r#"{{"type":"a.b","data":1,"deliver_at":"{time}"}}"#);
            let detail = record(body.as_bytes(), &[]).decode(1000).unwrap_err().detail;
            assert!(detail.starts_with("deliver_at: "), "{detail}");
        }
    }
}
