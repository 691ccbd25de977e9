//! Which addresses may be called here: public ones, and of the private ones those whose network is named.
//!
//! Whatever is named, an address that [`classify`] forbids stays forbidden: a network can only open private addresses.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use super::address::{Class, classify};
use crate::config::Invalid;

/// By default public addresses alone. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    networks: Arc<[Network]>,
    /// Those below 1024, too.
    any_port: bool,
}

impl Reachable {
    /// Dev mode: this machine, on any port.
    pub fn loopback() -> Self {
        Reachable { networks: LOOPBACK.into(), any_port: true }
    }

    /// These private networks as well.
    pub fn and(self, networks: &[Network]) -> Self {
        let networks = self.networks.iter().chain(networks).copied().collect();
        Reachable { networks, ..self }
    }

    /// May this address be dialled?
    pub fn allows(&self, ip: IpAddr) -> bool {
        match classify(ip) {
            Class::Public => true,
            Class::Private => self.networks.iter().any(|network| network.holds(ip)),
            Class::Forbidden => false,
        }
    }

    pub(super) fn allows_port(&self, port: u16) -> bool {
        port != 0 && (self.any_port || matches!(port, 80 | 443 | 1024..))
    }

    /// Names that exist inside a network only. Where they lead is checked at every connect.
    pub(super) fn allows_inside_names(&self) -> bool {
        !self.networks.is_empty()
    }
}

/// A private network, written as `10.20.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    last: IpAddr,
}

const LOOPBACK: [Network; 2] = [
    Network { first: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), last: IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255)) },
    Network { first: IpAddr::V6(Ipv6Addr::LOCALHOST), last: IpAddr::V6(Ipv6Addr::LOCALHOST) },
];

impl Network {
    /// The network, if it opens private addresses and nothing beside them.
    pub fn parse(key: &str, text: &str) -> Result<Self, Invalid> {
        let invalid = |problem: String| Invalid::new(key, format!("{text:?} {problem}"));
        let Some((ip, length)) = split(text) else {
            let fix = text.parse().map_or_else(|_| "\"fd12::/48\"".to_owned(), |ip| format!("{:?}", alone(ip)));
            return Err(invalid(format!(
                "is not a network: write an address and a length, such as \"10.20.0.0/16\" or {fix}"
            )));
        };
        let network = Network::around(ip, length);
        if ip != network.first {
            let (whole, alone) = (format!("{}/{length}", network.first), alone(ip));
            return Err(invalid(format!(
                "has bits set behind its length: write {whole:?} for the network, or {alone:?} for the one address"
            )));
        }
        // No network that is wider than a private block begins and ends in one, so its ends decide.
        if !is_private(network.first) || !is_private(network.last) {
            return Err(invalid(
                "is not within a private network: name one within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7, \
                 127.0.0.0/8 or ::1/128. Public addresses need no entry, and no other may ever be called"
                    .into(),
            ));
        }
        if [network.first, network.last].map(classify) == [Class::Forbidden; 2] {
            return Err(invalid("is where clouds hand out credentials, which is never called: take it out".into()));
        }
        Ok(network)
    }

    fn around(ip: IpAddr, length: u32) -> Self {
        match ip {
            IpAddr::V4(ip) => {
                let free = u32::MAX.checked_shr(length).unwrap_or(0);
                let [first, last] = [ip.to_bits() & !free, ip.to_bits() | free].map(Ipv4Addr::from_bits);
                Network { first: first.into(), last: last.into() }
            }
            IpAddr::V6(ip) => {
                let free = u128::MAX.checked_shr(length).unwrap_or(0);
                let [first, last] = [ip.to_bits() & !free, ip.to_bits() | free].map(Ipv6Addr::from_bits);
                Network { first: first.into(), last: last.into() }
            }
        }
    }

    fn holds(&self, ip: IpAddr) -> bool {
        (self.first..=self.last).contains(&ip)
    }
}

fn split(text: &str) -> Option<(IpAddr, u32)> {
    let (ip, length) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let is_number = length.bytes().all(|letter| letter.is_ascii_digit());
    let length = length.parse().ok().filter(|length| is_number && *length <= bits(ip))?;
    Some((ip, length))
}

fn bits(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS }
}

/// The network of this address alone.
fn alone(ip: IpAddr) -> String {
    format!("{ip}/{}", bits(ip))
}

/// Of a private block, the clouds' metadata in it included.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback(),
    }
}
