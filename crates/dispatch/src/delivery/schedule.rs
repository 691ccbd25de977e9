//! How long to wait before each further attempt.
//!
//! The first attempt is made at once and is not in the list: a list of seven waits means eight attempts.

use std::time::Duration;

use platform::config::{Invalid, Span, duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::{PartialSchema, ToSchema};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// At most so many waits in a list.
pub const MAX_STEPS: usize = 20;
/// The shortest wait. Zero is refused: the first attempt, which is made at once, is not in the list.
pub const MIN_STEP: Duration = Duration::from_millis(1);
/// The longest wait.
pub const MAX_STEP: Duration = Duration::from_secs(7 * 24 * HOUR);

/// The waits between attempts, written as `["5s", "5m", "30m"]`. An empty list means one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySchedule(Box<[Duration]>);

impl Default for RetrySchedule {
    /// Eight attempts in a little under 28 hours.
    fn default() -> Self {
        let seconds = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR];
        RetrySchedule(seconds.map(Duration::from_secs).into())
    }
}

impl RetrySchedule {
    /// Reads durations as people write them. `field` is named in the error.
    pub fn parse<T: AsRef<str>>(field: &str, steps: &[T]) -> Result<Self, Invalid> {
        check_count(field, steps.len())?;
        let read = |(place, text): (usize, &T)| step(&format!("{field}[{place}]"), text.as_ref());
        steps.iter().enumerate().map(read).collect::<Result<_, _>>().map(RetrySchedule)
    }

    /// The wait after this many attempts, or `None` when there is none left.
    pub fn wait_after(&self, attempts: u32) -> Option<Duration> {
        let place = usize::try_from(attempts.saturating_sub(1)).ok()?;
        self.0.get(place).copied()
    }

    /// How many attempts there are in all.
    pub fn attempts(&self) -> usize {
        self.0.len() + 1
    }

    pub fn steps(&self) -> &[Duration] {
        &self.0
    }
}

fn check_count(field: &str, count: usize) -> Result<(), Invalid> {
    if count > MAX_STEPS {
        return Err(Invalid::new(field, format!("{count} waits are too many: write at most {MAX_STEPS}")));
    }
    Ok(())
}

fn step(field: &str, text: &str) -> Result<Duration, Invalid> {
    let step = duration(text).ok_or_else(|| {
        Invalid::new(field, format!("{text:?} is not a duration: write one such as \"5s\", \"30m\" or \"2h\""))
    })?;
    if step.is_zero() {
        return Err(Invalid::new(
            field,
            "a wait cannot be zero: leave it out, the first attempt is made at once and is not in the list",
        ));
    }
    Span(step).within(field, MIN_STEP, MAX_STEP)
}

impl Serialize for RetrySchedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|&step| Span(step)))
    }
}

impl<'de> Deserialize<'de> for RetrySchedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let steps = Vec::<Step>::deserialize(deserializer)?;
        check_count("", steps.len()).map_err(|Invalid { problem, .. }| D::Error::custom(problem))?;
        Ok(RetrySchedule(steps.into_iter().map(|Step(step)| step).collect()))
    }
}

/// Read by itself, so that its place in the list is known to whoever reads the list.
struct Step(Duration);

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        step("", &text).map(Step).map_err(|Invalid { problem, .. }| D::Error::custom(problem))
    }
}

impl PartialSchema for RetrySchedule {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <Vec<String>>::schema()
    }
}

impl ToSchema for RetrySchedule {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_default_is_eight_attempts_in_under_28_hours() {
        let schedule = RetrySchedule::default();
        assert_eq!(schedule.attempts(), 8);
        assert_eq!(schedule.steps().iter().sum::<Duration>(), Duration::from_secs(27 * HOUR + 35 * MINUTE + 5));
        let json = serde_json::to_string(&schedule).unwrap();
        assert_eq!(json, r#"["5s","5m","30m","2h","5h","10h","10h"]"#);
        assert_eq!(serde_json::from_str::<RetrySchedule>(&json).unwrap(), schedule);
    }

    #[test]
    fn an_empty_list_is_one_attempt() {
        let schedule = RetrySchedule::parse::<&str>("retry_schedule", &[]).unwrap();
        assert_eq!((schedule.attempts(), schedule.wait_after(1)), (1, None));
    }

    #[test]
    fn a_bad_list_names_the_place_and_the_fix() {
        let problem = |steps: &[&str]| RetrySchedule::parse("retry_schedule", steps).unwrap_err().to_string();
        assert_eq!(
            problem(&["5s", "soon"]),
            "retry_schedule[1]: \"soon\" is not a duration: write one such as \"5s\", \"30m\" or \"2h\""
        );
        assert_eq!(
            problem(&["0s"]),
            "retry_schedule[0]: a wait cannot be zero: leave it out, the first attempt is made at once and is not in the list"
        );
        assert_eq!(problem(&["8days"]), "retry_schedule[0]: 8days is out of range: use a duration from 1ms to 7days");
        assert_eq!(problem(&["1ns"]), "retry_schedule[0]: 1ns is out of range: use a duration from 1ms to 7days");
        assert_eq!(problem(&["1s"; 21]), "retry_schedule: 21 waits are too many: write at most 20");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(steps in proptest::collection::vec(".{0,20}", 0..25)) {
            if let Ok(schedule) = RetrySchedule::parse("retry_schedule", &steps) {
                prop_assert!(schedule.steps().len() <= MAX_STEPS);
                prop_assert!(schedule.steps().iter().all(|step| (MIN_STEP..=MAX_STEP).contains(step)));
            }
        }

        #[test]
        fn a_schedule_comes_back_as_it_was_written(millis in proptest::collection::vec(1..604_800_000_u64, 0..=20)) {
            let steps: Vec<String> = millis.iter().map(|&ms| Span(Duration::from_millis(ms)).to_string()).collect();
            let schedule = RetrySchedule::parse("retry_schedule", &steps).unwrap();
            let json = serde_json::to_string(&schedule).unwrap();
            prop_assert_eq!(serde_json::from_str::<RetrySchedule>(&json).unwrap(), schedule);
        }
    }
}
