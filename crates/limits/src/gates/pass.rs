//! A pass as callers keep it: text that opens one target of one tenant, and nothing else.
//!
//! It holds the gate's token and, where the caller brought its own policy, that policy: so any replica can end it. A mark
//! made with the master key binds it to its tenant and target; what was changed, guessed or carried elsewhere is refused.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use gate::gate::Token;
use tenancy::vault::{MARK, Place, Vault};

use super::policy::Written;

/// What every pass begins with.
const PREFIX: &str = "pass_";
/// A policy of many words is a few hundred bytes.
const LONGEST: usize = 4096;

/// What stands in a pass.
#[derive(Debug, PartialEq)]
pub(super) struct Pass {
    pub(super) token: Token,
    /// What the caller brought when it entered.
    pub(super) policy: Option<Written>,
}

impl Pass {
    pub(super) fn write(&self, vault: &Vault, tenant: &str, target: &str) -> String {
        let policy = self.policy.as_ref().map(|policy| serde_json::to_string(policy).expect("a policy is plain data"));
        let mut bytes = format!("{} {}", self.token, policy.unwrap_or_default()).into_bytes();
        let mark = vault.mark(place(tenant, &row(target)), &bytes);
        bytes.extend_from_slice(&mark);
        format!("{PREFIX}{}", BASE64.encode(bytes))
    }

    /// `None` for everything that was not given to this tenant for this target.
    pub(super) fn read(text: &str, vault: &Vault, tenant: &str, target: &str) -> Option<Pass> {
        let bytes = BASE64.decode(text.strip_prefix(PREFIX).filter(|rest| rest.len() <= LONGEST)?).ok()?;
        let (bytes, mark) = bytes.split_at_checked(bytes.len().checked_sub(MARK)?)?;
        if !vault.is_marked(place(tenant, &row(target)), bytes, mark) {
            return None;
        }
        let (token, policy) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let policy = if policy.is_empty() { None } else { Some(serde_json::from_str(policy).ok()?) };
        Some(Pass { token: Token::parse(token)?, policy })
    }
}

fn place<'a>(tenant: &'a str, row: &'a str) -> Place<'a> {
    Place { tenant, row }
}

fn row(target: &str) -> String {
    format!("gate/{target}")
}

#[cfg(test)]
mod tests {
    use platform::secret::Secret;

    use super::*;

    fn vault() -> Vault {
        Vault::new(&Secret::new("00".repeat(32))).unwrap()
    }

    #[test]
    fn a_pass_reads_back_for_its_tenant_and_target_alone() {
        for policy in [None, Some(Written::standard())] {
            let pass = Pass { token: Token::parse("s.-.7.-").unwrap(), policy };
            let text = pass.write(&vault(), "acme", "api");
            assert_eq!(Pass::read(&text, &vault(), "acme", "api"), Some(pass));
            for (tenant, target) in [("globex", "api"), ("acme", "db"), ("acme", "api2"), ("acm", "eapi")] {
                assert_eq!(Pass::read(&text, &vault(), tenant, target), None, "{tenant} {target}");
            }
        }
    }

    #[test]
    fn what_was_made_up_or_changed_is_no_pass() {
        let pass = Pass { token: Token::parse("s.-.7.-").unwrap(), policy: None };
        let text = pass.write(&vault(), "acme", "api");
        for place in PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Pass::read(&changed, &vault(), "acme", "api"), None, "{place}");
        }
        for text in ["", "pass_", "pass_AAAA", "s.-.7.-", "pass_ä", &format!("pass_{}", "A".repeat(100_000))] {
            assert_eq!(Pass::read(text, &vault(), "acme", "api"), None);
        }
    }
}
