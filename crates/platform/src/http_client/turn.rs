//! Turns: how many calls to one host are made at a time.
//!
//! A fast receiver is served best over few connections: more of them only cost both sides. So calls to a host wait for
//! their turn while it answers others. The longer it takes for an answer, the more calls are made at a time; and nobody waits
//! for a host that has answered none for a moment. Whoever has a limit to keep takes a turn before asking for it, so that
//! what was granted is sent.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

/// A host that has answered nobody for this long is slow.
const SLOW: Duration = Duration::from_millis(50);
/// As many calls as there may be connections are made at a time, and as many again for each time this long that an answer
/// takes.
const LONG_ANSWER: Duration = Duration::from_millis(100);
/// However fast it answers others, a call waits no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(super) struct Turns {
    hosts: Mutex<HashMap<Arc<str>, Host>>,
    most: usize,
}

#[derive(Default)]
struct Host {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    last_answer: Option<Answered>,
}

struct Answered {
    at: Instant,
    took: Duration,
}

/// A call's turn; the next one's when it is dropped.
pub struct Turn {
    /// Absent once it is passed on.
    seat: Option<Seat>,
    is_answered: bool,
}

struct Seat {
    turns: Arc<Turns>,
    origin: Arc<str>,
    since: Instant,
}

impl Turn {
    fn new(seat: Seat) -> Self {
        Turn { seat: Some(seat), is_answered: false }
    }

    /// The call was made and has ended.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            seat.turns.pass_on(&seat, self.is_answered);
        }
    }
}

impl Host {
    /// How many calls may be under way, where a fast host has `most`.
    fn allowed(&self, most: usize) -> usize {
        let took = self.last_answer.as_ref().map_or(Duration::ZERO, |answered| answered.took);
        most.saturating_mul(1 + usize::try_from(took.as_millis() / LONG_ANSWER.as_millis()).unwrap_or(usize::MAX - 1))
    }
}

impl Turns {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Turns { hosts: Mutex::default(), most })
    }

    pub(super) async fn take(self: &Arc<Self>, origin: &Arc<str>) -> Turn {
        let seat = || Seat { turns: Arc::clone(self), origin: Arc::clone(origin), since: Instant::now() };
        let (sender, mut mine) = oneshot::channel();
        {
            let mut hosts = self.hosts.lock();
            let host = hosts.entry(Arc::clone(origin)).or_default();
            if host.taken < host.allowed(self.most) {
                host.taken += 1;
                return Turn::new(seat());
            }
            host.waiting.push_back(sender);
        }
        let (begun, mut pause) = (Instant::now(), SLOW);
        loop {
            match timeout(pause, &mut mine).await {
                Ok(Ok(turn)) => return turn,
                // Thousands may wait here, so each looks more and more seldom.
                Err(_) if begun.elapsed() < LONGEST_WAIT && self.is_answering(origin) => pause *= 2,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        self.hosts.lock().entry(Arc::clone(origin)).or_default().taken += 1;
        Turn::new(seat())
    }

    fn is_answering(&self, origin: &Arc<str>) -> bool {
        let hosts = self.hosts.lock();
        let last_answer = hosts.get(origin).and_then(|host| host.last_answer.as_ref());
        last_answer.is_some_and(|answered| answered.at.elapsed() < SLOW)
    }

    fn pass_on(&self, seat: &Seat, is_answered: bool) {
        let mut hosts = self.hosts.lock();
        let Some(host) = hosts.get_mut(&seat.origin) else { return };
        if is_answered {
            host.last_answer = Some(Answered { at: Instant::now(), took: seat.since.elapsed() });
        }
        host.taken -= 1;
        // More than are allowed may be out since the host was slow; then nobody follows.
        while host.taken < host.allowed(self.most)
            && let Some(next) = host.waiting.pop_front()
        {
            let seat = Seat { turns: Arc::clone(&seat.turns), origin: Arc::clone(&seat.origin), since: Instant::now() };
            match next.send(Turn::new(seat)) {
                Ok(()) => host.taken += 1,
                // It went ahead without waiting any longer. Its turn must not end here, under the lock.
                Err(mut refused) => drop(refused.seat.take()),
            }
        }
        if host.taken == 0 {
            hosts.remove(&seat.origin);
        }
    }
}

#[cfg(test)]
mod tests {
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
        let mut waiting: Vec<_> = (0..6).map(|_| Box::pin(turns.take(&origin))).collect();
        for one in &mut waiting {
            assert!(timeout(SLOW / 10, one).await.is_err(), "nothing is known of the host");
        }
        tokio::time::sleep(LONG_ANSWER * 2 - SLOW / 10 * 6).await;
        first.answered();
        let mut under_way = vec![second];
        for one in waiting.drain(..5) {
            under_way.push(timeout(SLOW / 10, one).await.expect("six at a time"));
        }
        assert!(timeout(SLOW / 10, &mut waiting[0]).await.is_err());
        drop((under_way, waiting));
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
}
