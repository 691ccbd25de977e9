//! One row of the table.

use std::io::{self, Write};
use std::time::Duration;

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub what: String,
    /// Operations per second, or bytes per key.
    pub figure: f64,
    pub unit: &'static str,
    /// Against what, and how many times as much.
    pub against: Option<(String, f64)>,
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// Admitted above the bound, and missing below what was owed, in percent of what was owed.
    pub over_under: Option<(f64, f64)>,
}

/// The names of the columns.
pub fn write_head(out: &mut (dyn Write + Send)) -> io::Result<()> {
    writeln!(out, "| what | figure | against | times | p50 | p99 | over | under |")?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- | --- | --- |")
}

impl Row {
    /// Writes it as a line of the table.
    pub fn write(&self, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let (against, times) = match &self.against {
            Some((against, times)) => (against.as_str(), format!("{times:.2}")),
            None => ("", String::new()),
        };
        let (over, under) = match self.over_under {
            Some((over, under)) => (format!("{over:.2} %"), format!("{under:.2} %")),
            None => (String::new(), String::new()),
        };
        let time = |time: Option<Duration>| time.map(|time| format!("{time:.1?}")).unwrap_or_default();
        writeln!(
            out,
            "| {} | {} {} | {against} | {times} | {} | {} | {over} | {under} |",
            self.what,
            with_thousands(self.figure),
            self.unit,
            time(self.p50),
            time(self.p99),
        )?;
        out.flush()
    }
}

fn with_thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
