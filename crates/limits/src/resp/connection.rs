//! One connection: read, decide all that has arrived, answer in order with one write.
//!
//! Everything a client can hold is bounded: the bytes of a command, the time to send it, the time to say nothing, the time
//! to take an answer. While Redis decides, the commands of one read are all under way together.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, BytesMut};
use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, Sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Server,
    frame::{self, LONGEST_COMMAND, Words},
    reply::Replies,
    session::{After, Session},
    throttle::{Dialect, Throttle},
};

/// Questions of one connection under way at a time.
pub(super) const MOST_TOGETHER: usize = 256;
const USUAL_READ: usize = 16 * 1024;
/// Answers that wait to be sent. A wrong command is short and its error is not.
const MOST_ANSWERS: usize = 64 * 1024;

pub(super) struct Connection {
    server: Arc<Server>,
    stream: TcpStream,
    input: BytesMut,
    words: Words,
    questions: Vec<Throttle>,
    replies: Replies,
    session: Session,
}

impl Connection {
    pub(super) async fn serve(server: Arc<Server>, stream: TcpStream, stopping: CancellationToken) {
        let session = Session::open(server.door.clone(), server.next_id()).await;
        let mut connection = Connection {
            server,
            stream,
            input: BytesMut::with_capacity(USUAL_READ),
            words: Words::default(),
            questions: Vec::new(),
            replies: Replies::default(),
            session,
        };
        connection.run(&stopping).await;
    }

    async fn run(&mut self, stopping: &CancellationToken) {
        let mut stopped = std::pin::pin!(stopping.cancelled());
        let mut patience = Patience::new(self.server.limits.command_timeout, self.server.limits.idle_timeout);
        let mut timer = std::pin::pin!(tokio::time::sleep(patience.step));
        loop {
            self.make_room();
            patience.wait_for(match (self.input.is_empty(), self.session.is_known()) {
                (false, _) => Wait::Rest,
                (true, true) => Wait::Command,
                (true, false) => Wait::Key,
            });
            let read = loop {
                tokio::select! {
                    biased;
                    read = self.stream.read_buf(&mut self.input) => break read,
                    () = timer.as_mut() => {
                        if patience.is_over(timer.as_mut()) {
                            return;
                        }
                    }
                    // What was asked has been answered.
                    () = stopped.as_mut() => return,
                }
            };
            if !matches!(read, Ok(1..)) {
                return;
            }
            let arrived = self.input.len();
            let after = self.turn().await;
            if !self.send().await || after == After::Close {
                return;
            }
            if self.input.len() < arrived {
                patience.start_over();
            }
        }
    }

    /// Sends what waits to be sent; false if the client does not take it.
    async fn send(&mut self) -> bool {
        let sent = timeout(self.server.limits.command_timeout, self.stream.write_all(self.replies.bytes())).await;
        self.replies.clear();
        matches!(sent, Ok(Ok(())))
    }

    fn make_room(&mut self) {
        if self.input.capacity() - self.input.len() < 1024 {
            self.input.reserve(USUAL_READ.min(LONGEST_COMMAND));
        }
    }

    /// Answers every whole command that has arrived.
    async fn turn(&mut self) -> After {
        self.session.stay_current().await;
        loop {
            let length = match frame::read(&self.input, &mut self.words) {
                Ok(Some(length)) => length,
                Ok(None) => {
                    self.decide().await;
                    return After::GoOn;
                }
                Err(malformed) => {
                    self.decide().await;
                    self.replies.error(&format!("ERR Protocol error: {malformed}"));
                    return After::Close;
                }
            };
            let after = if self.words.len() == 0 { After::GoOn } else { self.command().await };
            self.input.advance(length);
            if after == After::Close || (self.replies.bytes().len() > MOST_ANSWERS && !self.send().await) {
                return After::Close;
            }
        }
    }

    /// A question waits for those that come after it; everything else is answered when its turn has come.
    async fn command(&mut self) -> After {
        let Connection { input, words, session, .. } = self;
        let Some(dialect) = Dialect::of(words.get(input, 0)) else {
            self.decide().await;
            return self.session.answer(&self.input, &self.words, &mut self.replies).await;
        };
        let asked = session.may_throttle().and_then(|(namespace, policies)| {
            let arguments = (1..words.len()).map(|index| words.get(input, index));
            Throttle::parse(dialect, arguments, namespace, policies).map_err(|mistake| format!("ERR {mistake}"))
        });
        match asked {
            Ok(question) => {
                self.questions.push(question);
                if self.questions.len() == MOST_TOGETHER {
                    self.decide().await;
                }
            }
            Err(error) => {
                self.decide().await;
                self.replies.error(&error);
            }
        }
        After::GoOn
    }

    /// Decides the questions that wait, and writes their answers in order.
    async fn decide(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let Server { limiter, decided, in_flight, .. } = &*self.server;
        let mut denied: u64 = 0;
        let mut take = |question: &Throttle, decision: gate::limiter::Decision| {
            denied += u64::from(!decision.is_allowed());
            question.write(&decision, &mut self.replies);
        };
        match in_flight {
            None => {
                for question in &self.questions {
                    take(question, question.decide(limiter).await);
                }
            }
            Some(in_flight) => {
                let count = u32::try_from(self.questions.len()).unwrap_or(u32::MAX);
                // Closed by nobody.
                let _places = in_flight.acquire_many(count).await.ok();
                let decisions = join_all(self.questions.iter().map(|question| question.decide(limiter))).await;
                self.questions.iter().zip(decisions).for_each(|(question, decision)| take(question, decision));
            }
        }
        decided.count(self.questions.len() as u64 - denied, denied);
        self.questions.clear();
    }
}

/// How long a client may take: longer to say nothing than to say something. The timer is set once per step and not once
/// per read, because setting it costs more than a decision.
struct Patience {
    step: Duration,
    idle: Duration,
    waiting_for: Wait,
    until: Instant,
}

/// What a client is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The next command.
    Command,
    /// The rest of one.
    Rest,
    /// To show a key, or to go.
    Key,
}

impl Patience {
    fn new(step: Duration, idle: Duration) -> Patience {
        Patience { step: step.min(idle), idle, waiting_for: Wait::Command, until: Instant::now() + idle }
    }

    /// Some bytes of a command buy no more time for the rest.
    fn wait_for(&mut self, wait: Wait) {
        if (wait, self.waiting_for) != (Wait::Rest, Wait::Rest) {
            self.until = Instant::now() + if wait == Wait::Command { self.idle } else { self.step };
        }
        self.waiting_for = wait;
    }

    /// A command was whole: what has arrived after it is another one, which has time of its own.
    fn start_over(&mut self) {
        self.waiting_for = Wait::Command;
    }

    /// The timer rang: is it over? If not, it is set again.
    fn is_over(&self, timer: std::pin::Pin<&mut Sleep>) -> bool {
        let now = Instant::now();
        if now < self.until {
            timer.reset(self.until.min(now + self.step));
        }
        now >= self.until
    }
}
