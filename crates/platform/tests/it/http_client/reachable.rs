//! What a setting opens: private addresses of the networks it names, and nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use platform::http_client::{
    Network, Reachable, Target,
    address::{Class, classify},
};
use proptest::{collection::vec, prelude::*};

use super::{
    address::{SPECIAL_V4, SPECIAL_V6, block, member_v4, member_v6, spellings},
    all_reachable, allowing,
};

/// What the setting may open, whole or in parts.
const PRIVATE: [&str; 6] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1/128"];
/// Within it, where there is nothing to open.
const METADATA: [&str; 2] = ["fd00:ec2::/32", "fd20:ce::/32"];

fn member(text: &str, noise: u128) -> IpAddr {
    match block(text).0 {
        IpAddr::V4(_) => member_v4(text, u32::try_from(noise >> 96).unwrap()).into(),
        IpAddr::V6(_) => member_v6(text, noise).into(),
    }
}

/// Membership, decided by comparing digits.
fn is_in(text: &str, ip: IpAddr) -> bool {
    let digits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => format!("{:032b}", ip.to_bits()),
        IpAddr::V6(ip) => format!("{:0128b}", ip.to_bits()),
    };
    let (network, length) = block(text);
    network.is_ipv4() == ip.is_ipv4() && digits(ip).starts_with(&digits(network)[..length as usize])
}

fn is_one_of(blocks: &[&str], ip: IpAddr) -> bool {
    blocks.iter().any(|text| is_in(text, ip))
}

/// Some network, of any length, often around a special address.
fn network() -> impl Strategy<Value = String> {
    (address(), 0..=128_u32).prop_map(|(ip, length)| match ip {
        IpAddr::V4(ip) => {
            let length = length / 4;
            let first = ip.to_bits() & !u32::MAX.checked_shr(length).unwrap_or(0);
            format!("{}/{length}", Ipv4Addr::from_bits(first))
        }
        IpAddr::V6(ip) => {
            let first = ip.to_bits() & !u128::MAX.checked_shr(length).unwrap_or(0);
            format!("{}/{length}", Ipv6Addr::from_bits(first))
        }
    })
}

/// Some address, mostly one that is special.
fn address() -> impl Strategy<Value = IpAddr> {
    let blocks = || [&SPECIAL_V4[..], &SPECIAL_V6, &PRIVATE, &PRIVATE, &METADATA].concat();
    let special = (0..blocks().len(), any::<u128>()).prop_map(move |(index, noise)| member(blocks()[index], noise));
    let spelt = (0..20_usize, any::<u32>(), any::<u128>(), 0..11_usize)
        .prop_map(|(index, noise, more, way)| spellings(member_v4(SPECIAL_V4[index], noise), more)[way]);
    let any_v4 = any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into());
    let any_v6 = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into());
    prop_oneof![4 => special, 2 => spelt, 1 => any_v4, 1 => any_v6]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn dev_mode_opens_loopback_only(ip in address()) {
        let is_opened = Reachable::loopback().allows(ip) && !Reachable::default().allows(ip);
        prop_assert_eq!(is_opened, ip.is_loopback(), "{}", ip);
    }

    /// Of all addresses, and of those that lie in the networks themselves.
    #[test]
    fn a_network_opens_the_private_addresses_in_it_and_nothing_else(
        ip in address(), noise: u128, texts in vec(network(), 1..12)
    ) {
        let taken: Vec<&str> = texts.iter().map(String::as_str).filter(|text| Network::parse("key", text).is_ok()).collect();
        for ip in taken.iter().map(|text| member(text, noise)).chain([ip]) {
            let is_opened = allowing(&taken).allows(ip) && !Reachable::default().allows(ip);
            let may_be = is_one_of(&taken, ip) && is_one_of(&PRIVATE, ip) && !is_one_of(&METADATA, ip);
            prop_assert_eq!(is_opened, may_be, "{} by {:?}", ip, taken);
            prop_assert!(!is_opened || classify(ip) == Class::Private, "{}", ip);
        }
    }

    /// One is taken if it lies within a private block, and not within what is never called.
    #[test]
    fn no_network_is_taken_that_holds_more_than_private_addresses(text in network()) {
        let (first, length) = block(&text);
        let lies_in = |outers: &[&str]| outers.iter().any(|outer| is_in(outer, first) && length >= block(outer).1);
        let is_good = lies_in(&PRIVATE) && !lies_in(&METADATA);
        prop_assert_eq!(Network::parse("key", &text).is_ok(), is_good, "{}", text);
    }
}

