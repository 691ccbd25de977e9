//! Lanes: one short queue per destination, so that a slow one holds up nobody but itself.
//!
//! A lane runs at most so many calls at a time and keeps at most about two seconds of its rate waiting; whatever is more
//! goes back to the store with a due time of its own, one rate interval after the one before it, so that a backlog drains
//! at the limit and never in a herd. The slower a lane is, and the longer it has been stuck, the longer what does not fit
//! stays away: neither a deep backlog nor a destination that hangs costs a loop of writes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use hashbrown::HashMap;
use metrics::Gauge;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use super::Job;
use crate::{
    guard::at_once,
    metrics as names,
    place::{Load, Place, Weight},
    store::Claimed,
};

/// The longest queue of one lane.
const LONGEST: usize = 256;
/// What does not fit into a lane stays away for as long as the lane has finished nothing. After this long it is stuck, not
/// slow ..
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// .. and what does not fit stays away for this many times as long ..
const STUCK_FACTOR: u32 = 4;
/// .. and no longer than this, because it may be free again.
const LONGEST_STAY: Duration = Duration::from_secs(10);
/// So many seconds of a rate wait here; whatever is more waits in the store.
const LINE_SECONDS: usize = 2;
/// A lane's pace is known after this many jobs ..
const KNOWN_AFTER: u32 = 16;
/// .. and is that of about the last moments.
const PACE_OF: Duration = Duration::from_secs(2);
/// What does not fit comes back at this many times the lane's pace, so that the lane never waits for it.
const AHEAD: u32 = 2;
/// Of all payloads in hand. One that is in several deliveries counts for each.
const MOST_BYTES: usize = 64 << 20;
/// Those who wait for room look for it so often.
const BREATH: Duration = Duration::from_millis(10);
/// After a wait in vain nobody waits for so many times as long.
const IN_VAIN: u32 = 10;
/// Whoever brings more waits until no more than this wait for a turn at their host: a tenth of a second's work. What lies in
/// memory for longer is in no cache any more when it is called, and costs a tenth more for it ..
const AHEAD_OF_TURNS: usize = 1024;
/// .. but he waits no longer than this, because hosts may be slow and others not ..
const LULL_WITHIN: Duration = Duration::from_millis(500);
/// .. and after a wait in vain nobody waits for so many times as long.
const NO_LULL: u32 = 30;
/// No lane takes more than this part of all calls, or of the payloads in hand and one.
const LARGEST_SHARE: usize = 8;
/// Of tenants that have nothing in hand no more are remembered.
const MOST_TENANTS: usize = 1024;
/// This part of all places, and of the payloads in hand, is kept for fresh deliveries of tenants that have less than as much.
const KEPT: usize = 4;

/// Which lane: tenant and subscription.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) tenant: Arc<str>,
    pub(super) subscription: Arc<str>,
}

/// How wide and how fast a lane may be.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) calls: usize,
    pub(super) per_second: u32,
}

/// What became of a job that was put into a lane.
pub(super) enum Placed {
    /// Begin a runner with it.
    Run(Job),
    Queued,
    /// The lane is full: put it back, due after this long.
    Full(Job, Duration),
}

struct Lane {
    queue: VecDeque<Job>,
    running: usize,
    /// The last due time that was given out to a delivery that went back.
    last_slot: Option<Instant>,
    /// When it last finished a job, or began.
    last_done: Instant,
    /// Jobs that were finished since `counted_from`.
    done: u32,
    counted_from: Instant,
    /// Runners whose call is over and whose outcome is being written: they wait for the database, not for the destination.
    writing: usize,
    /// What runs or waits in it.
    load: Arc<Load>,
    /// For those that wait for the rate, once there are any.
    heads: Option<Arc<Semaphore>>,
}

pub(super) struct Lanes {
    lanes: Mutex<HashMap<LaneKey, Lane>>,
    /// What each tenant has in hand, as long as it has something, and longer where tenants are few.
    tenants: Mutex<HashMap<Arc<str>, Arc<Load>>>,
    /// Jobs in lanes, running or waiting.
    held: AtomicUsize,
    /// Places that were given to deliveries on their way here.
    promised: Arc<AtomicUsize>,
    /// What is in hand.
    load: Arc<Load>,
    running: AtomicUsize,
    /// Of those, the ones that wait for a turn at their host.
    waiting_for_turns: AtomicUsize,
    most: usize,
    idle: Notify,
    // Looked up once: both are set twice for every delivery.
    in_flight: Gauge,
    waiting: Gauge,
    /// Jobs that ever left.
    left: AtomicUsize,
    /// Somebody has waited in vain for room: until then nobody waits again.
    in_vain_until: Mutex<Option<Instant>>,
    /// The same for a lull.
    no_lull_until: Mutex<Option<Instant>>,
}

impl Lanes {
    pub(super) fn new(most_in_flight: usize) -> Self {
        Lanes {
            lanes: Mutex::default(),
            tenants: Mutex::default(),
            held: AtomicUsize::new(0),
            promised: Arc::default(),
            load: Arc::default(),
            running: AtomicUsize::new(0),
            waiting_for_turns: AtomicUsize::new(0),
            most: most_in_flight,
            idle: Notify::new(),
            in_flight: metrics::gauge!(names::IN_FLIGHT),
            waiting: metrics::gauge!(names::WAITING),
            left: AtomicUsize::new(0),
            in_vain_until: Mutex::default(),
            no_lull_until: Mutex::default(),
        }
    }

