//! Turns: how many calls to one host are made at a time.
//!
//! A fast receiver is served best over few connections: more of them only cost both sides. So calls to a host wait for
//! their turn while it answers others. The longer its fastest answers take, the more calls are made at a time; and nobody
//! waits for a host that has answered none for a moment. Whoever has a limit to keep takes a turn before asking for it, so that
//! what was granted is sent.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

/// A host that has answered nobody for this long is slow.
const SLOW: Duration = Duration::from_millis(50);
/// As many calls as there may be connections are made at a time, and as many again for each time this long that an answer
/// takes ..
const LONG_ANSWER: Duration = Duration::from_millis(100);
/// .. if none came faster lately. An answer may be late because so many calls were made: more of them would be later still.
const LATELY: Duration = Duration::from_secs(10);
/// However fast it answers others, a call waits no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Of those who have waited so long at a host that answers others, this part of its turns goes at a time.
const FEW: usize = 8;

pub(super) struct Turns {
    hosts: Mutex<HashMap<Arc<str>, Host>>,
    most: usize,
}

#[derive(Default)]
struct Host {
    taken: usize,
    waiting: VecDeque<Waiting>,
    last_answer: Option<Instant>,
    fastest: Fastest,
    /// Someone looks now and then whether those who wait have waited long enough.
    has_watcher: bool,
}

struct Waiting {
    since: Instant,
    next: Next,
}

/// Who has the turn next.
enum Next {
    Task(oneshot::Sender<Turn>),
    Call(Box<dyn FnOnce(Turn) + Send>),
}

impl Next {
    /// It was given up while it waited.
    fn is_gone(&self) -> bool {
        matches!(self, Next::Task(sender) if sender.is_closed())
    }

    /// Not under a lock: one that is given up in this moment passes the turn on.
    fn begin(self, turn: Turn) {
        match self {
            Next::Task(sender) => drop(sender.send(turn)),
            Next::Call(begin) => begin(turn),
        }
    }
}

/// The shortest time that an answer took lately.
#[derive(Default)]
struct Fastest {
    now: Option<(Instant, Duration)>,
    before: Option<Duration>,
}

impl Fastest {
    fn note(&mut self, now: Instant, took: Duration) {
        match &mut self.now {
            Some((since, fastest)) if now.duration_since(*since) < LATELY => *fastest = took.min(*fastest),
            last => self.before = last.replace((now, took)).map(|(_, fastest)| fastest),
        }
    }

    fn get(&self) -> Duration {
        let now = self.now.map(|(_, fastest)| fastest);
        now.into_iter().chain(self.before).min().unwrap_or_default()
    }
}

/// A call's turn; the next one's when it is dropped.
pub struct Turn {
    turns: Arc<Turns>,
    origin: Arc<str>,
    since: Instant,
    is_answered: bool,
}

impl Turn {
    /// The call is made now: whatever was waited for before is not the host's doing.
    pub fn calls(&mut self) {
        self.since = Instant::now();
    }

    /// The call was made and has ended.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.pass_on(self);
    }
}

impl Host {
    /// How many calls may be under way, where a fast host has `most`.
    fn allowed(&self, most: usize) -> usize {
        let times = self.fastest.get().as_millis() / LONG_ANSWER.as_millis();
        most.saturating_mul(1 + usize::try_from(times).unwrap_or(usize::MAX - 1))
    }

    fn is_answering(&self, now: Instant) -> bool {
        self.last_answer.is_some_and(|at| now.duration_since(at) < SLOW)
    }

    /// The next in line, who has a turn from now on, as long as `is_due` says so of it.
    fn next(&mut self, is_due: impl Fn(&Host, &Waiting) -> bool) -> Option<Next> {
        loop {
            if !is_due(self, self.waiting.front()?) {
                return None;
            }
            let next = self.waiting.pop_front()?.next;
            if !next.is_gone() {
                self.taken += 1;
                return Some(next);
            }
        }
    }
}

