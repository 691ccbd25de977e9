//! How commands write to a terminal: colours, bars, numbers and durations that are easy on the eye.

use std::{
    fmt,
    io::{self, ErrorKind, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::samples::Percentiles;

#[derive(Clone, Copy)]
pub(super) enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
}

/// Paints on a terminal, and leaves text for files and pipes alone.
#[derive(Clone, Copy)]
pub(super) struct Painter {
    is_on: bool,
}

impl Painter {
    pub(super) fn for_stdout() -> Self {
        Painter { is_on: io::stdout().is_terminal() && !crate::cli::wants_no_colour() }
    }

    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Dim => "2",
        };
        if self.is_on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Writes at once, so that a line is seen when it happens. False: whoever read it is gone.
pub(super) fn show(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// For the person, beside the output for the pipe.
#[expect(clippy::print_stderr, reason = "a remark for the person at the terminal; the output alone goes to the pipe")]
pub(super) fn note(text: &str) {
    eprintln!("{text}");
}

/// On a terminal only; elsewhere it would be noise in a file. `rest` is a template; its `{rate}` is per second.
pub(super) fn progress(length: u64, what: &str, rest: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{what:>13} [{{bar:40}}] {rest}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let per_second = |state: &ProgressState, text: &mut dyn fmt::Write| {
        text.write_str(&rate(state.pos(), state.elapsed())).expect("a progress bar is drawn into a string");
    };
    ProgressBar::new(length).with_style(style.with_key("rate", per_second).progress_chars("=> "))
}

/// Text of a stranger's, without what could move the cursor or change colours.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `1234567` as `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many per second, or a dash where no time has passed.
pub(super) fn rate(number: u64, over: Duration) -> String {
    if over.is_zero() {
        return "-".to_owned();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people, without decimals")]
    let per_second = (number as f64 / over.as_secs_f64()).round() as u64;
    format!("{}/s", count(per_second))
}

/// `p50 1.2 ms   p95 3.4 ms   p99 8.9 ms   max 21 ms`
pub(super) fn percentiles(percentiles: Option<Percentiles>) -> String {
    let Some(Percentiles { p50, p95, p99, max }) = percentiles else { return "-".to_owned() };
    let [p50, p95, p99, max] = [p50, p95, p99, max].map(duration);
    format!("p50 {p50}   p95 {p95}   p99 {p99}   max {max}")
}

fn duration(micros: u32) -> String {
    let ms = f64::from(micros) / 1000.0;
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

/// Rows of a name and what there is to say, in two columns.
pub(super) fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, text)| format!("  {name:width$}   {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(rate(3000, Duration::from_millis(1500)), "2,000/s");
        assert_eq!(rate(3, Duration::ZERO), "-");
    }

    #[test]
    fn durations_have_the_unit_that_suits_them() {
        for (micros, text) in [(0, "0.0 ms"), (1234, "1.2 ms"), (20_600, "21 ms"), (12_340_000, "12.3 s")] {
            assert_eq!(duration(micros), text);
        }
    }

    #[test]
    fn a_strangers_text_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31mb\r\n"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
    }
}
