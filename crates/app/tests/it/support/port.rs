//! Free loopback ports that stay ours between two starts.
//!
//! They lie above those of `testkit` and below the range from which the kernel serves outgoing connections. Between test
//! processes a port is held by an abstract socket of the same number, which vanishes with its holder.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener},
    },
    sync::atomic::{AtomicU16, Ordering},
};

const FIRST: u16 = 30_000;
const COUNT: u16 = 2_700;

pub(crate) struct Port {
    number: u16,
    _held: UnixListener,
}

impl Port {
    pub(crate) fn reserve() -> Port {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap();
        (0..COUNT).find_map(|_| Port::hold(FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT)).unwrap()
    }

    fn hold(number: u16) -> Option<Port> {
        let name = UnixAddr::from_abstract_name(format!("tidegate-test-port-{number}")).unwrap();
        let held = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _held: held })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
