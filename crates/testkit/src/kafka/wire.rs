//! Just enough of Kafka's protocol to see that brokers are ready, to make topics, and to write records that no client library
//! would, so that the servers need none. The request versions are the newest before the compact encoding, which brokers 2.1 to 4.x understand.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// A broker that is stopped by a signal accepts and says nothing: no question waits longer than this.
const DEADLINE: Duration = Duration::from_secs(10);
const METADATA: (i16, i16) = (3, 4);
const CREATE_TOPICS: (i16, i16) = (19, 4);
const PRODUCE: (i16, i16) = (0, 3);
const LONGEST_ANSWER: usize = 16 << 20;

/// What one broker knows of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(crate) brokers: usize,
    /// Of the topic asked for: how many partitions have a leader and all their replicas in sync.
    pub(crate) healthy_partitions: usize,
}

pub(crate) fn metadata(port: u16, topic: Option<&str>) -> io::Result<Metadata> {
    let mut body = Writer::default();
    body.count(usize::from(topic.is_some()));
    if let Some(topic) = topic {
        body.text(topic);
    }
    body.0.push(0); // Do not create it.
    let answer = call(port, METADATA, &body.0)?;
    let mut answer = Reader(&answer);
    answer.int32()?; // Throttle time.
    let brokers = answer.count()?;
    for _ in 0..brokers {
        answer.int32()?;
        answer.text()?;
        answer.int32()?;
        answer.text()?;
    }
    answer.text()?; // Cluster id.
    answer.int32()?; // Controller.
    let mut healthy_partitions = 0;
    for _ in 0..answer.count()? {
        answer.int16()?;
        answer.text()?;
        answer.bytes(1)?;
        for _ in 0..answer.count()? {
            healthy_partitions += usize::from(is_healthy(&mut answer)?);
        }
    }
    Ok(Metadata { brokers, healthy_partitions })
}

fn is_healthy(answer: &mut Reader<'_>) -> io::Result<bool> {
    let error = answer.int16()?;
    answer.int32()?; // Index.
    let leader = answer.int32()?;
    let mut nodes = [0; 2]; // Replicas, and those in sync.
    for count in &mut nodes {
        *count = answer.count()?;
        answer.bytes(4 * *count)?;
    }
    Ok(error == 0 && leader >= 0 && nodes[0] == nodes[1])
}

pub(crate) fn create_topic(port: u16, name: &str, partitions: i32, replicas: i16) -> io::Result<()> {
    let mut body = Writer::default();
    body.count(1);
    body.text(name);
    body.0.extend(partitions.to_be_bytes());
    body.0.extend(replicas.to_be_bytes());
    body.count(0); // Assignments.
    body.count(0); // Configuration.
    body.0.extend(5_000_i32.to_be_bytes()); // Milliseconds the broker may take.
    body.0.push(0); // Not a rehearsal.
    let answer = call(port, CREATE_TOPICS, &body.0)?;
    let mut answer = Reader(&answer);
    answer.int32()?;
    answer.count()?;
    answer.text()?;
    let error = answer.int16()?;
    let message = answer.text()?;
    if error == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("the broker refused topic {name} with error {error}: {message}")))
}

/// Writes one record with one header, whose name may be any bytes.
pub(crate) fn produce(port: u16, topic: &str, partition: i32, value: &[u8], header: (&[u8], &[u8])) -> io::Result<()> {
    let batch = batch(value, header);
    let mut body = Writer::default();
    body.0.extend((-1_i16).to_be_bytes()); // No transaction.
    body.0.extend((-1_i16).to_be_bytes()); // All replicas in sync have it.
    body.0.extend(5_000_i32.to_be_bytes()); // Milliseconds the broker may take.
    body.count(1);
    body.text(topic);
    body.count(1);
    body.0.extend(partition.to_be_bytes());
    body.count(batch.len());
    body.0.extend(batch);
    let answer = call(port, PRODUCE, &body.0)?;
    let mut answer = Reader(&answer);
    answer.count()?;
    answer.text()?;
    answer.count()?;
    answer.int32()?;
    match answer.int16()? {
        0 => Ok(()),
        error => Err(io::Error::other(format!("the broker refused the record with error {error}"))),
    }
}

/// A batch of one record, in the second and present format.
fn batch(value: &[u8], (name, text): (&[u8], &[u8])) -> Vec<u8> {
    let mut record = Writer::default();
    record.0.extend([0, 0, 0]); // Attributes, and how far time and offset are from the batch's.
    record.varint(-1); // No key.
    record.part(value);
    record.varint(1); // Headers.
    record.part(name);
    record.part(text);
    let mut checked = Writer::default();
    checked.0.extend([0; 2 + 4]); // Attributes, last offset.
    checked.0.extend([0xff; 8 + 8 + 8 + 2 + 4]); // First and last time, producer, its epoch and sequence: none.
    checked.count(1);
    checked.part(&record.0);
    let mut batch = Writer::default();
    batch.0.extend([0; 8]); // Its offset is the broker's to choose.
    batch.count(4 + 1 + 4 + checked.0.len());
    batch.0.extend([0xff; 4]); // Epoch of the leader.
    batch.0.push(2);
    batch.0.extend(crc32c(&checked.0).to_be_bytes());
    batch.0.extend(checked.0);
    batch.0
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

fn call(port: u16, (api, version): (i16, i16), body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Writer::default();
    request.0.extend(api.to_be_bytes());
    request.0.extend(version.to_be_bytes());
    request.0.extend([0; 4]); // Correlation: one request per connection.
    request.text("testkit");
    request.0.extend(body);

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let length = u32::try_from(request.0.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &request.0].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; (u32::from_be_bytes(length) as usize).min(LONGEST_ANSWER)];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(answer.len().min(4)))
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn count(&mut self, count: usize) {
        self.0.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.0.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.0.extend(text.as_bytes());
    }
}

impl Writer {
    /// Zigzag, seven bits at a time.
    fn varint(&mut self, number: i64) {
        let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
        while rest > 0x7f {
            self.0.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.0.push(rest.to_le_bytes()[0]);
    }

    fn part(&mut self, bytes: &[u8]) {
        self.varint(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.0.extend(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(io::Error::other)
    }

    fn int16(&mut self) -> io::Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn int32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A length of -1 is null, which reads as empty.
    fn count(&mut self) -> io::Result<usize> {
        Ok(usize::try_from(self.int32()?).unwrap_or(0))
    }

    fn text(&mut self) -> io::Result<String> {
        let length = usize::try_from(self.int16()?).unwrap_or(0);
        Ok(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }
}
