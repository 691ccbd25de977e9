//! Our own list of URL tricks: ways to write an internal address so that some parser reads something else.

use std::collections::BTreeSet;

/// What they all want to reach.
const PREY: [[u8; 4]; 7] = [
    [127, 0, 0, 1],
    [169, 254, 169, 254],
    [10, 0, 0, 1],
    [100, 64, 0, 1],
    [192, 168, 1, 1],
    [172, 16, 0, 1],
    [0, 0, 0, 0],
];

const INTERNAL_NAMES: [&str; 24] = [
    "localhost",
    "LOCALHOST",
    "LocalHost",
    "localhost.",
    "a.localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "metadata",
    "metadata.google.internal",
    "METADATA.GOOGLE.INTERNAL",
    "metadata.google.internal.",
    "instance-data",
    "instance-data.ec2.internal",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc.cluster.local",
    "host.docker.internal",
    "gateway.docker.internal",
    "router.local",
    "printer.lan",
    "db.intranet",
    "nas.home.arpa",
    "vault.private",
    "redis",
];

/// Every trick, with `port` where a port is. Each is different from the others.
pub(super) fn all(port: u16) -> BTreeSet<String> {
    let mut urls = BTreeSet::new();
    for prey in PREY {
        let plain = prey.map(|part| part.to_string()).join(".");
        for host in numbers(prey).into_iter().chain(letters(&plain)).chain(ipv6(prey)) {
            urls.insert(format!("http://{host}:{port}/"));
        }
        urls.extend(confusions(&plain, port));
        urls.extend(schemes(&plain, port));
        urls.extend(resolved(&plain).map(|host| format!("http://{host}:{port}/")));
    }
    for name in INTERNAL_NAMES {
        urls.insert(format!("http://{name}:{port}/latest/meta-data/"));
        urls.extend(letters(name).map(|host| format!("https://{host}:{port}/")));
    }
    for bad_port in
        ["0", "00", "1", "22", "25", "110", "389", "445", "1023", "65536", "99999", "-1", "80a", "0x50", "8 0"]
    {
        urls.insert(format!("http://example.com:{bad_port}/"));
    }
    urls
}

/// Decimal, octal, hexadecimal, padded and short forms, and every mixture of them.
fn numbers([a, b, c, d]: [u8; 4]) -> Vec<String> {
    let whole = u32::from_be_bytes([a, b, c, d]);
    let forms: [Vec<u32>; 4] = [
        vec![whole],
        vec![a.into(), whole & 0xff_ffff],
        vec![a.into(), b.into(), whole & 0xffff],
        vec![a.into(), b.into(), c.into(), d.into()],
    ];
    let bases: [fn(u32) -> String; 3] =
        [|part| part.to_string(), |part| format!("0x{part:x}"), |part| format!("0{part:o}")];
    let mut hosts = Vec::new();
    for form in forms {
        for mixture in 0..3_usize.pow(u32::try_from(form.len()).unwrap()) {
            let part =
                |(place, part): (usize, &u32)| bases[mixture / 3_usize.pow(u32::try_from(place).unwrap()) % 3](*part);
            hosts.push(form.iter().enumerate().map(part).collect::<Vec<_>>().join("."));
        }
    }
    hosts.push(format!("0x{a:02X}.0X{b:02x}.0x{c:08x}.0x{d:x}"));
    hosts.push(format!("0000{a:o}.00000{b:o}.{c}.{d}"));
    hosts.push(format!("{}", u64::from(whole) + (1 << 32)));
    hosts.push(format!("{}.{b}.{c}.{d}", u32::from(a) + 256));
    hosts.push(format!("{a}.{b}.{c}.{d}."));
    hosts.push(format!("{a}.{b}.{c}.{d}.."));
    hosts.push(format!(".{a}.{b}.{c}.{d}"));
    hosts.push(format!("{a}..{b}.{c}.{d}"));
    hosts.push(format!("0x{whole:08x}."));
    hosts
}

/// The same letters in other clothes.
fn letters(host: &str) -> impl Iterator<Item = String> {
    let dress = |dress: fn(char) -> char| host.chars().map(dress).collect::<String>();
    let shift = |letter: char, digit: u32, small: u32| match letter {
        '0'..='9' => char::from_u32(digit + letter as u32 - '0' as u32).unwrap(),
        'a'..='z' => char::from_u32(small + letter as u32 - 'a' as u32).unwrap(),
        other => other,
    };
    let encode = |host: &str| host.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    [
        host.chars().map(|letter| shift(letter, 0xff10, 0xff41)).collect(),
        host.chars().map(|letter| shift(letter, 0x1d7ce, 0x1d41a)).collect(),
        host.chars().map(|letter| if letter == '0' { '\u{24ea}' } else { shift(letter, 0x245f, 0x24d0) }).collect(),
        dress(|letter| if letter == '.' { '\u{3002}' } else { letter }),
        dress(|letter| if letter == '.' { '\u{ff0e}' } else { letter }),
        dress(|letter| if letter == '.' { '\u{ff61}' } else { letter }),
        encode(host),
        encode(&encode(host)),
        host.replacen('.', "%2e", 1),
        format!("{}\u{ad}{}", &host[..2], &host[2..]),
        format!("{}\u{200d}{}", &host[..2], &host[2..]),
        format!("{}\t{}", &host[..2], &host[2..]),
        format!("{}\r\n{}", &host[..2], &host[2..]),
        format!("{host}%00.example.com"),
        format!("{host}\0"),
        format!("xn--{host}-"),
    ]
    .into_iter()
}

