//! How lanes fill, wait and empty.

use bytes::Bytes;

use super::*;

const SHAPE: Shape = Shape { calls: 1, per_second: 1 };

fn job(now: Instant) -> Job {
    let delivery = Claimed {
        id: "dlv".to_owned(),
        tenant: "acme".into(),
        subscription: "sub".into(),
        event_id: "evt".to_owned(),
        event_type: "a.b".to_owned(),
        event_at: time::OffsetDateTime::UNIX_EPOCH,
        data: Bytes::new(),
        trace: None,
        attempts: 0,
        is_manual: false,
        is_operational: false,
        is_ordered: false,
        fence: 1,
        in_flight: None,
    };
    Lanes::new(8).job(delivery, now)
}

/// A lane with one job running and two waiting, which is full.
fn full(now: Instant) -> (Lanes, LaneKey) {
    let (lanes, key) = (Lanes::new(8), LaneKey { tenant: "acme".into(), subscription: "sub".into() });
    assert!(matches!(lanes.place(&key, job(now), SHAPE, now), Placed::Run(_)));
    for _ in 0..2 {
        assert!(matches!(lanes.place(&key, job(now), SHAPE, now), Placed::Queued));
    }
    (lanes, key)
}

fn stay(lanes: &Lanes, key: &LaneKey, now: Instant) -> Duration {
    match lanes.place(key, job(now), SHAPE, now) {
        Placed::Full(_, wait) => wait,
        _ => panic!("the lane has room"),
    }
}

#[test]
fn what_does_not_fit_stays_away_the_longer_the_lane_is_stuck() {
    let now = Instant::now();
    let (lanes, key) = full(now);
    let second = Duration::from_secs(1);
    assert_eq!(stay(&lanes, &key, now), second, "one rate interval");
    assert_eq!(stay(&lanes, &key, now + 2 * second), 8 * second);
    assert_eq!(stay(&full(now).0, &key, now + 600 * second), LONGEST_STAY);
    let (lanes, key) = full(now);
    lanes.called(&key);
    assert_eq!(stay(&lanes, &key, now + 600 * second), second, "it waits for the database, not for its destination");
}

#[test]
fn what_does_not_fit_comes_back_at_twice_the_pace_of_the_lane() {
    let now = Instant::now();
    let (lanes, key) = (Lanes::new(8), LaneKey { tenant: "acme".into(), subscription: "sub".into() });
    let shape = Shape { calls: 1, per_second: 10_000 };
    while !matches!(lanes.place(&key, job(now), shape, now), Placed::Full(..)) {}
    let later = now + Duration::from_secs(1);
    lanes.lanes.lock().get_mut(&key).unwrap().done = 50;
    let stay = || match lanes.place(&key, job(later), shape, later) {
        Placed::Full(_, stay) => stay,
        _ => panic!("the lane has room"),
    };
    lanes.called(&key);
    let (first, second) = (stay(), stay());
    assert_eq!(second - first, Duration::from_millis(10), "fifty a second");
    let farthest = (0..10_000).map(|_| stay()).max();
    assert!(farthest <= Some(LONGEST_STAY + Duration::from_millis(10)), "{farthest:?}");
}

#[test]
fn room_is_promised_once() {
    let now = Instant::now();
    let (lanes, _) = full(now);
    let promised: Vec<Place> = std::iter::from_fn(|| lanes.promise("acme")).collect();
    assert_eq!((promised.len(), lanes.room()), (5, 0));
    drop(promised);
    assert_eq!(lanes.room(), 3);
}

/// One job leaves every so often, for as long as somebody looks.
async fn wait_while_one_leaves(every: Duration, count: usize) -> (Duration, usize) {
    const SECOND: Duration = Duration::from_secs(1);
    let (now, shape) = (Instant::now(), Shape { calls: 100, per_second: 1 });
    let (lanes, key) = (Lanes::new(64), LaneKey { tenant: "acme".into(), subscription: "sub".into() });
    let place = |lane: u8| {
        let key = LaneKey { subscription: lane.to_string().into(), ..key.clone() };
        assert!(matches!(lanes.place(&key, job(now), shape, now), Placed::Run(_)));
        key
    };
    let keys: Vec<LaneKey> = (0..48).map(place).collect();
    let leaving = async {
        for key in &keys {
            tokio::time::sleep(every).await;
            lanes.called(key);
            lanes.next(key, true);
        }
    };
    tokio::select! {
        () = lanes.wait_for_room(count, SECOND) => (),
        () = leaving => panic!("there is room for all by now"),
    }
    let waited = now.elapsed();
    lanes.wait_for_room(count, SECOND).await;
    assert_eq!(now.elapsed(), waited, "there is room, or after a wait in vain the next one goes at once");
    (waited, lanes.room())
}

