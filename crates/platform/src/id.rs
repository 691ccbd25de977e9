//! Prefixed, time-sortable ids: `evt_01k9…`, a UUID v7 in 26 letters of Crockford's base 32.
//!
//! They sort by creation time as text, so they serve as page cursors and keep index inserts at the right edge.

use uuid::Uuid;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A fresh id such as `tnt_01k9x7m2e8f3s9w4d6b1c5a7g0`.
pub fn new(prefix: &str) -> String {
    encode(prefix, Uuid::now_v7().as_u128())
}

/// Does it look like one of [`new`] with this prefix?
pub fn is_made(prefix: &str, id: &str) -> bool {
    let value = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
    value.is_some_and(|value| value.len() == 26 && value.bytes().all(|digit| ALPHABET.contains(&digit)))
}

/// The id that sorts before every id made at or after this time: a bound for ranges of ids.
pub fn first_at(prefix: &str, unix_ms: u64) -> String {
    encode(prefix, u128::from(unix_ms) << 80)
}

/// The part of an id that is its millisecond, whatever its prefix: with another prefix it sorts before what was made then.
pub fn moment_of(id: &str) -> Option<&str> {
    id.split_once('_')?.1.get(..10)
}

/// An id that a caller chose, or the sentence that says what is allowed. Ids stand in Redis keys, Kafka headers and file
/// names, so their alphabet is small.
pub fn check(id: &str) -> Result<&str, &'static str> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if id.is_empty() || id.len() > 64 || !id.chars().all(is_plain) {
        return Err("an id has 1 to 64 lower-case letters, digits, `-` and `_`");
    }
    Ok(id)
}

fn encode(prefix: &str, value: u128) -> String {
    let mut id = String::with_capacity(prefix.len() + 27);
    id.push_str(prefix);
    id.push('_');
    for place in (0..26).rev() {
        let digit = (value >> (place * 5)) & 31;
        id.push(char::from(ALPHABET[digit as usize]));
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_later_sort_later() {
        let ids: Vec<String> = (0..1000).map(|_| new("evt")).collect();
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| id.len() == 30 && is_made("evt", id)));
    }

    #[test]
    fn what_was_not_made_here_with_that_prefix_is_told() {
        let made = new("evt");
        for other in
            ["", "evt", "evt_", "evt_short", &made[4..], &made.to_uppercase(), &format!("{made}0"), &new("dlv")]
        {
            assert!(!is_made("evt", other), "{other}");
        }
    }

    #[test]
    fn a_bound_in_time_divides_ids() {
        let made = new("evt");
        assert!(first_at("evt", 1_700_000_000_000) < made);
        assert!(made < first_at("evt", 4_000_000_000_000));
    }

    #[test]
    fn a_moment_sorts_before_what_was_made_in_it_and_behind_what_was_made_before() {
        let [before, then, later] =
            [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002].map(|ms| first_at("dlv", ms));
        let bound = format!("dlv_{}", moment_of(&first_at("evt", 1_700_000_000_001)).unwrap());
        assert!(before < bound && bound < then && then < later);
        assert_eq!(moment_of("x").or(moment_of("dlv_short")), None);
    }

    #[test]
    fn every_bit_of_the_value_is_in_the_id() {
        assert_eq!(encode("x", 0), "x_00000000000000000000000000");
        assert_eq!(encode("x", u128::MAX), "x_7zzzzzzzzzzzzzzzzzzzzzzzzz");
        assert_eq!(encode("x", 33), "x_00000000000000000000000011");
    }
}
