//! The names of limits' metrics. No tenant, no key: labels are bounded.

pub(crate) const DECISIONS: &str = "tidegate_limits_decisions_total"; // door: grpc, resp; result: allowed, denied
pub(crate) const GATE_ENTRIES: &str = "tidegate_gates_entries_total"; // result: pass, rate, circuit, concurrency
pub(crate) const GATES_UNLISTED: &str = "tidegate_gates_unlisted_total"; // uses that were not noted for the list
pub(crate) const RULES_REFUSED: &str = "tidegate_limits_rules_refused"; // setting; 1 while a file is wrong and old rules hold
pub(crate) const GRPC_SHED: &str = "tidegate_grpc_calls_shed_total"; // calls refused because too many were under way
pub(crate) const RULE_DECISIONS: &str = "tidegate_limits_rule_decisions_total"; // rule (200, then "other"), result: allowed, denied, shadow_denied
pub(crate) const KEYS_UNSEEN: &str = "tidegate_limits_keys_unseen_total"; // decisions left out of the list of keys
pub(crate) const TENANTS_FORGOTTEN: &str = "tidegate_limits_tenants_forgotten_total"; // tenants whose list of keys began anew