/// Three workers read a topic faster than each made room: after a quarter of a second what they had read was anyone's to claim,
/// and read from the database again.
#[tokio::test(start_paused = true)]
async fn room_is_waited_for_while_it_is_being_made() {
    let ms = Duration::from_millis;
    let (waited, room) = wait_while_one_leaves(ms(25), 32).await;
    assert!(room >= 32 && waited <= ms(810), "{room} free after {waited:?}");
    let (waited, room) = wait_while_one_leaves(ms(200), 32).await;
    assert!(room < 32 && waited <= ms(520), "five a second make it in six: {room} free after {waited:?}");
    let (waited, room) = wait_while_one_leaves(Duration::from_secs(600), 1000).await;
    assert!(room == 0 && waited <= ms(520), "nothing leaves: {waited:?}");
}

/// Outcomes are written in bursts. An eighth of a second without any was taken for a standstill, and then a third of what three
/// workers read was anyone's to claim, and read from the database again.
#[tokio::test(start_paused = true)]
async fn a_moment_in_which_nothing_leaves_is_no_standstill() {
    let lanes = Lanes::new(64);
    lanes.count(64, 0);
    let (began, burst) = (Instant::now(), Duration::from_millis(300));
    let leaving = async {
        loop {
            tokio::time::sleep(burst).await;
            lanes.count(-20, 0);
        }
    };
    tokio::select! {
        () = lanes.wait_for_room(32, Duration::from_secs(1)) => (),
        () = leaving => (),
    }
    assert!(lanes.room() >= 32, "it gave up after {:?}", began.elapsed());
}

/// Jobs of as many lanes, all of which wait for a turn at their host.
fn wait_for_turns(lanes: &Lanes, jobs: usize) {
    let (now, shape) = (Instant::now(), Shape { calls: 2, per_second: 1 });
    for lane in 0..jobs {
        let key = LaneKey { tenant: "acme".into(), subscription: lane.to_string().into() };
        assert!(matches!(lanes.place(&key, job(now), shape, now), Placed::Run(_)));
    }
}

/// A worker read 32,768 deliveries ahead of its calls: each was in no cache any more when its turn came.
#[tokio::test(start_paused = true)]
async fn a_lull_is_waited_for_while_jobs_get_their_turns() {
    let (lanes, began) = (Lanes::new(10_000), Instant::now());
    wait_for_turns(&lanes, AHEAD_OF_TURNS);
    lanes.wait_for_lull().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "a moment's work is ahead, no more");
    wait_for_turns(&lanes, AHEAD_OF_TURNS);
    let turns = async {
        loop {
            tokio::time::sleep(BREATH).await;
            (0..AHEAD_OF_TURNS / 20).for_each(|_| lanes.has_turn());
        }
    };
    tokio::select! { () = lanes.wait_for_lull() => (), () = turns => () }
    assert!(lanes.waiting_for_turns.load(Relaxed) <= AHEAD_OF_TURNS, "it went after {:?}", began.elapsed());
    let promised: Vec<Place> = (0..AHEAD_OF_TURNS).filter_map(|_| lanes.promise("acme")).collect();
    let lull = tokio::time::timeout(LULL_WITHIN / 2, lanes.wait_for_lull());
    assert!(lull.await.is_err(), "what is on its way here will wait for a turn too");
    drop(promised);
}

/// Hosts that let nobody go must not hold up what others would take at once.
#[tokio::test(start_paused = true)]
async fn after_a_wait_in_vain_for_a_lull_nobody_waits_for_a_while() {
    let (lanes, began) = (Lanes::new(10_000), Instant::now());
    wait_for_turns(&lanes, 2 * AHEAD_OF_TURNS);
    for _ in 0..10 {
        lanes.wait_for_lull().await;
    }
    assert!(began.elapsed() <= LULL_WITHIN + 2 * BREATH, "ten of them waited {:?}", began.elapsed());
    tokio::time::sleep(NO_LULL * LULL_WITHIN).await;
    let again = Instant::now();
    lanes.wait_for_lull().await;
    assert!(again.elapsed() >= LULL_WITHIN, "there may be one by now");
}

/// With a backlog that is claimed as soon as there is room, a topic would be read at a batch in two seconds.
#[tokio::test(start_paused = true)]
async fn room_that_others_take_is_not_waited_for_again() {
    let (began, shape) = (Instant::now(), Shape { calls: 100, per_second: 1 });
    let (lanes, key) = (Lanes::new(64), LaneKey { tenant: "acme".into(), subscription: "sub".into() });
    let fill = || {
        while lanes.room() > 0 && matches!(lanes.place(&key, job(began), shape, began), Placed::Run(_) | Placed::Queued)
        {
        }
    };
    let others = async {
        loop {
            fill();
            tokio::time::sleep(Duration::from_millis(10)).await;
            lanes.called(&key);
            lanes.next(&key, true);
        }
    };
    let all = async {
        for _ in 0..10 {
            lanes.wait_for_room(32, Duration::from_secs(1)).await;
            lanes.wait_for_room(0, Duration::from_secs(1)).await;
        }
    };
    tokio::select! { () = others => (), () = all => () }
    assert!(began.elapsed() <= Duration::from_millis(1200), "ten of them waited {:?}", began.elapsed());
}

