//! What kinds of addresses there are: the rules, and nothing else.
//!
//! IPv6 is decided by what is allowed (global unicast, `2000::/3`) minus what is special inside it; so every spelling of
//! an IPv4 address as an IPv6 one (mapped, compatible, SIIT, NAT64) is refused without being decoded. IPv4 is decided
//! by IANA's registry of special blocks, plus the addresses at which clouds hand out credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Public,
    /// Loopback and private networks: dialled where [`Reachable`](super::Reachable) says so.
    Private,
    /// Never dialled.
    Forbidden,
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

/// Network, prefix length, class. What is in none of them is public.
const SPECIAL_V4: [(u32, u32, Class); 20] = [
    (v4(0, 0, 0, 0), 8, Class::Forbidden),          // this network
    (v4(10, 0, 0, 0), 8, Class::Private),           // private
    (v4(100, 64, 0, 0), 10, Class::Forbidden),      // shared by carriers; Alibaba's metadata
    (v4(127, 0, 0, 0), 8, Class::Private),          // loopback
    (v4(168, 63, 129, 16), 32, Class::Forbidden),   // Azure's metadata, on a public address
    (v4(169, 254, 0, 0), 16, Class::Forbidden),     // link-local; the clouds' metadata
    (v4(172, 16, 0, 0), 12, Class::Private),        // private
    (v4(192, 0, 0, 0), 24, Class::Forbidden),       // protocol assignments; Oracle's metadata
    (v4(192, 0, 2, 0), 24, Class::Forbidden),       // documentation
    (v4(192, 31, 196, 0), 24, Class::Forbidden),    // AS112
    (v4(192, 52, 193, 0), 24, Class::Forbidden),    // multicast tunnels
    (v4(192, 88, 99, 0), 24, Class::Forbidden),     // 6to4 relays
    (v4(192, 168, 0, 0), 16, Class::Private),       // private
    (v4(192, 175, 48, 0), 24, Class::Forbidden),    // AS112
    (v4(198, 18, 0, 0), 15, Class::Forbidden),      // benchmarks
    (v4(198, 51, 100, 0), 24, Class::Forbidden),    // documentation
    (v4(203, 0, 113, 0), 24, Class::Forbidden),     // documentation
    (v4(224, 0, 0, 0), 4, Class::Forbidden),        // multicast
    (v4(240, 0, 0, 0), 4, Class::Forbidden),        // class E
    (v4(255, 255, 255, 255), 32, Class::Forbidden), // broadcast
];

pub fn classify(ip: IpAddr) -> Class {
    match ip {
        IpAddr::V4(ip) => classify_v4(ip),
        IpAddr::V6(ip) => classify_v6(ip),
    }
}

/// Is this one of our own listeners? One that listens everywhere also has every loopback address.
pub fn is_own(address: SocketAddr, own_listeners: &[SocketAddr]) -> bool {
    let ip = address.ip().to_canonical();
    own_listeners.iter().any(|own| {
        let is_same_host = own.ip().to_canonical() == ip || own.ip().is_unspecified() && ip.is_loopback();
        is_same_host && own.port() == address.port()
    })
}

/// A socket whose two ends have one address talks to this machine, whatever that address is.
pub fn is_call_to_self(local: SocketAddr, peer: SocketAddr, own_listeners: &[SocketAddr]) -> bool {
    let listens_everywhere = |own: &SocketAddr| own.ip().is_unspecified() && own.port() == peer.port();
    local.ip() == peer.ip() && own_listeners.iter().any(listens_everywhere)
}

fn classify_v4(ip: Ipv4Addr) -> Class {
    let bits = ip.to_bits();
    let is_in = |network: u32, prefix: u32| (bits ^ network) >> (32 - prefix) == 0;
    SPECIAL_V4.iter().find(|(network, prefix, _)| is_in(*network, *prefix)).map_or(Class::Public, |special| special.2)
}

fn classify_v6(ip: Ipv6Addr) -> Class {
    let part = ip.segments();
    if part[0] & 0xe000 != 0x2000 {
        // AWS and Google hand out credentials on unique local addresses.
        let is_metadata = part[..2] == [0xfd00, 0x0ec2] || part[..2] == [0xfd20, 0x00ce];
        let is_private = ip.is_loopback() || part[0] & 0xfe00 == 0xfc00;
        return if is_private && !is_metadata { Class::Private } else { Class::Forbidden };
    }
    let is_special = match part[0] {
        0x2001 => part[1] < 0x0200 || part[1] == 0x0db8, // Teredo, ORCHID, benchmarks, AS112 ..; documentation
        0x2002 => true,                                  // 6to4
        0x2620 => part[1..3] == [0x004f, 0x8000],        // AS112
        0x3fff => part[1] < 0x1000,                      // documentation
        _ => false,
    };
    // An ISATAP address has an IPv4 address behind 0:5efe or 200:5efe, under any prefix.
    let is_isatap = part[4] & 0xfdff == 0 && part[5] == 0x5efe;
    if is_special || is_isatap { Class::Forbidden } else { Class::Public }
}
