//! What a key may do. Scopes are stored by name; roles are only a short way to write sets of them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Scope {
    #[serde(rename = "dispatch:read")]
    DispatchRead,
    #[serde(rename = "dispatch:write")]
    DispatchWrite,
    #[serde(rename = "limits:read")]
    LimitsRead,
    #[serde(rename = "limits:write")]
    LimitsWrite,
    #[serde(rename = "limits:check")]
    LimitsCheck,
    #[serde(rename = "gateway:use")]
    GatewayUse,
    #[serde(rename = "gateway:read")]
    GatewayRead,
    #[serde(rename = "keys:read")]
    KeysRead,
    #[serde(rename = "keys:write")]
    KeysWrite,
}

/// A usual set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, the tenant's own keys included.
    Admin,
    /// Everything but keys.
    Editor,
    /// Looks, never changes.
    Viewer,
}

impl Scope {
    pub const ALL: [Scope; 9] = [
        Scope::DispatchRead,
        Scope::DispatchWrite,
        Scope::LimitsRead,
        Scope::LimitsWrite,
        Scope::LimitsCheck,
        Scope::GatewayUse,
        Scope::GatewayRead,
        Scope::KeysRead,
        Scope::KeysWrite,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Scope::DispatchRead => "dispatch:read",
            Scope::DispatchWrite => "dispatch:write",
            Scope::LimitsRead => "limits:read",
            Scope::LimitsWrite => "limits:write",
            Scope::LimitsCheck => "limits:check",
            Scope::GatewayUse => "gateway:use",
            Scope::GatewayRead => "gateway:read",
            Scope::KeysRead => "keys:read",
            Scope::KeysWrite => "keys:write",
        }
    }
}

impl Role {
    pub fn scopes(self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.includes(*scope)).collect()
    }

    fn includes(self, scope: Scope) -> bool {
        match self {
            Role::Admin => true,
            Role::Editor => !matches!(scope, Scope::KeysRead | Scope::KeysWrite),
            Role::Viewer => scope.name().ends_with(":read"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How scopes stand in a row: names with spaces between.
pub fn join(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(" ")
}

/// Reads a row's scopes. A name that this version does not know (a newer replica wrote it) grants nothing here.
pub fn split(text: &str) -> Vec<Scope> {
    text.split_whitespace().filter_map(|name| Scope::ALL.into_iter().find(|scope| scope.name() == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_survive_their_row() {
        assert_eq!(split(&join(&Scope::ALL)), Scope::ALL);
        assert_eq!(split("dispatch:read future:scope"), [Scope::DispatchRead]);
    }

    #[test]
    fn the_wire_name_is_the_row_name() {
        for scope in Scope::ALL {
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("\"{scope}\""));
        }
    }

    #[test]
    fn a_viewer_changes_nothing_and_an_editor_makes_no_keys() {
        assert!(Role::Viewer.scopes().iter().all(|scope| scope.name().ends_with(":read")));
        assert!(!Role::Editor.scopes().contains(&Scope::KeysWrite));
        assert_eq!(Role::Admin.scopes(), Scope::ALL);
    }
}