impl Turns {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Turns { hosts: Mutex::default(), most })
    }

    pub(super) async fn take(self: &Arc<Self>, origin: &Arc<str>) -> Turn {
        if self.take_free(origin) {
            return self.turn(origin);
        }
        let (sender, mine) = oneshot::channel();
        self.stand_in_line(origin, Next::Task(sender));
        // A line is never dropped before those who stand in it.
        mine.await.unwrap_or_else(|_| {
            self.hosts.lock().entry(Arc::clone(origin)).or_default().taken += 1;
            self.turn(origin)
        })
    }

    /// Begins with `begin`: here and now, or later where others are served first. Nothing but `begin` is kept until then.
    pub(super) fn when_free(self: &Arc<Self>, origin: &Arc<str>, begin: impl FnOnce(Turn) + Send + 'static) {
        if self.take_free(origin) {
            begin(self.turn(origin));
        } else {
            self.stand_in_line(origin, Next::Call(Box::new(begin)));
        }
    }

    fn turn(self: &Arc<Self>, origin: &Arc<str>) -> Turn {
        Turn { turns: Arc::clone(self), origin: Arc::clone(origin), since: Instant::now(), is_answered: false }
    }

    fn take_free(&self, origin: &Arc<str>) -> bool {
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(Arc::clone(origin)).or_default();
        let is_free = host.taken < host.allowed(self.most);
        host.taken += usize::from(is_free);
        is_free
    }

    fn stand_in_line(self: &Arc<Self>, origin: &Arc<str>, next: Next) {
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(Arc::clone(origin)).or_default();
        host.waiting.push_back(Waiting { since: Instant::now(), next });
        if !std::mem::replace(&mut host.has_watcher, true) {
            #[expect(
                clippy::disallowed_methods,
                reason = "holds no work that shutdown should wait for; ends by itself"
            )]
            drop(tokio::spawn(watch(Arc::downgrade(self), Arc::clone(origin))));
        }
    }

    /// Lets some of those go who have waited long enough, never all at once: this process may have stood still, and not the
    /// host. False when nobody waits.
    fn look_after(self: &Arc<Self>, origin: &Arc<str>) -> bool {
        let now = Instant::now();
        let (begin, is_any_left) = {
            let mut hosts = self.hosts.lock();
            let Some(host) = hosts.get_mut(origin) else { return false };
            let is_answering = host.is_answering(now);
            let is_due =
                |_: &Host, waiting: &Waiting| !is_answering || now.duration_since(waiting.since) >= LONGEST_WAIT;
            let some = if is_answering { self.most.div_ceil(FEW) } else { self.most };
            let begin: Vec<Next> = std::iter::from_fn(|| host.next(is_due)).take(some).collect();
            host.has_watcher = !host.waiting.is_empty();
            (begin, host.has_watcher)
        };
        for next in begin {
            next.begin(self.turn(origin));
        }
        is_any_left
    }

    fn pass_on(self: &Arc<Self>, turn: &Turn) {
        let begin: Vec<Next> = {
            let mut hosts = self.hosts.lock();
            let Some(host) = hosts.get_mut(&turn.origin) else { return };
            if turn.is_answered {
                let now = Instant::now();
                host.last_answer = Some(now);
                host.fastest.note(now, now.duration_since(turn.since));
            }
            host.taken -= 1;
            // More than are allowed may be out since the host was slow; then nobody follows.
            let begin = std::iter::from_fn(|| host.next(|host, _| host.taken < host.allowed(self.most))).collect();
            if host.taken == 0 {
                hosts.remove(&turn.origin);
            }
            begin
        };
        for next in begin {
            next.begin(self.turn(&turn.origin));
        }
    }
}