fn ipv6([a, b, c, d]: [u8; 4]) -> impl Iterator<Item = String> {
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let v4 = format!("{a}.{b}.{c}.{d}");
    [
        format!("[::ffff:{v4}]"),
        format!("[::FFFF:{high:X}:{low:X}]"),
        format!("[0:0:0:0:0:ffff:{high:04x}:{low:04x}]"),
        format!("[0000:0000:0000:0000:0000:ffff:{v4}]"),
        format!("[::{v4}]"),
        format!("[::{high:x}:{low:x}]"),
        format!("[::ffff:0:{v4}]"),
        format!("[::ffff:0:{high:x}:{low:x}]"),
        format!("[64:ff9b::{v4}]"),
        format!("[64:ff9b:1::{v4}]"),
        format!("[2002:{high:x}:{low:x}::]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::]"),
        format!("[2001::{:x}:{:x}]", !high, !low),
        format!("[fe80::5efe:{v4}]"),
        format!("[2a00::5efe:{v4}]"),
        format!("[2a00::200:5efe:{v4}]"),
        format!("[fe80::1%25lo{a}]"),
        format!("[::1%{d}]"),
        format!("[::ffff:{v4}%25lo]"),
        format!("[{v4}]"),
        format!("[::ffff:{v4}"),
        format!("::ffff:{v4}"),
        "[::1]".into(),
        "[::]".into(),
        "[0:0:0:0:0:0:0:1]".into(),
        "[fd00:ec2::254]".into(),
        "[fec0::1]".into(),
        "[fc00::1]".into(),
        "[ff02::1]".into(),
        "[5f00::1]".into(),
        "[100::1]".into(),
    ]
    .into_iter()
}

/// Where does the host begin and end?
fn confusions(host: &str, port: u16) -> impl Iterator<Item = String> {
    [
        format!("http://example.com@{host}:{port}/"),
        format!("http://example.com:80@{host}:{port}/"),
        format!("http://@{host}:{port}/"),
        format!("http://:@{host}:{port}/"),
        format!("http://{host}:{port}@example.com:{port}/"),
        format!("http://a@b@{host}:{port}/"),
        format!("http://example.com%40{host}:{port}/"),
        format!("http://example.com#@{host}:{port}/"),
        format!("http://example.com?@{host}:{port}/"),
        format!("http://example.com\\@{host}:{port}/"),
        format!("http://{host}:{port}\\@example.com/"),
        format!("http://example.com:80\\@{host}:{port}/"),
        format!("http:{host}:{port}/"),
        format!("http:/{host}:{port}/"),
        format!("http:///{host}:{port}/"),
        format!("http:////{host}:{port}/"),
        format!("http:\\\\{host}:{port}/"),
        format!("http:/\\{host}:{port}/"),
        format!("//{host}:{port}/"),
        format!("{host}:{port}/"),
        format!(" http://{host}:{port}/"),
        format!("http://{host}:{port}/ "),
        format!("\u{1}http://{host}:{port}/"),
        format!("ht\ttp://{host}:{port}/"),
        format!("http:\n//{host}:{port}/"),
        format!("http://{host}\n:{port}/"),
        format!("http://{host}:{port}/\r\nX-Injected: 1"),
        format!("http://{host}:{port}/%0d%0aX-Injected:%201"),
        format!("http://{host}:{port}:80/"),
        format!("http://{host}:80:{port}/"),
        format!("http://[{host}]:{port}/"),
        format!("http://{host}/:{port}"),
        format!("HTTP://{host}:{port}/"),
        format!("hTTps://{host}:{port}/"),
        format!("http://example.com,{host}:{port}/"),
        format!("http://example.com;{host}:{port}/"),
        format!("http://example.com {host}:{port}/"),
        format!("http://{host}&@example.com#@example.com/"),
        format!("http://*.{host}:{port}/"),
        format!("http://{host}\u{3002}example.com@{host}:{port}/"),
    ]
    .into_iter()
}

fn schemes(host: &str, port: u16) -> impl Iterator<Item = String> {
    let schemes = [
        "file",
        "ftp",
        "gopher",
        "dict",
        "ldap",
        "ldaps",
        "tftp",
        "sftp",
        "ssh",
        "ws",
        "wss",
        "jar:http",
        "view-source:http",
        "http+unix",
        "unix",
        "netdoc",
        "smb",
        "imap",
        "smtp",
        "redis",
        "postgres",
        "data",
        "javascript",
        "blob:http",
        "about",
        "h2c",
        "httpx",
        "httpss",
        "",
    ];
    schemes.into_iter().map(move |scheme| format!("{scheme}://{host}:{port}/"))
}

/// Plain names whose owner decides where they lead.
fn resolved(host: &str) -> impl Iterator<Item = String> {
    [
        format!("{host}.nip.io"),
        format!("{host}.sslip.io"),
        format!("{}.nip.io", host.replace('.', "-")),
        format!("app.{host}.xip.example.com"),
        format!("{host}.example.com"),
        format!("r{}.rebind.example.net", host.replace('.', "-")),
    ]
    .into_iter()
}
