//! The lines of a bench's table, written as they come.

use crate::command::{print, terminal};

/// One figure, and the bare limit it is measured against.
#[derive(Clone, Default)]
pub(super) struct Row {
    pub what: String,
    pub figure: String,
    /// What it is compared to, how many times that it reaches, and how many it should.
    pub against: Option<(String, f64, f64)>,
    pub note: String,
}

pub(super) fn head() -> anyhow::Result<()> {
    print("| what | figure | against | times | bar | |\n| --- | --- | --- | --- | --- | --- |\n")
}

impl Row {
    pub(super) fn rate(what: impl Into<String>, per_second: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people")]
        let figure = format!("{} /s", terminal::count(per_second.round() as u64));
        Row { what: what.into(), figure, ..Row::default() }
    }

    pub(super) fn against(self, what: &str, times: f64, bar: f64) -> Self {
        Row { against: Some((what.to_owned(), times, bar)), ..self }
    }

    pub(super) fn note(self, note: impl Into<String>) -> Self {
        Row { note: note.into(), ..self }
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        let Row { what, figure, against, note } = self;
        let (against, times, bar) = match against {
            Some((against, times, bar)) => (against.as_str(), format!("{times:.2}"), format!("{bar:.2}")),
            None => ("", String::new(), String::new()),
        };
        print(&format!("| {what} | {figure} | {against} | {times} | {bar} | {note} |\n"))
    }
}
