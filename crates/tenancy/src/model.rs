//! Tenants, keys and audit entries as callers see them.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::scope::Scope;

/// Whoever owns events, limits and budgets. Nothing crosses from one to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tenant {
    #[schema(example = "tnt_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    #[schema(example = "Acme Ltd")]
    pub name: String,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// An API key without the key itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    #[schema(example = "key_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    pub id: String,
    pub tenant_id: String,
    #[schema(example = "billing service")]
    pub name: String,
    /// The first characters, to tell keys apart.
    #[schema(example = "tgk_4f9a1c…")]
    pub hint: String,
    pub scopes: Vec<Scope>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<OffsetDateTime>,
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<OffsetDateTime>,
    /// To the minute.
    #[serde(with = "platform::moment::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<OffsetDateTime>,
    /// The key that took this one's place.
    pub replaced_by: Option<String>,
}

impl ApiKey {
    /// In a word, for lists.
    pub fn state(&self, now: OffsetDateTime) -> &'static str {
        match (self.revoked_at, self.expires_at, &self.replaced_by) {
            (Some(_), _, _) => "revoked",
            (None, Some(end), _) if end <= now => "expired",
            (None, _, Some(_)) => "replaced",
            (None, _, None) => "live",
        }
    }
}

/// Who changed what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditEntry {
    pub id: String,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    pub at: OffsetDateTime,
    pub tenant_id: String,
    /// `admin`, `dev`, `cli`, or the id of a key.
    #[schema(example = "admin")]
    pub actor: String,
    #[schema(example = "key.created")]
    pub action: String,
    /// The id of what was changed.
    pub target: String,
}