/// Who may call what: everyone, dev mode, who allows two networks, and who allows all there are.
#[test]
fn every_kind_of_address_is_reachable_where_it_should_be_and_nowhere_else() {
    let everyone = ["93.184.216.34", "2606:4700:4700::1111"];
    let dev_mode = ["127.0.0.1", "127.255.255.254", "::1"];
    let two_networks = ["10.20.0.0", "10.20.255.255", "fd12::", "fd12:0:0:ffff::1"];
    let whole = ["10.19.255.255", "10.21.0.0", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd12:0:1::", "fc00::1"];
    let nobody = [
        "0.0.0.0",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::10.20.0.1",
        "::ffff:10.20.0.1",
        "::ffff:127.0.0.1",
        "::ffff:0:10.20.0.1",
        "64:ff9b::10.20.0.1",
        "2002:0a14:1::",
        "2001::f5eb:fffe",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "fe80::5efe:10.20.0.1",
        "fec0::1",
        "ff02::1",
    ];
    let modes =
        [Reachable::default(), Reachable::loopback(), allowing(&["10.20.0.0/16", "fd12::/48"]), all_reachable()];
    for (addresses, expected) in [
        (&everyone[..], [true, true, true, true]),
        (&dev_mode, [false, true, false, true]),
        (&two_networks, [false, false, true, true]),
        (&whole, [false, false, false, true]),
        (&nobody, [false, false, false, false]),
    ] {
        for text in addresses {
            let ip = text.parse().unwrap();
            assert_eq!(modes.each_ref().map(|mode| mode.allows(ip)), expected, "{ip}");
        }
    }
}

#[test]
fn a_network_that_may_not_be_allowed_says_why_and_what_to_write() {
    for (text, says) in [
        ("", "\"10.20.0.0/16\""),
        ("intranet", "\"10.20.0.0/16\""),
        ("10.20.0.5", "\"10.20.0.5/32\""),
        ("fd12::5", "\"fd12::5/128\""),
        ("10.20.0.0/33", "is not a network"),
        ("10.20.0.0/+16", "is not a network"),
        ("10.20.0.0/", "is not a network"),
        ("10.20.0.0/255.255.0.0", "is not a network"),
        ("10.20/16", "is not a network"),
        (" 10.20.0.0/16", "is not a network"),
        ("fe80::1%lo/128", "is not a network"),
        ("fd12::/129", "is not a network"),
        ("10.20.0.5/16", "write \"10.20.0.0/16\" for the network, or \"10.20.0.5/32\" for the one address"),
        ("fd12::5/48", "write \"fd12::/48\" for the network, or \"fd12::5/128\""),
        ("0.0.0.0/0", "is not within a private network"),
        ("::/0", "is not within a private network"),
        ("10.0.0.0/7", "is not within a private network"),
        ("fc00::/6", "is not within a private network"),
        ("93.184.216.34/32", "Public addresses need no entry"),
        ("169.254.169.254/32", "no other may ever be called"),
        ("100.64.0.0/10", "no other may ever be called"),
        ("::ffff:10.20.0.0/112", "no other may ever be called"),
        ("fd00:ec2::/32", "take it out"),
        ("fd00:ec2::254/128", "take it out"),
        ("fd20:ce::/32", "take it out"),
    ] {
        let invalid = Network::parse("dispatch.allow_networks", text).expect_err(text);
        assert_eq!(invalid.key, "dispatch.allow_networks");
        assert!(invalid.problem.contains(says) && invalid.problem.contains(&format!("{text:?}")), "{invalid}");
    }
    for text in PRIVATE.into_iter().chain(["10.20.0.5/32", "fd00::/8", "fd00:ec2::/31", "fd12::5/128"]) {
        Network::parse("key", text).unwrap();
    }
}

#[test]
fn a_network_that_is_allowed_opens_no_port() {
    for (port, in_dev_mode, outside) in [(0, false, false), (22, true, false), (80, true, true), (8443, true, true)] {
        let url = format!("http://127.0.0.1:{port}/");
        let taken = [Reachable::loopback(), allowing(&["127.0.0.0/8"])].map(|mode| Target::parse(&url, &mode).is_ok());
        assert_eq!(taken, [in_dev_mode, outside], "{port}");
    }
}