async fn watch(turns: Weak<Turns>, origin: Arc<str>) {
    loop {
        tokio::time::sleep(SLOW).await;
        match turns.upgrade() {
            Some(turns) if turns.look_after(&origin) => (),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn origin() -> Arc<str> {
        "http://a".into()
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_host_answers_calls_wait_for_their_turn() {
        let (turns, origin) = (Turns::new(2), origin());
        let [first, second] = [turns.take(&origin).await, turns.take(&origin).await];
        let third = turns.take(&origin);
        tokio::pin!(third);
        assert!(timeout(SLOW / 2, &mut third).await.is_err(), "both turns are taken");
        first.answered();
        let third = timeout(SLOW / 2, third).await.expect("it was handed the first one's turn");
        drop((second, third));
        assert!(turns.hosts.lock().is_empty(), "nothing is kept of a host that nobody calls");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_host_that_answers_nobody() {
        let (turns, origin) = (Turns::new(1), origin());
        let hanging = turns.take(&origin).await;
        let begun = Instant::now();
        let other = turns.take(&origin).await;
        assert!(begun.elapsed() < SLOW * 2);
        drop((hanging, other));
        assert!(turns.hosts.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_an_answer_takes_the_more_calls_are_made_at_a_time() {
        let (turns, origin) = (Turns::new(2), origin());
        let [first, second] = [turns.take(&origin).await, turns.take(&origin).await];
        let seventh = turns.take(&origin);
        tokio::pin!(seventh);
        assert!(timeout(SLOW / 10, &mut seventh).await.is_err(), "nothing is known of the host");
        let second = [second, timeout(SLOW * 2, &mut seventh).await.expect("it answers nobody")];
        tokio::time::sleep(LONG_ANSWER * 2 - SLOW).await;
        first.answered();
        let mut under_way = Vec::from(second);
        for _ in 0..4 {
            under_way.push(timeout(SLOW / 10, turns.take(&origin)).await.expect("six at a time"));
        }
        assert!(timeout(SLOW / 10, turns.take(&origin)).await.is_err());
        drop(under_way);
        assert!(turns.hosts.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_nobody_waits_for_any_more_goes_to_the_next() {
        let (turns, origin) = (Turns::new(1), origin());
        let first = turns.take(&origin).await;
        let mut gone = Box::pin(turns.take(&origin));
        assert!(timeout(SLOW / 4, &mut gone).await.is_err());
        let next = turns.take(&origin);
        tokio::pin!(next);
        assert!(timeout(SLOW / 4, &mut next).await.is_err());
        first.answered();
        drop(gone);
        drop(timeout(SLOW / 4, next).await.expect("the one who left passed it on"));
        assert!(turns.hosts.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_without_a_task_begins_when_its_turn_comes_or_nobody_is_answered() {
        let (turns, origin) = (Turns::new(1), origin());
        let (begun, mut began) = tokio::sync::mpsc::unbounded_channel();
        let begin = |name| {
            let begun = begun.clone();
            turns.when_free(&origin, move |turn| drop(begun.send((name, turn))));
        };
        begin("at once");
        let (name, first) = began.try_recv().expect("the turn was free");
        assert_eq!(name, "at once");
        begin("after an answer");
        begin("after a while");
        assert!(began.try_recv().is_err());
        first.answered();
        let (name, hanging) = began.try_recv().expect("it was handed the first one's turn");
        assert_eq!(name, "after an answer");
        let started = Instant::now();
        let (name, last) = began.recv().await.unwrap();
        assert_eq!(name, "after a while");
        assert!(started.elapsed() <= SLOW * 2, "the host answers nobody");
        drop((hanging, last));
        assert!(turns.hosts.lock().is_empty());
    }

    /// Three workers on two full cores answered late, so each made more calls at a time, so all of them were later: thousands of
    /// connections, time-outs, open circuits.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_late_now_and_then_bring_no_more_calls() {
        let (turns, origin) = (Turns::new(1), origin());
        let first = turns.take(&origin).await;
        first.answered();
        let mut fast = turns.take(&origin).await;
        tokio::time::sleep(LONG_ANSWER * 5).await;
        fast.calls();
        let late = turns.take(&origin);
        tokio::pin!(late);
        let late = timeout(SLOW * 2, &mut late).await.expect("it answers nobody");
        fast.answered();
        tokio::time::sleep(LONG_ANSWER * 5).await;
        let another = turns.take(&origin);
        tokio::pin!(another);
        let another = timeout(SLOW * 2, &mut another).await.expect("it answers nobody");
        late.answered();
        assert!(
            timeout(SLOW / 10, turns.take(&origin)).await.is_err(),
            "one at a time, however late the last answer was"
        );
        tokio::time::sleep(LATELY * 2).await;
        drop(another);
        assert!(turns.hosts.lock().is_empty());
    }
}