#[test]
fn there_is_no_room_beside_64_mib_of_payloads() {
    let (now, lanes) = (Instant::now(), Lanes::new(8));
    let Job { delivery, .. } = job(now);
    let half = |lanes: &Lanes| {
        let data = Bytes::from(vec![b' '; MOST_BYTES / 2]);
        lanes.job(Claimed { data, ..delivery.clone() }, now)
    };
    let first = half(&lanes);
    assert!(lanes.room() == 6 && lanes.promise("acme").is_some());
    let second = half(&lanes);
    assert!(lanes.room() == 0 && lanes.promise("beta").is_none());
    drop((first, second));
    assert_eq!(lanes.room(), 6);
}

/// One slow receiver of large events took all memory for payloads, and nobody's events were claimed any more.
#[test]
fn a_lane_takes_only_its_share_of_the_payloads_in_hand() {
    let (now, lanes) = (Instant::now(), Lanes::new(64));
    let key = LaneKey { tenant: "acme".into(), subscription: "sub".into() };
    let share = MOST_BYTES / LARGEST_SHARE;
    let Job { delivery, .. } = job(now);
    let large = |bytes: usize| lanes.job(Claimed { data: Bytes::from(vec![b' '; bytes]), ..delivery.clone() }, now);
    let shape = Shape { calls: 2, per_second: 100 };
    let run = |key, bytes| match lanes.place(key, large(bytes), shape, now) {
        Placed::Run(job) => job,
        _ => panic!("a runner is free"),
    };
    let mut running = [run(&key, share / 4), run(&key, share / 4)].map(Some);
    assert!(matches!(lanes.place(&key, large(share / 2), shape, now), Placed::Queued));
    assert!(matches!(lanes.place(&key, large(1), shape, now), Placed::Full(..)));
    assert!(lanes.room() > 0 && lanes.promise("acme").is_some(), "others have room");
    lanes.called(&key);
    running[0] = None;
    let next = lanes.next(&key, true);
    assert!(next.is_some());
    assert!(matches!(lanes.place(&key, large(share / 4), shape, now), Placed::Queued));
    drop((lanes.give_up(), next));
    assert!(matches!(lanes.place(&key, large(2 * share), shape, now), Placed::Queued), "a large one waits for no gap");
    let another = LaneKey { subscription: "sub_2".into(), ..key.clone() };
    run(&another, 2 * share);
}

/// A hundred slow receivers of one tenant took every place, and what others sent was not called for minutes.
#[test]
fn a_tenant_with_little_in_hand_finds_room_beside_one_with_much() {
    let (now, lanes) = (Instant::now(), Lanes::new(8));
    let in_hand = |tenant: &str, many: usize| -> Vec<Job> {
        let shape = Shape { calls: 8, per_second: 1 };
        let place = |lane: usize| {
            let key = LaneKey { tenant: tenant.into(), subscription: lane.to_string().into() };
            let Job { delivery, .. } = job(now);
            let job = lanes.job(Claimed { tenant: tenant.into(), ..delivery }, now);
            match lanes.place(&key, job, shape, now) {
                Placed::Run(job) => job,
                _ => panic!("a lane of its own has room"),
            }
        };
        (0..many).map(place).collect()
    };
    let acme = in_hand("acme", 6);
    assert!(lanes.room() == 0 && lanes.promise("acme").is_none(), "the rest is not acme's, nor anyone's to claim");
    let promised = lanes.promise("beta");
    assert!(promised.is_some());
    let beta = in_hand("beta", 1);
    assert!(lanes.promise("beta").is_none(), "all places are taken");
    drop((promised, beta, acme));
}

#[test]
fn two_seconds_of_a_rate_stand_in_line() {
    let now = Instant::now();
    let (lanes, key) = full(now);
    let line = [lanes.line(&key, SHAPE), lanes.line(&key, SHAPE)];
    assert!(line.iter().all(Option::is_some));
    assert!(lanes.line(&key, SHAPE).is_none(), "the rest waits in the store");
    drop(line);
    assert!(lanes.line(&key, SHAPE).is_some());
}

#[tokio::test]
async fn what_was_not_begun_is_given_up_at_once() {
    let now = Instant::now();
    let (lanes, key) = full(now);
    assert_eq!(lanes.give_up().len(), 2);
    assert_eq!((lanes.room(), lanes.running.load(Relaxed)), (5, 1));
    lanes.called(&key);
    assert!(lanes.next(&key, false).is_none());
    lanes.drained().await;
}

#[tokio::test]
async fn everything_held_is_given_up_in_the_end() {
    let now = Instant::now();
    let (lanes, key) = full(now);
    assert_eq!(lanes.room(), 3);
    lanes.called(&key);
    assert!(lanes.next(&key, true).is_some());
    assert_eq!((lanes.room(), lanes.running.load(Relaxed)), (4, 1));
    lanes.called(&key);
    assert!(lanes.next(&key, false).is_none(), "it stops with one waiting");
    assert_eq!((lanes.room(), lanes.running.load(Relaxed)), (5, 0));
    assert_eq!(lanes.give_up().len(), 1, "which is for others at once, not when the last call has ended");
    assert_eq!(lanes.room(), 6);
    lanes.drained().await;
}
