//! `envoy.service.ratelimit.v3.RateLimitService`: Envoy's question in the engine's words, and the answer in Envoy's.

use std::time::Duration;

use tonic::{Request, Response, Status, async_trait, codegen::http::HeaderMap};

use super::{
    Doors,
    headers::headers,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit},
            rate_limit_service_server::RateLimitService,
        },
        r#type::v3::RateLimitUnit,
    },
    status::{invalid, status},
};
use crate::{
    engine::{Engine, Limited, Standing},
    envoy::{Descriptor, Entry, Override, Unit},
};

/// Of one request. More are decided in several.
const MOST_DESCRIPTORS: usize = 100;
const MOST_ENTRIES: usize = 50;

pub(super) struct Rls {
    pub(super) doors: Doors,
    pub(super) engine: Engine,
}

impl Rls {
    pub(super) async fn decide(
        &self,
        headers: &HeaderMap,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let caller = self.doors.may_check(headers).await?;
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        let descriptors = read(descriptors, hits_addend)?;
        let standings = self.engine.decide_descriptors(&caller.tenant, &domain, &descriptors).await.map_err(status)?;
        let response = answer(&standings);
        self.doors.count(response.overall_code == i32::from(Code::Ok));
        Ok(response)
    }
}

#[async_trait]
impl RateLimitService for Rls {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.decide(metadata.as_ref(), request).await.map(Response::new)
    }
}

/// In the engine's words. The request's own cost holds where a descriptor does not say one; unset means 1.
fn read(descriptors: Vec<RateLimitDescriptor>, hits_addend: u32) -> Result<Vec<Descriptor>, Status> {
    if descriptors.is_empty() {
        return Err(invalid("descriptors", "a request needs at least one descriptor"));
    }
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(invalid("descriptors", format!("at most {MOST_DESCRIPTORS}: ask in several requests")));
    }
    let default = u64::from(hits_addend.max(1));
    descriptors.into_iter().enumerate().map(|(index, descriptor)| read_one(index, descriptor, default)).collect()
}

fn read_one(index: usize, descriptor: RateLimitDescriptor, default_hits: u64) -> Result<Descriptor, Status> {
    let field = |name: &str| format!("descriptors[{index}].{name}");
    let RateLimitDescriptor { entries, limit, hits_addend } = descriptor;
    if entries.is_empty() || entries.len() > MOST_ENTRIES {
        return Err(invalid(field("entries"), format!("a descriptor has 1 to {MOST_ENTRIES} entries")));
    }
    if entries.iter().any(|entry| entry.key.is_empty()) {
        return Err(invalid(field("entries"), "an entry's key may not be empty"));
    }
    let limit = limit.map(|limit| {
        let unit = unit(RateLimitUnit::try_from(limit.unit).unwrap_or_default());
        let unit =
            unit.ok_or_else(|| invalid(field("limit.unit"), "write SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR"));
        unit.map(|unit| Override { requests_per_unit: limit.requests_per_unit, unit })
    });
    Ok(Descriptor {
        entries: entries.into_iter().map(|entry| Entry { key: entry.key, value: entry.value }).collect(),
        hits: Some(hits_addend.unwrap_or(default_hits)),
        limit: limit.transpose()?,
    })
}

fn unit(unit: RateLimitUnit) -> Option<Unit> {
    match unit {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(Unit::Second),
        RateLimitUnit::Minute => Some(Unit::Minute),
        RateLimitUnit::Hour => Some(Unit::Hour),
        RateLimitUnit::Day => Some(Unit::Day),
        RateLimitUnit::Week => Some(Unit::Week),
        RateLimitUnit::Month => Some(Unit::Month),
        RateLimitUnit::Year => Some(Unit::Year),
    }
}

/// In Envoy's words: a status per descriptor, in the order of the request.
fn answer(standings: &[Standing]) -> RateLimitResponse {
    let is_over = standings.iter().any(Standing::is_over);
    RateLimitResponse {
        overall_code: code(is_over).into(),
        statuses: standings.iter().map(one).collect(),
        response_headers_to_add: headers(standings),
        dynamic_metadata: standings.iter().any(Standing::is_degraded).then(degraded),
    }
}

/// For Envoy's access log, or its next filter: `{"degraded": true}`.
fn degraded() -> prost_types::Struct {
    let yes = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
    prost_types::Struct { fields: [("degraded".to_owned(), yes)].into() }
}

fn one(standing: &Standing) -> DescriptorStatus {
    match standing {
        Standing::Unlimited { is_configured, .. } => DescriptorStatus {
            code: code(false).into(),
            // As Envoy ratelimit says it: everything is left of a limit that is none.
            limit_remaining: if *is_configured { u32::MAX } else { 0 },
            ..DescriptorStatus::default()
        },
        Standing::Limited(limited) => DescriptorStatus {
            code: code(limited.is_over()).into(),
            current_limit: Some(RateLimit {
                requests_per_unit: limited.requests_per_unit,
                unit: wire_unit(limited.unit).into(),
                name: name(limited),
            }),
            limit_remaining: limited.remaining(),
            duration_until_reset: Some(duration(limited.reset_after())),
        },
    }
}

fn name(limited: &Limited) -> String {
    limited.limit.as_ref().and_then(|limit| limit.name.as_deref()).unwrap_or_default().to_owned()
}

fn code(is_over: bool) -> Code {
    if is_over { Code::OverLimit } else { Code::Ok }
}

fn wire_unit(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
    }
}

fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}
