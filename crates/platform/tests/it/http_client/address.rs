//! The address rules: every special block in every spelling is refused, the public Internet is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use platform::http_client::{
    Reachable,
    address::{Class, classify, is_call_to_self, is_own},
};
use proptest::prelude::*;

use super::all_reachable;

/// IANA's special-purpose registries, copied from there by hand and not from the code.
pub(super) const SPECIAL_V4: [&str; 20] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "168.63.129.16/32",
];
pub(super) const SPECIAL_V6: [&str; 27] = [
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:1::1/128",
    "2001:2::/48",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

pub(super) fn block(text: &str) -> (IpAddr, u32) {
    let (ip, prefix) = text.split_once('/').unwrap();
    (ip.parse().unwrap(), prefix.parse().unwrap())
}

/// An address of the block whose free bits are taken from `noise`.
pub(super) fn member_v4(text: &str, noise: u32) -> Ipv4Addr {
    let (IpAddr::V4(ip), prefix) = block(text) else { unreachable!() };
    Ipv4Addr::from_bits(ip.to_bits() | noise & u32::MAX.checked_shr(prefix).unwrap_or(0))
}

pub(super) fn member_v6(text: &str, noise: u128) -> Ipv6Addr {
    let (IpAddr::V6(ip), prefix) = block(text) else { unreachable!() };
    Ipv6Addr::from_bits(ip.to_bits() | noise & u128::MAX.checked_shr(prefix).unwrap_or(0))
}

/// Every way in which an IPv6 address can stand for an IPv4 one; `noise` fills what is free.
pub(super) fn spellings(ip: Ipv4Addr, noise: u128) -> Vec<IpAddr> {
    let v4 = u128::from(ip.to_bits());
    let global = 0x2000 << 112 | (noise >> 3 & !(0xffff << 112)) & (u128::MAX << 64);
    let at = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
    [
        at("::ffff:0:0") | v4,                 // mapped
        v4,                                    // compatible
        at("::ffff:0:0:0") | v4,               // SIIT
        at("64:ff9b::") | v4,                  // NAT64
        at("64:ff9b:1::") | v4,                // NAT64, local
        at("2002::") | v4 << 80 | noise >> 48, // 6to4
        at("2001::") | !v4 & 0xffff_ffff,      // Teredo: the client's address, inverted
        at("2001::") | v4 << 64,               // Teredo: the server's address
        global | 0x0000_5efe << 32 | v4,       // ISATAP
        global | 0x0200_5efe << 32 | v4,       // ISATAP, of a public address
        at("fe80::5efe:0:0") | v4,
    ]
    .map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    .into()
}

#[test]
fn the_first_and_last_address_of_every_special_block_is_refused() {
    for text in SPECIAL_V4 {
        for noise in [0, u32::MAX, 1, 0x5555_5555] {
            let ip = member_v4(text, noise);
            assert_ne!(classify(ip.into()), Class::Public, "{ip} of {text}");
            for spelling in spellings(ip, u128::MAX) {
                assert_ne!(classify(spelling), Class::Public, "{spelling} for {ip} of {text}");
            }
        }
    }
    for text in SPECIAL_V6 {
        for noise in [0, u128::MAX, 1, u128::MAX / 3] {
            let ip = member_v6(text, noise);
            assert_ne!(classify(ip.into()), Class::Public, "{ip} of {text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_address_of_a_special_block_is_public(index in 0..20_usize, noise: u32, more: u128) {
        let ip = member_v4(SPECIAL_V4[index], noise);
        prop_assert!(!Reachable::default().allows(ip.into()), "{}", ip);
        for spelling in spellings(ip, more) {
            prop_assert!(!Reachable::default().allows(spelling), "{} for {}", spelling, ip);
        }
    }

    #[test]
    fn no_ipv6_address_of_a_special_block_is_public(index in 0..27_usize, noise: u128) {
        let ip = member_v6(SPECIAL_V6[index], noise);
        prop_assert!(!Reachable::default().allows(ip.into()), "{}", ip);
    }

    /// Outside the registry's blocks everything is public; membership is decided here by comparing prefixes.
    #[test]
    fn every_other_ipv4_address_is_public(bits: u32) {
        let is_special = SPECIAL_V4.iter().any(|text| {
            let (IpAddr::V4(network), prefix) = block(text) else { unreachable!() };
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            bits & mask == network.to_bits()
        });
        prop_assert_eq!(Reachable::default().allows(Ipv4Addr::from_bits(bits).into()), !is_special);
    }
}

#[test]
fn a_thousand_public_addresses_are_allowed() {
    let v4 = [
        "1.1.1.1",
        "8.8.8.8",
        "9.9.9.9",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "11.0.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "203.0.112.255",
    ];
    let v6 = [
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2620:fe::fe",
        "2a00:1450:4001::200e",
        "2001:200::1",
        "2400:cb00::1",
        "2003::1",
        "2620:4f:8001::1",
        "3fff:1000::1",
        "2001:db7:ffff::1",
        "2001:db9::1",
    ];
    let edges = v4.iter().chain(&v6).map(|text| text.parse::<IpAddr>().unwrap());
    // Providers' own ranges, walked through.
    let walked = (0..500_u32).map(|step| IpAddr::V4(Ipv4Addr::from_bits(0x3400_0000 + step * 0x0000_5351)));
    let walked6 = (0..500_u128)
        .map(|step| IpAddr::V6(Ipv6Addr::from_bits(0x2600_1f00 << 96 | step << 64 | (step * 0x1_0001 + 1))));
    let mut count = 0;
    for ip in edges.chain(walked).chain(walked6) {
        assert!(Reachable::default().allows(ip), "{ip}");
        count += 1;
    }
    assert!(count >= 1000, "{count}");
}

#[test]
fn metadata_services_are_refused_whatever_is_allowed() {
    for ip in [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::a9fe:a9fe",
    ] {
        assert!(!all_reachable().allows(ip.parse().unwrap()), "{ip}");
    }
}

#[test]
fn our_own_listeners_are_known_by_every_name_they_have() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let everywhere = [address("0.0.0.0:8080")];
    assert!(is_own(address("127.0.0.1:8080"), &everywhere));
    assert!(is_own(address("127.9.9.9:8080"), &everywhere));
    assert!(is_own(address("[::1]:8080"), &[address("[::]:8080")]));
    assert!(is_own(address("[::ffff:10.0.0.5]:8080"), &[address("10.0.0.5:8080")]));
    assert!(!is_own(address("127.0.0.1:8081"), &everywhere));
    assert!(!is_own(address("10.0.0.6:8080"), &[address("10.0.0.5:8080")]));
    assert!(is_call_to_self(address("93.184.216.34:50000"), address("93.184.216.34:8080"), &everywhere));
    assert!(!is_call_to_self(address("93.184.216.34:50000"), address("93.184.216.34:8081"), &everywhere));
    assert!(!is_call_to_self(address("93.184.216.34:50000"), address("93.184.216.35:8080"), &everywhere));
}
