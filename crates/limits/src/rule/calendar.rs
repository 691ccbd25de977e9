//! Quotas by the calendar: so many per day, week or month, somewhere on earth.
//!
//! Where a day begins is the time zone's affair, daylight saving included; weeks begin on Monday. The edges around now
//! are found by this process's clock and go along with every question; which of the windows it is, the store's own clock
//! decides. So replicas whose clocks differ agree, as long as they differ by less than the window.

use gate::{
    fallback::Mode,
    limiter::{self, Policy},
};
use jiff::{Span, Timestamp, civil::Date, tz::TimeZone};
use parking_lot::Mutex;
use platform::config::Invalid;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Plan;

/// A window of the calendar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Calendar {
    pub every: Every,
    /// A name of the IANA database; UTC if absent.
    #[serde(default = "utc")]
    #[schema(example = "Europe/Berlin")]
    pub time_zone: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    Day,
    /// From Monday.
    Week,
    Month,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A calendar's limit, and the policy of the window it was last asked in.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: u64,
    every: Every,
    zone: TimeZone,
    mode: Mode,
    current: Mutex<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    from_us: u64,
    until_us: u64,
    policy: Policy,
}

impl Calendar {
    pub(super) fn plan(&self, limit: u64, mode: Mode, field: &str) -> Result<Plan, Invalid> {
        let zone = TimeZone::get(&self.time_zone).map_err(|_| {
            let problem = format!("{:?} is not a time zone: use a name such as \"Europe/Berlin\"", self.time_zone);
            Invalid::new("calendar.time_zone", problem)
        })?;
        let wrong = |error: gate::Error| Invalid::new(format!("{field}limit"), error.to_string());
        let current = current(limit, self.every, &zone, mode, 0).map_err(wrong)?;
        Ok(Plan::Quota(Box::new(Quota { limit, every: self.every, zone, mode, current: Mutex::new(current) })))
    }
}

impl Quota {
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn policy(&self, now_us: u64) -> Policy {
        let mut known = self.current.lock();
        if !(known.from_us..known.until_us).contains(&now_us)
            && let Ok(found) = current(self.limit, self.every, &self.zone, self.mode, now_us)
        {
            *known = found;
        }
        known.policy
    }
}

fn current(limit: u64, every: Every, zone: &TimeZone, mode: Mode, now_us: u64) -> Result<Current, gate::Error> {
    let edges = edges(every, zone, now_us).unwrap_or([0, 60, 120, 180]);
    let policy = limiter::Policy::calendar(limit, edges)?.without_redis(mode);
    Ok(Current { from_us: edges[1] * 1_000_000, until_us: edges[2] * 1_000_000, policy })
}

/// The beginnings of the last window, this one, the next and the one after, in seconds. `None` beyond the year 9999.
fn edges(every: Every, zone: &TimeZone, now_us: u64) -> Option<[u64; 4]> {
    let today = Timestamp::from_microsecond(i64::try_from(now_us).ok()?).ok()?.to_zoned(zone.clone()).date();
    let (first, step) = match every {
        Every::Day => (today, Span::new().days(1)),
        Every::Week => {
            let since_monday = i64::from(today.weekday().to_monday_zero_offset());
            (today.checked_sub(Span::new().days(since_monday)).ok()?, Span::new().weeks(1))
        }
        Every::Month => (today.first_of_month(), Span::new().months(1)),
    };
    let before = first.checked_sub(step).ok()?;
    let next = first.checked_add(step).ok()?;
    let after = next.checked_add(step).ok()?;
    let second = |date: Date| {
        // Midnight may not exist, or exist twice: the day begins at its first moment.
        let midnight = zone.to_ambiguous_zoned(date.at(0, 0, 0, 0)).compatible().ok()?;
        // Before 1970 there is nothing to count.
        Some(u64::try_from(midnight.timestamp().as_second()).unwrap_or(0))
    };
    let edges = [second(before)?, second(first)?, second(next)?, second(after)?];
    edges.is_sorted_by(|a, b| a < b).then_some(edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_microsecond()).unwrap()
    }

    fn found(every: Every, zone: &str, now: &str) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let edges = edges(every, &zone, at(now)).unwrap();
        edges.iter().map(|edge| Timestamp::from_second(i64::try_from(*edge).unwrap()).unwrap().to_string()).collect()
    }

    #[test]
    fn a_day_begins_at_midnight_there_also_when_clocks_change() {
        let edges = found(Every::Day, "Europe/Berlin", "2026-03-29T12:00:00Z");
        assert_eq!(
            edges,
            ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"]
        );
        let without_midnight = found(Every::Day, "America/Santiago", "2026-09-06T12:00:00Z");
        assert_eq!(without_midnight[1], "2026-09-06T04:00:00Z", "clocks go from 24:00 to 01:00");
    }

    #[test]
    fn weeks_begin_on_monday_and_months_on_the_first() {
        assert_eq!(
            found(Every::Week, "UTC", "2026-11-15T23:59:59Z")[1..3],
            ["2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z"]
        );
        let february = found(Every::Month, "Asia/Kolkata", "2028-02-10T00:00:00Z");
        assert_eq!(february[1..3], ["2028-01-31T18:30:00Z", "2028-02-29T18:30:00Z"], "a leap year");
    }

    #[test]
    fn the_policy_turns_with_the_calendar() {
        let calendar = Calendar { every: Every::Month, time_zone: "UTC".to_owned() };
        let Plan::Quota(quota) = calendar.plan(100, Mode::Local, "").unwrap() else { panic!("a calendar is a quota") };
        let days = |now: &str| quota.policy(at(now)).window().as_secs() / 86_400;
        assert_eq!([days("2026-01-31T23:59:59Z"), days("2026-02-01T00:00:00Z")], [31, 28]);
    }
}