    /// How many more jobs this process should hold, whoever's they are.
    pub(super) fn room(&self) -> usize {
        if self.room_for_bytes() == 0 {
            return 0;
        }
        (self.most - self.most / KEPT).saturating_sub(self.in_hand())
    }

    /// How many bytes of payloads this process should still take, whoever's they are.
    pub(super) fn room_for_bytes(&self) -> usize {
        (MOST_BYTES - MOST_BYTES / KEPT).saturating_sub(self.load.bytes())
    }

    /// Here, and on their way here.
    fn in_hand(&self) -> usize {
        self.held.load(Relaxed) + self.promised.load(Relaxed)
    }

    /// Waits until there is room for so many more, while jobs leave fast enough to make it within `patience`. After one who waited
    /// in vain nobody does for a while: what finds no room goes to the store, for anyone to claim.
    pub(super) async fn wait_for_room(&self, count: usize, patience: Duration) {
        let count = count.min(self.most / 2);
        let (began, left) = (Instant::now(), self.left.load(Relaxed));
        while self.room() < count {
            if self.in_vain_until.lock().is_some_and(|until| Instant::now() < until) {
                return;
            }
            tokio::time::sleep(BREATH).await;
            let (waited, made) = (began.elapsed(), self.left.load(Relaxed).wrapping_sub(left));
            // Outcomes are written in bursts: what they come to shows after a while. Room that others take is not worth waiting
            // for either.
            if waited > patience / 2 && made < count / 2 || waited > patience {
                *self.in_vain_until.lock() = Some(Instant::now() + IN_VAIN * patience);
            }
        }
    }

    /// Waits until little is ahead of what comes next, if hosts are fast enough for that. Those that are being called are not
    /// counted, however long they take.
    pub(super) async fn wait_for_lull(&self) {
        let began = Instant::now();
        while self.waiting_for_turns.load(Relaxed) + self.promised.load(Relaxed) > AHEAD_OF_TURNS {
            if self.no_lull_until.lock().is_some_and(|until| Instant::now() < until) {
                return;
            }
            tokio::time::sleep(BREATH).await;
            if began.elapsed() > LULL_WITHIN {
                *self.no_lull_until.lock() = Some(Instant::now() + NO_LULL * LULL_WITHIN);
            }
        }
    }

    /// A job that had its place in a lane has its turn.
    pub(super) fn has_turn(&self) {
        add(&self.waiting_for_turns, -1);
    }

    /// Keeps room for one more job, if there is any.
    pub(super) fn promise(&self, tenant: &str) -> Option<Place> {
        (self.room() > 0 || self.has_kept_room(tenant)).then(|| Place::one_of(&self.promised))
    }

    /// Others fill what is anyone's: a tenant with little in hand is not held up by them.
    fn has_kept_room(&self, tenant: &str) -> bool {
        let has_little = |load: &Arc<Load>| load.jobs() < self.most / KEPT && load.bytes() < MOST_BYTES / KEPT;
        self.in_hand() < self.most
            && self.load.bytes() < MOST_BYTES
            && self.tenants.lock().get(tenant).is_none_or(has_little)
    }

    /// A claimed delivery is in hand from now on.
    pub(super) fn job(&self, delivery: Claimed, claimed_at: Instant) -> Job {
        let bytes = delivery.data.len();
        let weights = [Weight::of(&self.load, bytes), Weight::of(&self.load_of(&delivery.tenant), bytes)];
        Job { delivery, claimed_at, _weights: weights, in_lane: None }
    }

    fn load_of(&self, tenant: &Arc<str>) -> Arc<Load> {
        let mut tenants = self.tenants.lock();
        if let Some(load) = tenants.get(tenant) {
            return Arc::clone(load);
        }
        if tenants.len() >= MOST_TENANTS {
            tenants.retain(|_, load| load.jobs() > 0);
        }
        Arc::clone(tenants.entry(Arc::clone(tenant)).or_default())
    }

    pub(super) fn place(&self, key: &LaneKey, mut job: Job, shape: Shape, now: Instant) -> Placed {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(key.clone()).or_insert_with(|| Lane::new(now));
        // Not whether this one fits as well: a large one never would beside small ones that come all the time.
        let is_light = lane.load.bytes() < MOST_BYTES / LARGEST_SHARE;
        if is_light && lane.running < shape.calls.min(self.most.div_ceil(LARGEST_SHARE)) {
            lane.running += 1;
            lane.take(&mut job);
            add(&self.waiting_for_turns, 1);
            self.count(1, 1);
            return Placed::Run(job);
        }
        if is_light && lane.queue.len() < LONGEST.min(LINE_SECONDS * shape.per_second as usize).max(1) {
            lane.take(&mut job);
            lane.queue.push_back(job);
            self.count(1, 0);
            return Placed::Queued;
        }
        let idle = if lane.writing > 0 { Duration::ZERO } else { now.saturating_duration_since(lane.last_done) };
        let factor = if idle < STUCK_AFTER { 1 } else { STUCK_FACTOR };
        let pace = Shape { per_second: shape.per_second.min(lane.per_second(now)), ..shape };
        let stay = lane.slot(pace, now, (idle * factor).min(LONGEST_STAY));
        Placed::Full(job, stay)
    }

