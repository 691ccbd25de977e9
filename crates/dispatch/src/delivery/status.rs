//! Where a delivery stands. The words are the same in rows, in JSON and in queries.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not attempted yet.
    Pending,
    /// A worker holds its lease.
    Processing,
    /// The receiver answered 2xx. Final.
    Delivered,
    /// An attempt failed, another one is due.
    Retrying,
    /// The gate refused; no attempt was spent, another one is due.
    Throttled,
    /// Given up. Final, until someone retries it by hand.
    Failed,
    /// Called off by an operator. Final.
    Cancelled,
}

impl Status {
    pub const ALL: [Status; 7] = [
        Status::Pending,
        Status::Processing,
        Status::Delivered,
        Status::Retrying,
        Status::Throttled,
        Status::Failed,
        Status::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Processing => "processing",
            Status::Delivered => "delivered",
            Status::Retrying => "retrying",
            Status::Throttled => "throttled",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Few deliveries are in it at a time, so there is an index of them.
    pub fn is_rare(self) -> bool {
        matches!(self, Status::Retrying | Status::Throttled | Status::Failed | Status::Cancelled)
    }

    /// Nothing more happens by itself.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Delivered | Status::Failed | Status::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn a_status_is_the_same_word_in_rows_and_in_json() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
            let json = format!("\"{status}\"");
            assert_eq!(serde_json::to_string(&status).unwrap(), json);
            assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
        }
        assert_eq!(Status::parse("Pending"), None);
        assert_eq!(Status::parse(""), None);
    }
}
