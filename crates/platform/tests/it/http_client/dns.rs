//! A DNS server on loopback that answers as it is told: the truth, lies, or one after the other.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    thread,
};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

#[derive(Clone, Debug)]
pub(super) enum Record {
    Address(IpAddr),
    /// The name is another's, whose records follow.
    Alias(&'static str),
    /// Questions for IPv6 addresses get no answer at all.
    NoWordOnV6,
}

/// Gets the name in lower case and how many questions came before; gives everything there is about it.
type Answers = dyn Fn(&str, u32) -> Vec<Record> + Send + Sync;

pub(super) struct DnsServer {
    pub(super) addr: SocketAddr,
    thread: Option<thread::JoinHandle<()>>,
}

impl DnsServer {
    pub(super) fn start(answers: impl Fn(&str, u32) -> Vec<Record> + Send + Sync + 'static) -> DnsServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = socket.local_addr().unwrap();
        let answers: Arc<Answers> = Arc::new(answers);
        let thread = thread::spawn(move || {
            let mut packet = [0; 512];
            let mut nth = 0;
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if length == 0 {
                    return;
                }
                if let Some(answer) = answer(&packet[..length], &*answers, nth) {
                    drop(socket.send_to(&answer, from));
                }
                nth += 1;
            }
        });
        DnsServer { addr, thread: Some(thread) }
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        drop(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&[], self.addr));
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

fn answer(query: &[u8], answers: &Answers, nth: u32) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    let name = labels.join(".");
    let question = &query[12..at + 5];
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let mut records = Vec::new();
    let mut owner = encode(&name);
    let mut count = 0_u16;
    for record in answers(&name, nth) {
        let (record_kind, data) = match record {
            Record::Address(IpAddr::V4(ip)) => (A, ip.octets().to_vec()),
            Record::Address(IpAddr::V6(ip)) => (AAAA, ip.octets().to_vec()),
            Record::Alias(other) => (CNAME, encode(other)),
            Record::NoWordOnV6 if kind == AAAA => return None,
            Record::NoWordOnV6 => continue,
        };
        if record_kind != CNAME && record_kind != kind {
            continue;
        }
        // Type, class IN, time to live 0: nothing is remembered.
        records.extend([&owner[..], &record_kind.to_be_bytes(), &[0, 1, 0, 0, 0, 0]].concat());
        records.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        records.extend(&data);
        count += 1;
        if record_kind == CNAME {
            owner = data;
        }
    }
    let head = [&query[..2], &[0x81, 0x80, 0, 1], &count.to_be_bytes(), &[0, 0, 0, 0]].concat();
    Some([&head, question, &records].concat())
}

fn encode(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
