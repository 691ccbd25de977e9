//! Why a call has no answer.

use std::{fmt, io, time::Duration};

use super::Refused;

/// What a call was doing when its time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Dns,
    Connect,
    Tls,
    /// From the first byte of the request to the last of the answer's head.
    Answer,
    Body,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Dns => "dns",
            Phase::Connect => "connect",
            Phase::Tls => "tls",
            Phase::Answer => "answer",
            Phase::Body => "body",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Phase::Dns => "while its name was looked up",
            Phase::Connect => "before the connection was open",
            Phase::Tls => "during the TLS handshake",
            Phase::Answer => "before the answer's headers were complete",
            Phase::Body => "before the answer's body was complete",
        })
    }
}

/// One sentence for the person who runs the receiver; nothing in it tells what a name resolved to.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the host name could not be resolved")]
    Dns,
    #[error("{}", connect_sentence(.0))]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    #[error("the receiver took longer than {after:?}: time ran out {phase}")]
    Timeout { phase: Phase, after: Duration },
    #[error("the receiver's answer is not HTTP as we take it: {0}")]
    Protocol(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the receiver closed the connection without an answer")]
    ConnectionClosed,
}

impl CallError {
    /// A bounded label for metrics and records.
    pub fn class(&self) -> &'static str {
        match self {
            CallError::Refused(_) => "refused",
            CallError::Dns => "dns",
            CallError::Connect(_) => "connect",
            CallError::Tls(_) => "tls",
            CallError::Timeout { .. } => "timeout",
            CallError::Protocol(_) => "protocol",
            CallError::ConnectionClosed => "connection_closed",
        }
    }
}

fn connect_sentence(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the receiver refused the connection",
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => "the receiver reset the connection",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "the receiver cannot be reached",
        io::ErrorKind::TimedOut => "the receiver did not take the connection in time",
        _ => "the connection to the receiver could not be opened",
    }
}
