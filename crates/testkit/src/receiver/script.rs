//! Answers no HTTP library would give: the socket is taken from it, and these are played on it.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use super::Answer;

const GOOD_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n";
const BLOCK: [u8; 16 << 10] = [0; 16 << 10];

/// Plays until the other side is gone. Answers that the library can give are not its business.
pub(super) async fn play(answer: &Answer, stream: TcpStream) -> io::Result<()> {
    if *answer == Answer::Reset {
        return stream.set_zero_linger();
    }
    let (mut reader, mut writer) = stream.into_split();
    let playing = async {
        match answer {
            Answer::Hang => std::future::pending().await,
            Answer::DripHead { every } => {
                drip(&mut writer, *every, GOOD_HEAD).await?;
                writer.write_all(b"ok").await
            }
            Answer::DripBody { every } => {
                writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await?;
                loop {
                    drip(&mut writer, *every, b"x").await?;
                }
            }
            Answer::HalfBody => {
                writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf.").await?;
                std::future::pending().await
            }
            Answer::HugeBody { bytes } => huge(&mut writer, *bytes).await,
            Answer::GzipBomb => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: application/json\r\n\r\n";
                writer.write_all(&[head, gzip_start().as_slice()].concat()).await?;
                for_ever(&mut writer, &BLOCK).await
            }
            Answer::EndlessHeaders => {
                writer.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                for_ever(&mut writer, b"x-endless: 0123456789012345678901234567890123456789\r\n").await
            }
            Answer::InformationalFlood => {
                for_ever(&mut writer, b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n").await
            }
            Answer::Reset | Answer::Close | Answer::Status(_) | Answer::Full { .. } | Answer::RetryAfter { .. } => {
                Ok(())
            }
        }
    };
    tokio::select! {
        played = playing => played,
        end = until_gone(&mut reader) => end,
    }
}

/// The other side sends nothing more while it waits for its answer, so the next read ends when it gives up.
async fn until_gone(reader: &mut (impl AsyncReadExt + Unpin)) -> io::Result<()> {
    let mut unread = [0; 1024];
    while reader.read(&mut unread).await? > 0 {}
    Ok(())
}

async fn drip(writer: &mut (impl AsyncWrite + Unpin), every: Duration, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        writer.write_all(&[*byte]).await?;
        sleep(every).await;
    }
    Ok(())
}

async fn for_ever(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    loop {
        writer.write_all(bytes).await?;
    }
}

async fn huge(writer: &mut (impl AsyncWrite + Unpin), bytes: u64) -> io::Result<()> {
    writer.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").as_bytes()).await?;
    let mut left = bytes;
    while left > 0 {
        let count = BLOCK.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        writer.write_all(&BLOCK[..count]).await?;
        left -= count as u64;
    }
    Ok(())
}

/// The start of a gzip stream after which every zero byte means another 1032 zeros.
///
/// Its one block has codes of its own: 0 for "258 bytes again", 0 for "from one byte ago", 10 for a zero, 11 for the end.
pub(super) fn gzip_start() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.number(1, 1); // The last block ..
    bits.number(2, 2); // .. with codes of its own:
    bits.number(29, 5); // 286 for lengths and literals,
    bits.number(0, 5); // one for distances,
    bits.number(14, 4); // described by a code for 18 symbols, in deflate's odd order:
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1] {
        bits.number(
            match symbol {
                18 => 1,
                1 | 2 => 2,
                _ => 0,
            },
            3,
        );
    }
    // So "18, many zeros" is 0, "1" is 10 and "2" is 11, the first bit of a code first.
    let zeros = |bits: &mut Bits, count: u32| {
        bits.code("0");
        bits.number(count - 11, 7);
    };
    bits.code("11"); // Literal 0 has two bits,
    zeros(&mut bits, 138);
    zeros(&mut bits, 117);
    bits.code("11"); // the end (256) has two,
    zeros(&mut bits, 28);
    bits.code("10"); // length 258 (285) has one,
    bits.code("10"); // and so has distance 1.
    bits.code("10"); // A first zero, to be repeated.
    let magic = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    [&magic, bits.bytes.as_slice()].concat()
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    fn bit(&mut self, bit: u8) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= bit << self.used;
        }
        self.used = (self.used + 1) % 8;
    }

    /// Numbers go in with their lowest bit first.
    fn number(&mut self, number: u32, width: u32) {
        for place in 0..width {
            self.bit(u8::from(number >> place & 1 == 1));
        }
    }

    fn code(&mut self, code: &str) {
        for letter in code.bytes() {
            self.bit(letter - b'0');
        }
    }
}
