//! Integration tests of the platform: real sockets, hostile clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod flood;
mod http_client;
mod http_server;
mod lane;
