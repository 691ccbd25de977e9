//! Where the processors' time went, by the names of processes: the share of each server in a run.

use std::{collections::BTreeMap, fs};

/// Ticks since each process began, summed by name.
pub(super) struct Cpu(BTreeMap<String, u64>);

impl Cpu {
    /// Now. Empty where there is no `/proc`.
    pub(super) fn now() -> Self {
        let mut ticks = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            if let Some((name, spent)) = read(&stat) {
                *ticks.entry(name.to_owned()).or_default() += spent;
            }
        }
        Cpu(ticks)
    }

    /// Since then, the largest first: `postgres 34 %, tidegate 30 %, …`.
    pub(super) fn since(&self, names: &[&str]) -> String {
        let now = Cpu::now();
        let spent = |name: &str| {
            let at = |cpu: &Cpu| cpu.0.get(name).copied().unwrap_or_default();
            at(&now).saturating_sub(at(self))
        };
        let mut shares: Vec<(u64, &str)> = names.iter().map(|name| (spent(name), *name)).collect();
        let all: u64 = shares.iter().map(|(ticks, _)| ticks).sum();
        shares.sort_unstable_by(|a, b| b.cmp(a));
        let shares = shares.iter().filter(|(ticks, _)| *ticks > 0);
        let shares = shares.map(|(ticks, name)| format!("{name} {} %", 100 * ticks / all.max(1)));
        shares.collect::<Vec<_>>().join(", ")
    }
}

/// Of one process so far, in seconds; 0 where there is no `/proc`.
pub(super) fn seconds(process: u32) -> f64 {
    // Linux has counted in hundredths for decades, whatever its own clock does.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    read(&stat).map_or(0.0, |(_, ticks)| ticks as f64 / 100.0)
}

/// The name in brackets, and the ticks in user and system mode, which are the 12th and 13th word after it.
fn read(stat: &str) -> Option<(&str, u64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    Some((name, words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?))
}
