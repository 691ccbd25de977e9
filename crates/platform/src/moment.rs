//! How moments are written: in UTC, to the millisecond, and always as many letters, so that they sort as text. A database may
//! keep them finer; its callers cannot tell which one it is.

use serde::{Serializer, ser::Error};
use time::{OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description};

const WRITTEN: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Such as `2026-11-19T08:00:00.120Z`. Empty for a year that RFC 3339 cannot write.
pub fn written(at: OffsetDateTime) -> String {
    format(at).unwrap_or_default()
}

/// For `#[serde(with = "platform::moment")]`.
pub fn serialize<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    let written = format(*at).ok_or_else(|| S::Error::custom("this time lies outside of the years 0000 to 9999"))?;
    serializer.serialize_str(&written)
}

fn format(at: OffsetDateTime) -> Option<String> {
    let at = at.checked_to_offset(UtcOffset::UTC).filter(|at| (0..=9999).contains(&at.year()))?;
    at.format(WRITTEN).ok()
}

/// For `#[serde(with = "platform::moment::option")]`.
pub mod option {
    use serde::Serializer;
    use time::OffsetDateTime;

    pub fn serialize<S: Serializer>(at: &Option<OffsetDateTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn every_moment_has_as_many_letters_whatever_it_was_kept_as() {
        for (at, text) in [
            (datetime!(2026-11-19 8:00 UTC), "2026-11-19T08:00:00.000Z"),
            (datetime!(2026-11-19 8:00:00.1205 UTC), "2026-11-19T08:00:00.120Z"),
            (datetime!(2026-11-19 8:00:00.999_999_999 +1), "2026-11-19T07:00:00.999Z"),
            (datetime!(1969-12-31 23:59:59.9999 UTC), "1969-12-31T23:59:59.999Z"),
            (datetime!(9999-12-31 23:59:59.9999 -1), ""),
        ] {
            assert_eq!(written(at), text);
        }
    }
}