    /// A due time for a delivery that goes back, at least `wait` from now and behind those that went before it.
    pub(super) fn slot(&self, key: &LaneKey, shape: Shape, now: Instant, wait: Duration) -> Duration {
        self.lanes.lock().entry(key.clone()).or_insert_with(|| Lane::new(now)).slot(shape, now, wait)
    }

    /// Where those of a lane stand that its rate refused: as many as may go at once wait for their time and ask again, the
    /// others for them. If all of them asked, all but those would be refused again. None: the line is long enough.
    pub(super) fn line(&self, key: &LaneKey, shape: Shape) -> Option<Arc<Semaphore>> {
        let mut lanes = self.lanes.lock();
        let heads = || Arc::new(Semaphore::new(at_once(shape.per_second)));
        let heads = lanes.get_mut(key)?.heads.get_or_insert_with(heads);
        // Each that stands there has one of its own.
        (Arc::strong_count(heads) <= LINE_SECONDS * shape.per_second as usize).then(|| Arc::clone(heads))
    }

    /// A runner's call is over; its outcome is yet to be written. Does another wait for that?
    pub(super) fn called(&self, key: &LaneKey) -> bool {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(key) else { return false };
        lane.writing += 1;
        !lane.queue.is_empty()
    }

    /// A runner is done with a job, its outcome written: here is its next one, or it ends.
    pub(super) fn next(&self, key: &LaneKey, may_go_on: bool) -> Option<Job> {
        let mut lanes = self.lanes.lock();
        let lane = lanes.get_mut(key)?;
        lane.finished(Instant::now());
        lane.writing -= 1;
        if may_go_on && let Some(job) = lane.queue.pop_front() {
            add(&self.waiting_for_turns, 1);
            self.count(-1, 0);
            return Some(job);
        }
        lane.running -= 1;
        // Where none may go on, what waits is for `give_up`.
        if lane.running == 0 && lane.queue.is_empty() {
            lanes.remove(key);
        }
        self.count(-1, -1);
        None
    }

    /// Takes out what waits in queues, for a worker that stops.
    pub(super) fn give_up(&self) -> Vec<Job> {
        let waiting: Vec<Job> = self.lanes.lock().values_mut().flat_map(|lane| lane.queue.drain(..)).collect();
        self.count(-isize::try_from(waiting.len()).unwrap_or(0), 0);
        waiting
    }

    /// Resolves when no call is running.
    pub(super) async fn drained(&self) {
        loop {
            let idle = self.idle.notified();
            if self.running.load(Relaxed) == 0 {
                return;
            }
            idle.await;
        }
    }

    fn count(&self, held: isize, running: isize) {
        self.left.fetch_add(held.min(0).unsigned_abs(), Relaxed);
        let held = add(&self.held, held);
        let running = add(&self.running, running);
        self.in_flight.set(running as f64);
        self.waiting.set(held.saturating_sub(running) as f64);
        if running == 0 {
            self.idle.notify_waiters();
        }
    }
}

fn add(counter: &AtomicUsize, change: isize) -> usize {
    counter.fetch_add(change.cast_unsigned(), Relaxed).wrapping_add_signed(change)
}

impl Lane {
    fn new(now: Instant) -> Self {
        Lane {
            queue: VecDeque::new(),
            running: 0,
            last_slot: None,
            last_done: now,
            done: 0,
            counted_from: now,
            writing: 0,
            load: Arc::default(),
            heads: None,
        }
    }

    fn take(&self, job: &mut Job) {
        job.in_lane = Some(Weight::of(&self.load, job.delivery.data.len()));
    }

    fn finished(&mut self, now: Instant) {
        self.last_done = now;
        self.done += 1;
        let counted = now.saturating_duration_since(self.counted_from);
        if counted > PACE_OF {
            self.done /= 2;
            self.counted_from += counted / 2;
        }
    }

    /// How many jobs may come back in a second.
    fn per_second(&self, now: Instant) -> u32 {
        if self.done < KNOWN_AFTER {
            return u32::MAX;
        }
        let counted_ms = now.saturating_duration_since(self.counted_from).as_millis().max(1);
        u32::try_from(u128::from(self.done * AHEAD) * 1000 / counted_ms).unwrap_or(u32::MAX)
    }

    fn slot(&mut self, shape: Shape, now: Instant, wait: Duration) -> Duration {
        let interval = Duration::from_secs(1) / shape.per_second.max(1);
        let after_last = self.last_slot.map_or(now, |last| last + interval);
        let slot = after_last.min(now + LONGEST_STAY).max(now + wait).max(now + interval);
        self.last_slot = Some(slot);
        slot - now
    }
}

#[cfg(test)]
mod tests;
