//! The names of limits' metrics. No tenant, no key: labels are bounded.

pub(crate) const DECISIONS: &str = "tidegate_limits_decisions_total"; // door: resp; result: allowed, denied
