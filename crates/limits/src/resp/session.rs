//! One client: who it is, how it speaks, and what it says beside `THROTTLE`.
//!
//! A key that was revoked ends within a second, also on a connection that is open.

use std::time::Duration;

use platform::{problem::Problem, secret::Secret};
use tenancy::{
    door::{Caller, DEFAULT_TENANT, Door},
    scope::Scope,
};
use tokio::time::Instant;

use super::{
    frame::Words,
    reply::{Protocol, Replies},
    throttle::{Namespace, Policies},
};

/// How long a key is believed before the door is asked again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
const NO_AUTH: &str = "NOAUTH Authentication required: send AUTH <key>";

pub(super) struct Session {
    door: Door,
    id: i64,
    protocol: Protocol,
    name: Vec<u8>,
    shown: Option<Shown>,
    standing: Standing,
    asked: Instant,
    pub(super) policies: Policies,
}

/// What `AUTH` said. With the admin key the user name is the tenant.
struct Shown {
    key: Secret,
    tenant: Option<String>,
}

/// What the client may do.
enum Standing {
    Stranger,
    May(Namespace),
    MayNot(Problem),
}

/// What becomes of the connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Close,
}

impl Session {
    pub(super) async fn open(door: Door, id: i64) -> Session {
        let mut session = Session {
            door,
            id,
            protocol: Protocol::default(),
            name: Vec::new(),
            shown: None,
            standing: Standing::Stranger,
            asked: Instant::now(),
            policies: Policies::default(),
        };
        session.ask_the_door().await.ok();
        session
    }

    /// Where this client's keys live, and its policies; or the error that says why not.
    pub(super) fn may_throttle(&mut self) -> Result<(&mut Namespace, &mut Policies), String> {
        match &mut self.standing {
            Standing::Stranger => Err(NO_AUTH.to_owned()),
            Standing::May(namespace) => Ok((namespace, &mut self.policies)),
            Standing::MayNot(problem) => Err(format!("NOPERM {}", problem.detail())),
        }
    }

    /// Asks the door again when the last answer is old. To be called before the commands of a read.
    pub(super) async fn stay_current(&mut self) {
        if self.shown.is_some() && self.asked.elapsed() >= BELIEVED_FOR {
            self.ask_the_door().await.ok();
        }
    }

    async fn ask_the_door(&mut self) -> Result<(), Problem> {
        let key = self.shown.as_ref().map(|shown| &shown.key);
        let tenant = self.shown.as_ref().and_then(|shown| shown.tenant.as_deref());
        self.asked = Instant::now();
        match self.door.caller(key, tenant).await {
            Ok(caller) => {
                self.standing = standing(&caller, &mut self.standing);
                Ok(())
            }
            // The database is away: what was believed a second ago is believed for another.
            Err(problem) if problem.status().is_server_error() && self.is_known() => Err(problem),
            Err(problem) => {
                self.standing = Standing::Stranger;
                Err(problem)
            }
        }
    }

