//! Free loopback ports that stay ours while the server on them is down.
//!
//! Ports lie below the range from which the kernel serves outgoing connections, so none of those can take one. Between
//! processes a port is held by an abstract socket of the same number: it vanishes with its holder and leaves no file.
//! With every port comes the one 10000 higher, which Redis Cluster uses for its bus.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use crate::fresh;

const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
pub(crate) const BUS: u16 = 10_000;

#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: UnixListener,
}

impl Port {
    pub(crate) fn reserve() -> Option<Port> {
        let start = fresh::random() % u64::from(COUNT);
        (0..COUNT).find_map(|step| {
            let offset = u16::try_from((start + u64::from(step)) % u64::from(COUNT)).ok()?;
            Port::hold(FIRST + offset)
        })
    }

    fn hold(number: u16) -> Option<Port> {
        let name = SocketAddr::from_abstract_name(format!("testkit-port-{number}")).ok()?;
        let held = UnixListener::bind_addr(&name).ok()?;
        for port in [number, number + BUS] {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        }
        Some(Port { number, _held: held })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
