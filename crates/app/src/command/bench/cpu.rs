//! Where the processors' time went: in processes of the bench, in servers by their names, in nobody.

use std::fs;

/// Linux has counted in hundredths for decades, whatever its own clock does.
const TICKS: f64 = 100.0;

/// What each part has had of the processors, in seconds. Zeros where there is no `/proc`.
#[derive(Clone, Default)]
pub(super) struct Spent(Vec<(&'static str, f64)>);

impl Spent {
    /// So far: of these processes of the bench, and of all that have a server's name.
    pub(super) fn now(processes: &[(&'static str, f64)], servers: &[(&'static str, &str)]) -> Self {
        let servers = servers.iter().map(|(part, name)| (*part, of_all(name)));
        let load = [("load", seconds(std::process::id()))];
        Spent(processes.iter().copied().chain(load).chain(servers).chain([("idle", idle())]).collect())
    }

    pub(super) fn since(&self, before: &Spent) -> Spent {
        let parts = self.0.iter().zip(&before.0);
        Spent(parts.map(|((part, now), (_, before))| (*part, now - before)).collect())
    }

    /// In all of these together.
    pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Spent>) -> Spent {
        let add = |a: Spent, b: Spent| Spent(a.0.iter().zip(&b.0).map(|((part, a), (_, b))| (*part, a + b)).collect());
        all.into_iter().cloned().reduce(add).unwrap_or_default()
    }

    /// `workers 58 µs, PostgreSQL 49 µs, …` for each of so many.
    pub(super) fn each(&self, count: u64) -> String {
        let spent = self.0.iter().filter(|(_, seconds)| *seconds > 0.0);
        let each = spent.map(|(part, seconds)| format!("{part} {:.1} µs", seconds * 1e6 / count.max(1) as f64));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Of one process so far.
pub(super) fn seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    read(&stat).map_or(0.0, |(_, ticks)| ticks / TICKS)
}

/// Of all processes of a name, and of their children that have ended.
fn of_all(wanted: &str) -> f64 {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let ticks: f64 =
        stats.filter_map(|stat| read(&stat).filter(|(name, _)| *name == wanted).map(|(_, ticks)| ticks)).sum();
    ticks / TICKS
}

/// Of all cores, with nothing to do or waiting for a disk: the 4th and 5th number of the first line.
fn idle() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    numbers.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// The name in brackets, and its ticks in user and system mode and those of children that have ended: the 12th to 15th word
/// after it.
fn read(stat: &str) -> Option<(&str, f64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let ticks = rest.split(' ').skip(11).take(4).map(str::parse::<f64>);
    Some((name, ticks.collect::<Result<Vec<_>, _>>().ok()?.iter().sum()))
}