    /// Has it shown a key, or does it need none?
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.standing, Standing::Stranger)
    }

    /// Answers any command but `THROTTLE`.
    pub(super) async fn answer(&mut self, bytes: &[u8], words: &Words, replies: &mut Replies) -> After {
        let name = words.get(bytes, 0);
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        // A web page can make a browser post to this port; what it says after its headers must not be obeyed.
        if is("POST") || is("HOST:") {
            return After::Close;
        }
        if is("HELLO") {
            self.hello(bytes, words, replies).await;
        } else if is("AUTH") {
            self.auth(bytes, words, replies).await;
        } else if is("QUIT") {
            replies.simple("OK");
            return After::Close;
        } else if !self.is_known() {
            replies.error(NO_AUTH);
        } else {
            self.answer_known(bytes, words, replies);
        }
        After::GoOn
    }

    fn answer_known(&mut self, bytes: &[u8], words: &Words, replies: &mut Replies) {
        let name = words.get(bytes, 0);
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        let one = words.get(bytes, 1);
        match words.len() {
            1 if is("PING") => replies.simple("PONG"),
            2 if is("PING") || is("ECHO") => replies.bulk(one),
            2 if is("SELECT") && one == b"0" => replies.simple("OK"),
            2 if is("SELECT") => replies.error("ERR DB index is out of range: there is only database 0"),
            _ if is("CLIENT") => self.client(bytes, words, replies),
            _ if is("COMMAND") => command(one, replies),
            _ if is("INFO") => {
                let text = concat!("# Server\r\nredis_mode:standalone\r\ntidegate_version:", env!("CARGO_PKG_VERSION"), "\r\nloading:0\r\n");
                replies.bulk(text.as_bytes());
            }
            _ if is("PING") || is("ECHO") || is("SELECT") => {
                replies.error(&format!("ERR wrong number of arguments for '{}' command", printable(name)));
            }
            _ => replies.error(&format!(
                "ERR unknown command '{}': there are THROTTLE, CL.THROTTLE, PING, ECHO, HELLO, AUTH, SELECT, CLIENT, COMMAND, INFO, QUIT",
                printable(name)
            )),
        }
    }

    /// `HELLO [2|3] [AUTH user key] [SETNAME name]`
    async fn hello(&mut self, bytes: &[u8], words: &Words, replies: &mut Replies) {
        let protocol = match (words.len(), words.get(bytes, 1)) {
            (1, _) => self.protocol,
            (_, b"2") => Protocol::Resp2,
            (_, b"3") => Protocol::Resp3,
            _ => return replies.error("NOPROTO unsupported protocol version: 2 and 3 are spoken here"),
        };
        let mut place = 2;
        let mut name = None;
        while place < words.len() {
            let option = words.get(bytes, place);
            if option.eq_ignore_ascii_case(b"AUTH") && place + 2 < words.len() {
                let (user, key) = (words.get(bytes, place + 1), words.get(bytes, place + 2));
                if let Err(error) = self.show(Some(user), key).await {
                    return replies.error(&error);
                }
                place += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && place + 1 < words.len() {
                name = Some(words.get(bytes, place + 1));
                place += 2;
            } else {
                return replies.error("ERR Syntax error in HELLO: write HELLO [2|3] [AUTH user key] [SETNAME name]");
            }
        }
        if !self.is_known() {
            return replies.error("NOAUTH HELLO must be called with the client already authenticated, or with AUTH <user> <key> after its version");
        }
        if let Some(name) = name {
            self.name = name.to_vec();
        }
        self.protocol = protocol;
        self.greet(replies);
    }

    fn greet(&self, replies: &mut Replies) {
        replies.map(self.protocol, 7);
        for (name, value) in [("server", "redis"), ("version", "7.0.0")] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(self.protocol.number().cast_signed());
        replies.bulk(b"id");
        replies.integer(self.id);
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    /// `AUTH key` or `AUTH user key`
    async fn auth(&mut self, bytes: &[u8], words: &Words, replies: &mut Replies) {
        let (user, key) = match words.len() {
            2 => (None, words.get(bytes, 1)),
            3 => (Some(words.get(bytes, 1)), words.get(bytes, 2)),
            _ => return replies.error("ERR wrong number of arguments for 'auth' command: write AUTH <key>"),
        };
        match self.show(user, key).await {
            Ok(()) => replies.simple("OK"),
            Err(error) => replies.error(&error),
        }
    }

    async fn show(&mut self, user: Option<&[u8]>, key: &[u8]) -> Result<(), String> {
        let text = |bytes| std::str::from_utf8(bytes).map(str::to_owned).unwrap_or_default();
        let tenant = user.map(text).filter(|user| user != DEFAULT_TENANT);
        // A failed AUTH leaves the client as it was, as in Redis: only what opens the door is remembered.
        let shown = Shown { key: Secret::new(text(key)), tenant };
        let caller = self.door.caller(Some(&shown.key), shown.tenant.as_deref()).await;
        let caller = caller.map_err(|problem| format!("WRONGPASS {}", problem.detail()))?;
        self.shown = Some(shown);
        self.asked = Instant::now();
        self.standing = standing(&caller, &mut Standing::Stranger);
        Ok(())
    }

    /// What client libraries say of themselves when they connect.
    fn client(&mut self, bytes: &[u8], words: &Words, replies: &mut Replies) {
        let (what, value) = (words.get(bytes, 1), words.get(bytes, 2));
        let is = |text: &str| what.eq_ignore_ascii_case(text.as_bytes());
        if is("SETNAME") && words.len() == 3 {
            self.name = value.to_vec();
            replies.simple("OK");
        } else if is("SETINFO") || is("NO-EVICT") || is("NO-TOUCH") {
            replies.simple("OK");
        } else if is("GETNAME") && self.name.is_empty() {
            replies.null(self.protocol);
        } else if is("GETNAME") {
            replies.bulk(&self.name);
        } else if is("ID") {
            replies.integer(self.id);
        } else {
            replies.error(
                "ERR unknown subcommand of 'client': there are SETNAME, GETNAME, SETINFO, ID, NO-EVICT, NO-TOUCH",
            );
        }
    }
}

/// A tenant's keys begin with its name. Room that is there is used again.
fn standing(caller: &Caller, before: &mut Standing) -> Standing {
    if let Err(problem) = caller.require(Scope::LimitsCheck) {
        return Standing::MayNot(problem);
    }
    match std::mem::replace(before, Standing::Stranger) {
        Standing::May(namespace) if namespace.is_of(&caller.tenant) => Standing::May(namespace),
        _ => Standing::May(Namespace::new(&caller.tenant)),
    }
}

/// Clients ask what there is; nothing is an answer they all understand.
fn command(what: &[u8], replies: &mut Replies) {
    if what.eq_ignore_ascii_case(b"COUNT") {
        replies.integer(0);
    } else {
        replies.array(0);
    }
}

/// The beginning of a word a stranger sent, fit for a line of text.
fn printable(word: &[u8]) -> String {
    word.iter().take(32).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}
