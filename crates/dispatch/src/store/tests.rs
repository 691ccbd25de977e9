//! One suite for both databases: what intake, claims, fences and order promise.

use std::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
};

use platform::{
    db::{Config, File},
    http_client::Reachable,
    id,
    secret::Secret,
};
use tenancy::vault::Vault;
use testkit::{eventually, need};

use super::*;
use crate::{
    catalog::Catalog,
    model::Shown,
    store::{
        records::{PARKED, SealedSecret},
        search::{DeliveryFilter, EventFilter},
        transition::Disable,
    },
};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn each_store<F: Future<Output = ()>>(case: impl Fn(Store) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(open("", folder.path()).await).await;
    let postgres = need!(testkit::postgres());
    case(open(&postgres.url(), folder.path()).await).await;
}

pub(crate) async fn open(url: &str, folder: &std::path::Path) -> Store {
    let file = File { url: Secret::new(url), pool_size: 8, ca_file: String::new() };
    let database = Database::connect(&Config::new(&file, folder).unwrap()).await.unwrap();
    database.migrate(&[tenancy::MIGRATIONS, MIGRATIONS]).await.unwrap();
    tenancy::Store::new(database.clone()).create_tenant("dev", "acme", "Acme").await.unwrap();
    let store = Store::new(database);
    store.prepare_days().await.unwrap();
    store
}

pub(crate) fn tenants_of(store: &Store) -> tenancy::Store {
    tenancy::Store::new(store.database.clone())
}

pub(in crate::store) fn lease(owner: &str, length: Duration) -> Lease {
    Lease { owner: owner.into(), length }
}

pub(crate) fn event(id: &str, deliveries: usize) -> NewEvent {
    let delivery =
        |_| NewDelivery { id: id::new("dlv"), subscription: "sub_1".into(), ordering_key: None, place: None };
    NewEvent {
        uid: id::new("evt"),
        tenant: "acme".into(),
        id: id.to_owned(),
        event_type: "order.created".to_owned(),
        source: None,
        ordering_key: None,
        deliver_at: None,
        data: Bytes::from_static(b"{\"n\":1}"),
        hash: [1; 32],
        created_at: None,
        trace: None,
        deliveries: (0..deliveries).map(delivery).collect(),
    }
}

pub(in crate::store) fn ordered(id: &str, key: &str) -> NewEvent {
    let mut event = event(id, 1);
    event.deliveries[0].ordering_key = Some(key.to_owned());
    event
}

pub(crate) async fn take_in(store: &Store, events: Vec<NewEvent>) -> Vec<Accepted> {
    store.take_in(events, &lease("nobody", MINUTE)).await.unwrap()
}

pub(crate) async fn claim(store: &Store, owner: &str) -> Vec<Claimed> {
    store.claim(&lease(owner, MINUTE), 100, 100).await.unwrap().claimed
}

pub(crate) fn record(delivery: &Claimed, status: Status, due_in: Option<Duration>) -> Record {
    let attempt = NewAttempt {
        duration: Duration::from_millis(5),
        response_status: Some(200),
        response_headers: Some("{}".to_owned()),
        response_body: Some(Bytes::from_static(b"ok\0\xff")),
        error_class: None,
        error: None,
    };
    let is_attempt = status != Status::Throttled;
    Record {
        delivery: delivery.id.clone(),
        tenant: Arc::clone(&delivery.tenant),
        fence: delivery.fence,
        is_ordered: delivery.is_ordered,
        status,
        due_in,
        last_error: Some("because".to_owned()),
        attempt: is_attempt.then_some(attempt),
        raises: None,
        in_flight: delivery.in_flight.clone(),
    }
}

pub(in crate::store) async fn status_of(store: &Store, id: &str) -> Status {
    store.delivery("acme", id).await.unwrap().unwrap().status
}

#[tokio::test]
async fn an_event_is_taken_in_once_and_a_repeat_gets_the_same_answer() {
    each_store(async |store| {
        let first = take_in(&store, vec![event("a", 1)]).await;
        let Accepted::New { at } = first[0] else { panic!("{first:?}") };
        assert_eq!(take_in(&store, vec![event("a", 1)]).await, [Accepted::Repeat { at }]);
        let other = NewEvent { hash: [2; 32], ..event("a", 1) };
        let elsewhere = NewEvent { tenant: "other".into(), ..event("a", 0) };
        let answers = take_in(&store, vec![other, elsewhere]).await;
        assert!(matches!(answers[..], [Accepted::Conflict, Accepted::New { .. }]), "{answers:?}");
        assert_eq!(claim(&store, "w").await.len(), 1, "one event, one delivery");
    })
    .await;
}

#[tokio::test]
async fn the_same_id_twice_in_one_batch_is_a_repeat_or_a_conflict() {
    each_store(async |store| {
        let other = NewEvent { hash: [2; 32], ..event("a", 1) };
        let answers = take_in(&store, vec![event("a", 1), event("b", 1), event("a", 1), other]).await;
        assert!(
            matches!(
                answers[..],
                [Accepted::New { .. }, Accepted::New { .. }, Accepted::Repeat { .. }, Accepted::Conflict]
            ),
            "{answers:?}"
        );
        assert_eq!(claim(&store, "w").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn parallel_batches_with_the_same_ids_take_each_in_once() {
    each_store(async |store| {
        let batches = (0..8).map(|turn| {
            let mut events: Vec<_> = (0..50).map(|n| event(&format!("e{n}"), 1)).collect();
            if turn % 2 == 1 {
                events.reverse();
            }
            let store = store.clone();
            async move { take_in(&store, events).await }
        });
        let answers = futures_util::future::join_all(batches).await.concat();
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Accepted::New { .. })).count(), 50);
        assert_eq!(claim(&store, "w").await.len(), 50);
    })
    .await;
}

#[tokio::test]
async fn a_claim_belongs_to_one_and_carries_the_event() {
    each_store(async |store| {
        take_in(&store, vec![NewEvent { trace: Some("00-trace".into()), ..event("a", 3) }]).await;
        let (one, two) = tokio::join!(claim(&store, "one"), claim(&store, "two"));
        assert_eq!(one.len() + two.len(), 3);
        let first = one.first().or(two.first()).unwrap();
        assert_eq!((first.attempts, first.fence, first.is_manual), (0, 1, false));
        assert_eq!(claim(&store, "three").await.len(), 0);
        store.record(vec![record(first, Status::Retrying, Some(Duration::ZERO))]).await.unwrap();
        let again = claim(&store, "three").await;
        assert_eq!((again.len(), again[0].attempts, again[0].fence), (1, 1, 2));
        for claimed in [first, &again[0]] {
            assert_eq!(
                (claimed.event_id.as_str(), claimed.event_type.as_str(), &claimed.data[..], claimed.trace.as_deref()),
                ("a", "order.created", &b"{\"n\":1}"[..], Some("00-trace"))
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_zombie_changes_nothing_after_its_lease_was_taken_over() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let zombie = store.claim(&lease("zombie", Duration::ZERO), 10, 10).await.unwrap().claimed.remove(0);
        let heir = claim(&store, "heir").await.remove(0);
        assert_eq!(heir.fence, zombie.fence + 1);
        assert_eq!(store.record(vec![record(&zombie, Status::Failed, None)]).await.unwrap(), 0);
        assert_eq!(status_of(&store, &heir.id).await, Status::Processing);
        assert_eq!(store.record(vec![record(&heir, Status::Delivered, None)]).await.unwrap(), 1);
        assert_eq!(store.record(vec![record(&heir, Status::Failed, None)]).await.unwrap(), 0, "an outcome counts once");
        assert_eq!(store.attempts("acme", &heir.id, None, 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn outcomes_set_status_attempts_and_the_next_due_time() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let first = claim(&store, "w").await.remove(0);
        store.record(vec![record(&first, Status::Throttled, Some(Duration::ZERO))]).await.unwrap();
        let second = claim(&store, "w").await.remove(0);
        store.record(vec![record(&second, Status::Retrying, Some(MINUTE))]).await.unwrap();
        let delivery = store.delivery("acme", &first.id).await.unwrap().unwrap();
        assert_eq!((delivery.status, delivery.attempts, delivery.deferrals), (Status::Retrying, 1, 1));
        assert!(delivery.next_attempt_at.is_some());
        assert_eq!(claim(&store, "w").await.len(), 0, "not due yet");
        let due = store.next_due().await.unwrap().unwrap();
        assert!(due > MINUTE / 2 && due <= MINUTE, "{due:?}");
        let attempt = store.attempts("acme", &first.id, None, 10).await.unwrap().remove(0);
        assert_eq!((attempt.number, attempt.response_status, attempt.duration_ms), (1, Some(200), 5));
    })
    .await;
}

#[tokio::test]
async fn attempts_are_listed_the_last_first_page_by_page() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let mut delivery = String::new();
        for _ in 0..5 {
            let claimed = claim(&store, "w").await.remove(0);
            store.record(vec![record(&claimed, Status::Retrying, Some(Duration::ZERO))]).await.unwrap();
            delivery = claimed.id;
        }
        let mut pages = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.attempts("acme", &delivery, after.as_deref(), 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            pages.push(page.iter().map(|attempt| attempt.number).collect::<Vec<_>>());
        }
        assert_eq!(pages, [vec![5, 4], vec![3, 2], vec![1]]);
        assert!(store.attempts("globex", &delivery, None, 2).await.unwrap().is_empty(), "another tenant's");
    })
    .await;
}

/// The first attempt is a part of its delivery's row, unless that would be long; whoever asks cannot tell.
#[tokio::test]
async fn attempts_are_found_wherever_they_lie() {
    each_store(async |store| {
        for (name, size) in [("short", 10), ("long", 16 << 10)] {
            take_in(&store, vec![event(name, 1)]).await;
            let body = Bytes::from("x".repeat(size));
            let answered = |claimed: &Claimed| {
                let record = record(claimed, Status::Retrying, Some(Duration::ZERO));
                let said = |attempt: NewAttempt| NewAttempt {
                    response_headers: Some("{\"a\":\"b\"}".to_owned()),
                    response_body: Some(body.clone()),
                    error_class: Some("http_5xx"),
                    error: Some("it said 500".to_owned()),
                    ..attempt
                };
                Record { attempt: record.attempt.clone().map(said), ..record }
            };
            let first = claim(&store, "w").await.remove(0);
            store.record(vec![answered(&first)]).await.unwrap();
            let second = claim(&store, "w").await.remove(0);
            assert_eq!((second.id.as_str(), second.in_flight.is_none()), (first.id.as_str(), true));
            store.record(vec![answered(&second)]).await.unwrap();
            let attempts = store.attempts("acme", &first.id, None, 10).await.unwrap();
            assert_eq!(attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [2, 1], "{name}");
            for attempt in &attempts {
                assert!(attempt.id.starts_with("att_"), "{}", attempt.id);
                assert_eq!((attempt.response_status, attempt.duration_ms), (Some(200), 5));
                assert_eq!(attempt.response_headers.as_ref().unwrap().get(), "{\"a\":\"b\"}");
                assert_eq!(attempt.response_body.as_ref().unwrap().as_bytes(), &*body);
                let error = attempt.error.as_ref().unwrap();
                assert_eq!((error.class.as_str(), error.sentence.as_str()), ("http_5xx", "it said 500"));
                let age = OffsetDateTime::now_utc() - attempt.started_at;
                assert!(age >= time::Duration::ZERO && age < MINUTE, "began {age} ago");
            }
            let delivery = store.delivery("acme", &first.id).await.unwrap().unwrap();
            let found = store.attempts_of("acme", std::slice::from_ref(&delivery), Some("http_5xx")).await.unwrap();
            assert_eq!((found.len(), delivery.attempts), (2, 2));
            let third = claim(&store, "w").await.remove(0);
            store.record(vec![record(&third, Status::Delivered, None)]).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_delivery_born_leased_is_nobody_elses_until_its_lease_ends() {
    each_store(async |store| {
        let mut born = event("a", 1);
        born.deliveries[0].place = Some(Place::nowhere());
        store.take_in(vec![born.clone()], &lease("me", MINUTE)).await.unwrap();
        assert_eq!(claim(&store, "other").await.len(), 0);
        store.release("me").await.unwrap();
        let taken = claim(&store, "other").await;
        assert_eq!((taken[0].id.as_str(), taken[0].attempts), (born.deliveries[0].id.as_str(), 0));
    })
    .await;
}

#[tokio::test]
async fn an_event_for_later_waits() {
    each_store(async |store| {
        let later = time::OffsetDateTime::now_utc() + MINUTE;
        take_in(&store, vec![NewEvent { deliver_at: Some(later), ..event("a", 1) }]).await;
        assert_eq!(claim(&store, "w").await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn an_ordered_line_gives_out_its_head_alone() {
    each_store(async |store| {
        take_in(&store, vec![ordered("a1", "a"), ordered("a2", "a"), ordered("b1", "b")]).await;
        let heads = claim(&store, "w").await;
        let mut ids: Vec<_> = heads.iter().map(|head| head.event_id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a1", "b1"]);
        let head = heads.iter().find(|head| head.event_id == "a1").unwrap();
        store.record(vec![record(head, Status::Retrying, Some(MINUTE))]).await.unwrap();
        assert_eq!(claim(&store, "w").await.len(), 0, "a failing head holds its key");
        assert!(store.retry("acme", &head.id).await.unwrap());
        let again = claim(&store, "w").await.remove(0);
        store.record(vec![record(&again, Status::Delivered, None)]).await.unwrap();
        assert_eq!(claim(&store, "w").await[0].event_id, "a2");
    })
    .await;
}

/// On PostgreSQL the events of one write stood in their line by their ids: who sent "created" and then "cancelled" had them delivered
/// the other way round.
#[tokio::test]
async fn events_of_one_write_stand_in_line_as_they_were_sent() {
    each_store(async |store| {
        take_in(&store, ["created", "changed", "cancelled"].map(|id| ordered(id, "a")).into()).await;
        for id in ["created", "changed", "cancelled"] {
            let head = claim(&store, "w").await.remove(0);
            assert_eq!(head.event_id, id);
            store.record(vec![record(&head, Status::Delivered, None)]).await.unwrap();
        }
    })
    .await;
}

/// Two tenants may call their subscriptions the same: acme's hanging head held beta's line of that name and key.
#[tokio::test]
async fn an_ordered_line_never_waits_for_another_tenants() {
    each_store(async |store| {
        let of_beta = |id: &str| NewEvent { tenant: "beta".into(), ..ordered(id, "1") };
        take_in(&store, vec![ordered("a1", "1"), of_beta("b1"), ordered("a2", "1"), of_beta("b2")]).await;
        let heads = claim(&store, "w").await;
        let mut ids: Vec<_> = heads.iter().map(|head| head.event_id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a1", "b1"]);
        let head = heads.iter().find(|head| head.event_id == "b1").unwrap();
        store.record(vec![record(head, Status::Delivered, None)]).await.unwrap();
        assert_eq!(claim(&store, "w").await[0].event_id, "b2", "the next of the same tenant moves up");
    })
    .await;
}

/// The first was taken in by a replica whose clock is ahead, so its id is the later one.
#[tokio::test]
async fn an_ordered_line_has_the_order_of_the_database_not_of_replicas_clocks() {
    let (postgres, folder) = (need!(testkit::postgres()), tempfile::tempdir().unwrap());
    let store = open(&postgres.url(), folder.path()).await;
    let (mut first, mut second) = (ordered("a1", "a"), ordered("a2", "a"));
    std::mem::swap(&mut first.deliveries[0].id, &mut second.deliveries[0].id);
    take_in(&store, vec![first]).await;
    take_in(&store, vec![second]).await;
    for expected in ["a1", "a2"] {
        let heads = claim(&store, "w").await;
        assert_eq!(heads.iter().map(|head| head.event_id.as_str()).collect::<Vec<_>>(), [expected]);
        store.record(vec![record(&heads[0], Status::Delivered, None)]).await.unwrap();
    }
}

#[tokio::test]
async fn a_long_line_is_looked_at_once_and_hides_nobody() {
    each_store(async |store| {
        let line: Vec<_> = (0..250).map(|n| ordered(&format!("a{n:03}"), "a")).collect();
        take_in(&store, line).await;
        take_in(&store, vec![event("z", 1)]).await;
        let (mut claimed, mut looks) = (Vec::new(), 0);
        loop {
            let found = store.claim(&lease("w", MINUTE), 100, 100).await.unwrap();
            claimed.extend(found.claimed.into_iter().map(|one| one.event_id));
            looks += 1;
            if found.is_all {
                break;
            }
        }
        assert_eq!(claimed, ["a000", "z"]);
        assert!(looks <= 4, "{looks} looks of 100 at 251");
        let due = store.next_due().await.unwrap().unwrap();
        assert!(due > MINUTE / 2, "the next claim would look at the line again: {due:?}");
    })
    .await;
}

#[tokio::test]
async fn whoever_is_next_in_line_is_due_when_the_head_was_cancelled_unless_it_is_for_later() {
    each_store(async |store| {
        let deliver_at = Some(time::OffsetDateTime::now_utc() + MINUTE);
        let line = vec![ordered("a1", "a"), ordered("a2", "a"), NewEvent { deliver_at, ..ordered("a3", "a") }];
        take_in(&store, line).await;
        let head = claim(&store, "w").await.remove(0);
        store.record(vec![record(&head, Status::Retrying, Some(MINUTE))]).await.unwrap();
        assert!(store.cancel("acme", &head.id).await.unwrap());
        let next = claim(&store, "w").await.remove(0);
        assert_eq!(next.event_id, "a2");
        store.record(vec![record(&next, Status::Failed, None)]).await.unwrap();
        assert_eq!(claim(&store, "w").await.len(), 0, "it is for later");
    })
    .await;
}

/// A claim may put off what becomes a head in the same moment.
#[tokio::test]
async fn lines_move_on_while_events_come_in_and_several_claim_and_record() {
    const LINES: usize = 10;
    const EACH: usize = 60;
    each_store(async |store| {
        let left = AtomicUsize::new(LINES * EACH);
        let take_in = async {
            for n in 0..EACH {
                let one_each = (0..LINES).map(|line| ordered(&format!("{line}.{n}"), &format!("line {line}")));
                take_in(&store, one_each.collect()).await;
            }
        };
        let work = async |owner: &str| {
            while left.load(Ordering::Relaxed) > 0 {
                let claimed = store.claim(&lease(owner, MINUTE), 30, 30).await.unwrap().claimed;
                let records: Vec<_> = claimed.iter().map(|one| record(one, Status::Delivered, None)).collect();
                left.fetch_sub(store.record(records).await.unwrap(), Ordering::Relaxed);
            }
        };
        let all = Box::pin(async { tokio::join!(take_in, work("a"), work("b"), work("c"), work("d")) });
        tokio::time::timeout(MINUTE / 2, all).await.expect("nothing waits for its minute to pass");
    })
    .await;
}

#[tokio::test]
async fn by_hand_a_delivery_is_retried_or_cancelled() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 2)]).await;
        let claimed = claim(&store, "w").await;
        assert!(!store.retry("acme", &claimed[0].id).await.unwrap(), "it is being attempted");
        store.record(vec![record(&claimed[0], Status::Failed, None)]).await.unwrap();
        assert!(!store.retry("other", &claimed[0].id).await.unwrap(), "not theirs");
        assert!(store.retry("acme", &claimed[0].id).await.unwrap());
        assert!(claim(&store, "w").await[0].is_manual);
        assert!(!store.cancel("acme", &claimed[1].id).await.unwrap(), "its call may be on the way");
        assert_eq!(store.record(vec![record(&claimed[1], Status::Retrying, Some(MINUTE))]).await.unwrap(), 1);
        assert!(store.cancel("acme", &claimed[1].id).await.unwrap());
        assert!(!store.cancel("acme", &claimed[1].id).await.unwrap(), "it has ended");
        assert_eq!(status_of(&store, &claimed[1].id).await, Status::Cancelled);
    })
    .await;
}

#[tokio::test]
async fn by_hand_means_one_attempt_only_for_what_has_ended() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let first = claim(&store, "w").await.remove(0);
        store.record(vec![record(&first, Status::Retrying, Some(MINUTE))]).await.unwrap();
        assert!(store.retry("acme", &first.id).await.unwrap());
        let second = claim(&store, "w").await.remove(0);
        assert!(!second.is_manual, "its schedule goes on");
        store.record(vec![record(&second, Status::Failed, None)]).await.unwrap();
        assert!(store.retry("acme", &first.id).await.unwrap());
        let third = claim(&store, "w").await.remove(0);
        assert!(third.is_manual);
        store.record(vec![record(&third, Status::Throttled, Some(Duration::ZERO))]).await.unwrap();
        let fourth = claim(&store, "w").await.remove(0);
        assert!(fourth.is_manual, "put off, and still asked for by hand");
        store.record(vec![record(&fourth, Status::Retrying, Some(Duration::ZERO))]).await.unwrap();
        assert!(!claim(&store, "w").await[0].is_manual, "spent");
    })
    .await;
}

#[tokio::test]
async fn what_stands_behind_another_is_not_due() {
    each_store(async |store| {
        assert_eq!(store.next_due().await.unwrap(), None);
        take_in(&store, vec![ordered("a1", "a"), ordered("a2", "a")]).await;
        let head = claim(&store, "w").await.remove(0);
        store.record(vec![record(&head, Status::Retrying, Some(MINUTE))]).await.unwrap();
        let due = store.next_due().await.unwrap().unwrap();
        assert!(due > MINUTE / 2, "the poller would spin: {due:?}");
        assert!(store.lag().await.unwrap() < MINUTE / 2);
    })
    .await;
}

#[tokio::test]
async fn a_renewed_lease_is_nobody_elses_and_one_taken_over_stays_so() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let first = store.claim(&lease("one", Duration::ZERO), 10, 10).await.unwrap().claimed.remove(0);
        store.renew("one", vec![(first.id.clone(), first.fence)], MINUTE).await.unwrap();
        assert_eq!(claim(&store, "two").await.len(), 0);
        store.renew("one", vec![(first.id.clone(), first.fence)], Duration::ZERO).await.unwrap();
        let second = store.claim(&lease("two", Duration::ZERO), 10, 10).await.unwrap().claimed.remove(0);
        store.renew("one", vec![(first.id.clone(), first.fence)], MINUTE).await.unwrap();
        let third = claim(&store, "three").await.remove(0);
        assert_eq!(third.fence, second.fence + 1, "the zombie renewed nothing");
    })
    .await;
}

#[tokio::test]
async fn deliveries_are_listed_newest_first_by_any_condition() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 2), event("b", 1)]).await;
        let claimed = claim(&store, "w").await;
        let of_b = claimed.iter().find(|claimed| claimed.event_id == "b").unwrap();
        store.record(vec![record(of_b, Status::Delivered, None)]).await.unwrap();
        let list = async |filter: DeliveryFilter| store.deliveries("acme", &filter, None, 10).await.unwrap().len();
        assert_eq!(list(DeliveryFilter::default()).await, 3);
        assert_eq!(list(DeliveryFilter { status: Some(Status::Delivered), ..Default::default() }).await, 1);
        assert_eq!(list(DeliveryFilter { subscription: Some("sub_2".to_owned()), ..Default::default() }).await, 0);
        assert_eq!(
            list(DeliveryFilter { event_type: Some("order.created".to_owned()), ..Default::default() }).await,
            3
        );
        let now = time::OffsetDateTime::now_utc();
        assert_eq!(
            list(DeliveryFilter { since: Some(now - MINUTE), until: Some(now + MINUTE), ..Default::default() }).await,
            3
        );
        assert_eq!(list(DeliveryFilter { since: Some(now + MINUTE), ..Default::default() }).await, 0);
        assert_eq!(store.event("acme", "a").await.unwrap().unwrap().status, "processing");
        assert_eq!(store.events("acme", &EventFilter::default(), Some("b"), 10).await.unwrap().len(), 1);
        assert!(store.event("other", "a").await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn what_is_older_than_retention_goes_once_it_has_ended() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1), event("b", 1)]).await;
        let claimed = claim(&store, "w").await;
        store.record(vec![record(&claimed[0], Status::Delivered, None)]).await.unwrap();
        store.forget(Duration::from_secs(86_400)).await.unwrap();
        assert_eq!(store.events("acme", &EventFilter::default(), None, 10).await.unwrap().len(), 2, "not old yet");
    })
    .await;
}

async fn subscribed(store: &Store, id: &str) {
    let settings = serde_json::from_value(serde_json::json!({
        "url": "http://127.0.0.1/", "event_types": ["**"], "rate_limit": 1, "max_concurrency": 1,
        "timeout": "15s", "retry_schedule": [], "ordering": "none",
    }));
    let secret = |id: &str| SealedSecret { id: id.to_owned(), sealed: vec![1], expires_at: None };
    let secrets = vec![secret("sec_1"), secret("headers"), secret("tls")];
    store.create_subscription("dev", "acme", id, &settings.unwrap(), true, secrets).await.unwrap().unwrap();
}

#[tokio::test]
async fn in_postgres_a_day_goes_as_a_whole_but_for_what_waits_for_its_time() {
    let (folder, postgres) = (tempfile::tempdir().unwrap(), need!(testkit::postgres()));
    let store = open(&postgres.url(), folder.path()).await;
    subscribed(&store, "sub_1").await;
    let tomorrow = OffsetDateTime::now_utc() + 1440 * MINUTE;
    let yesterday_ms = u64::try_from((tomorrow - 2880 * MINUTE).unix_timestamp()).unwrap() * 1000;
    let old = |number: u64, deliver_at| {
        let at_ms = yesterday_ms + number;
        let mut event = event(&number.to_string(), 1);
        event.deliveries[0].id = id::first_at("dlv", at_ms);
        NewEvent { uid: id::first_at("evt", at_ms), deliver_at, ..event }
    };
    let count = async || store.events("acme", &EventFilter::default(), None, 10).await.unwrap().len();
    // Its delivery was made today, by a replay.
    let mut replayed = old(3, Some(tomorrow));
    replayed.deliveries[0].id = id::new("dlv");
    take_in(&store, vec![old(1, None), old(2, Some(tomorrow)), replayed, event("today", 1)]).await;
    let claimed = claim(&store, "w").await;
    let ended = claimed.iter().map(|delivery| record(delivery, Status::Delivered, None)).collect::<Vec<_>>();
    assert_eq!(store.record(ended).await.unwrap(), 2);
    for _ in 0..2 {
        store.forget(Duration::ZERO).await.unwrap();
        assert_eq!(count().await, 3, "today's, and those that wait");
        for waiting in ["2", "3"] {
            assert_eq!(store.event("acme", waiting).await.unwrap().unwrap().status, "pending");
        }
    }
    store.switch_subscription("dev", "acme", "sub_1", false).await.unwrap().unwrap();
    store.forget(Duration::ZERO).await.unwrap();
    assert_eq!(count().await, 1, "a paused subscription keeps nothing for longer");
}

#[test]
fn of_retention_a_part_of_a_day_keeps_all_of_it() {
    let today = time::Date::from_calendar_date(2026, time::Month::March, 3).unwrap();
    for (hours, day) in [(0, 3), (24, 2), (25, 1), (47, 1), (48, 1)] {
        assert_eq!(upkeep::keep_from(today, Duration::from_secs(hours * 3600)).day(), day, "{hours} h");
    }
}

/// Where replicas may not change the schema, days are made by another role, and one that nobody made is waited for.
#[tokio::test]
async fn in_postgres_a_role_for_rows_alone_works_while_today_has_its_tables() {
    let (folder, server) = (tempfile::tempdir().unwrap(), need!(testkit::postgres()));
    let owner = open(&server.url(), folder.path()).await;
    let file = File { url: Secret::new(server.url_for_rows_alone()), pool_size: 4, ca_file: String::new() };
    let store = Store::new(Database::connect(&Config::new(&file, folder.path()).unwrap()).await.unwrap());
    store.prepare_days().await.unwrap();
    assert!(store.forget(Duration::ZERO).await.unwrap_err().is_forbidden(), "yesterday is its owner's to drop");
    let drop_day = |days: i64| {
        let date = (OffsetDateTime::now_utc() + time::Duration::days(days)).date().to_string().replace('-', "");
        server.sql(&format!("DROP TABLE events_{date}"));
    };
    drop_day(2);
    let lacks = async || match store.prepare_days().await {
        Err(crate::error::Error::NoDay { has_today, .. }) => has_today,
        other => panic!("{other:?}"),
    };
    assert!(lacks().await);
    take_in(&store, vec![event("a", 1)]).await;
    drop_day(0);
    assert!(!lacks().await);
    let refused = store.take_in(vec![event("b", 1)], &lease("w", MINUTE)).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    owner.prepare_days().await.unwrap();
    take_in(&store, vec![event("b", 1)]).await;
}

/// A drop that waits for its lock holds up all who come after it.
#[tokio::test]
async fn in_postgres_a_day_that_someone_reads_stays_for_the_next_round() {
    let (folder, server) = (tempfile::tempdir().unwrap(), need!(testkit::postgres()));
    let store = open(&server.url(), folder.path()).await;
    let Database::Postgres(postgres) = &store.database else { panic!("it is PostgreSQL") };
    let mut client = postgres.client().await.unwrap();
    let reader = client.transaction().await.unwrap();
    reader.execute("SELECT 1 FROM deliveries LIMIT 1", &[]).await.unwrap();
    let given_up = tokio::time::timeout(MINUTE / 4, store.forget(Duration::ZERO)).await.expect("it does not wait");
    assert!(given_up.is_err(), "{given_up:?}");
    reader.rollback().await.unwrap();
    assert!(store.forget(Duration::ZERO).await.unwrap() > 0);
}

#[tokio::test]
async fn in_sqlite_what_waits_for_nobody_ends_with_retention_and_what_waits_for_a_time_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    subscribed(&store, "sub_1").await;
    take_in(&store, vec![event("waits", 1)]).await;
    let count = async || store.events("acme", &EventFilter::default(), None, 10).await.unwrap().len();
    let long_ago = "UPDATE events SET created_at = created_at - 100000";
    let Database::Sqlite(sqlite) = &store.database else { panic!("it is SQLite") };
    sqlite.write(move |connection| connection.execute(long_ago, [])).await.unwrap();
    store.forget(Duration::ZERO).await.unwrap();
    assert_eq!(count().await, 1, "it is on its way");
    store.switch_subscription("dev", "acme", "sub_1", false).await.unwrap().unwrap();
    store.forget(MINUTE).await.unwrap();
    assert_eq!(count().await, 1, "a short pause costs nothing");
    store.forget(Duration::ZERO).await.unwrap();
    assert_eq!(count().await, 0, "a paused subscription keeps nothing for longer");
}

fn raised(id: &str) -> NewEvent {
    NewEvent { event_type: "delivery.failed".to_owned(), source: Some("tidegate".to_owned()), ..event(id, 1) }
}

#[tokio::test]
async fn an_outcome_and_the_event_that_tells_of_it_are_written_together_or_not_at_all() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1), event("b", 1)]).await;
        let zombie = store.claim(&lease("zombie", Duration::ZERO), 10, 10).await.unwrap().claimed;
        let heirs = claim(&store, "heir").await;
        let with = |delivery: &Claimed, id: &str| Record {
            raises: Some(Box::new(raised(id))),
            ..record(delivery, Status::Failed, None)
        };
        assert_eq!(store.record(vec![with(&zombie[0], "too late")]).await.unwrap(), 0);
        assert_eq!(claim(&store, "w").await.len(), 0, "it told nothing");
        let records =
            vec![with(&heirs[0], "told"), with(&zombie[1], "untold"), record(&heirs[1], Status::Failed, None)];
        assert_eq!(store.record(records).await.unwrap(), 2);
        let told = claim(&store, "w").await;
        assert_eq!((told.len(), told[0].event_id.as_str(), told[0].is_operational), (1, "told", true));
        assert!(!heirs[0].is_operational);
        assert!(store.event("acme", "untold").await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_change_of_standing_is_told_once_by_whoever_makes_it() {
    each_store(async |store| {
        subscribed(&store, "sub_1").await;
        let version = store.subscription_version().await.unwrap();
        let mark = async |is_open: bool, id: &str| {
            store.mark_circuit("acme", "sub_1", is_open, Some(raised(id))).await.unwrap()
        };
        let both = tokio::join!(mark(true, "opened by one"), mark(true, "opened by another"));
        assert!(both.0 ^ both.1, "{both:?}");
        assert!(store.subscription("acme", "sub_1").await.unwrap().unwrap().circuit_opened_at.is_some());
        assert!(mark(false, "closed").await);
        assert!(!mark(false, "closed again").await);
        let disable = async |id: &str| {
            store.disable_subscription("acme", "sub_1", "gone", Disable::AtOnce, Some(raised(id))).await.unwrap()
        };
        assert!(disable("disabled").await);
        assert!(!disable("disabled again").await);
        assert!(!store.mark_circuit("acme", "nobody", true, Some(raised("nobody"))).await.unwrap());
        let told: Vec<String> = claim(&store, "w").await.into_iter().map(|one| one.event_id).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(store.subscription_version().await.unwrap() > version, "the other replicas will read it");
    })
    .await;
}

#[tokio::test]
async fn what_is_parked_is_resumed_once_in_batches_and_found_where_its_subscription_is_on() {
    each_store(async |store| {
        let put_off = |delivery: &Claimed, error: Option<&str>| Record {
            last_error: error.map(str::to_owned),
            ..record(delivery, Status::Throttled, Some(MINUTE))
        };
        subscribed(&store, "sub_1").await;
        take_in(&store, vec![event("parked", 2500), event("limited", 1)]).await;
        let mut all = Vec::new();
        while all.len() < 2501 {
            all.extend(store.claim(&lease("w", MINUTE), 3000, 3000).await.unwrap().claimed);
        }
        let reason = |one: &Claimed| if one.event_id == "parked" { PARKED } else { "put off by the rate limit" };
        let records: Vec<_> = all.iter().map(|one| put_off(one, Some(reason(one)))).collect();
        store.record(records).await.unwrap();
        assert_eq!(store.parked_though_on().await.unwrap(), [("acme".into(), "sub_1".into())]);
        store.switch_subscription("dev", "acme", "sub_1", false).await.unwrap();
        assert_eq!(store.parked_though_on().await.unwrap(), [], "it waits on purpose");
        store.switch_subscription("dev", "acme", "sub_1", true).await.unwrap();
        let (mut after, mut batches) = (String::new(), 0);
        while let Some(last) = store.resume("acme", "sub_1", &after).await.unwrap() {
            assert!(last > after);
            (after, batches) = (last, batches + 1);
        }
        assert_eq!(batches, 3);
        assert_eq!(store.resume("acme", "sub_1", "").await.unwrap(), None, "it is parked no more");
        assert_eq!(store.parked_though_on().await.unwrap(), []);
        let due = store.claim(&lease("w", MINUTE), 3000, 3000).await.unwrap().claimed;
        assert_eq!((due.len(), due.iter().all(|one| one.event_id == "parked")), (2500, true));
        let resumed = store.delivery("acme", &due[0].id).await.unwrap().unwrap();
        assert_eq!(resumed.last_error.as_deref(), Some("put off while the subscription was switched off"));

        // One that came to its turn by itself, and was put off for another reason.
        store.record(vec![put_off(&due[0], Some(PARKED))]).await.unwrap();
        assert!(store.retry("acme", &due[0].id).await.unwrap());
        let again = claim(&store, "w").await.remove(0);
        store.record(vec![put_off(&again, None)]).await.unwrap();
        assert_eq!(store.parked_though_on().await.unwrap(), []);
    })
    .await;
}

/// Cancelling in the same commit took longer than the deadline where hundreds of thousands waited, and held every other change.
#[tokio::test]
async fn a_subscription_is_deleted_at_once_and_what_waits_for_it_is_cancelled_in_batches() {
    each_store(async |store| {
        subscribed(&store, "sub_1").await;
        let mut other = event("other", 1);
        other.deliveries[0].subscription = "sub_2".into();
        take_in(&store, vec![event("done", 1)]).await;
        let done = claim(&store, "w").await.remove(0);
        store.record(vec![record(&done, Status::Delivered, None)]).await.unwrap();
        take_in(&store, vec![event("called", 1)]).await;
        let called = claim(&store, "w").await.remove(0);
        take_in(&store, vec![event("many", 2500), other]).await;
        assert!(store.delete_subscription("dev", "acme", "sub_1").await.unwrap());
        assert_eq!(store.event("acme", "many").await.unwrap().unwrap().status, "pending", "not in the same commit");
        store.cancel_all_of("acme", "sub_1").await.unwrap();
        assert_eq!(store.record(vec![record(&called, Status::Delivered, None)]).await.unwrap(), 1, "it was under way");
        let left: Vec<_> = claim(&store, "w").await.into_iter().map(|one| one.event_id).collect();
        assert_eq!(left, ["other"]);
        assert_eq!(store.event("acme", "many").await.unwrap().unwrap().status, "cancelled");
        assert_eq!(status_of(&store, &done.id).await, Status::Delivered);
        assert!(!store.delete_subscription("dev", "acme", "sub_1").await.unwrap());
    })
    .await;
}

/// A failover that lost the last changes gives their versions out again, and running replicas never heard of what bears them.
#[tokio::test]
async fn in_postgres_who_knows_more_than_the_database_reads_all_subscriptions_anew() {
    let (folder, server) = (tempfile::tempdir().unwrap(), need!(testkit::postgres()));
    let store = open(&server.url(), folder.path()).await;
    subscribed(&store, "sub_1").await;
    subscribed(&store, "sub_2").await;
    let catalog = Catalog::new(store.clone(), Vault::new(&Secret::new("00".repeat(32))).unwrap(), Reachable::default());
    catalog.refresh().await.unwrap();
    assert_eq!(catalog.all("acme").len(), 2);
    let newest = store.changed_subscriptions(0).await.unwrap().last().unwrap().version;
    assert_eq!(store.changed_subscriptions(newest).await.unwrap().len(), 0);
    server.sql(LOSE_SUB_2);
    assert_eq!(store.changed_subscriptions(newest).await.unwrap().len(), 1);
    catalog.refresh().await.unwrap();
    assert_eq!(catalog.all("acme").len(), 1, "nothing goes to one that was lost");
}

/// As a failover loses it, where that was the last change.
const LOSE_SUB_2: &str = "UPDATE subscription_version SET version = version - 1; DELETE FROM subscription_secrets WHERE \
    subscription_id = 'sub_2'; DELETE FROM subscriptions WHERE id = 'sub_2'";

/// As many changes after the failover as it had lost, and a replica that looked only then heard of neither.
#[tokio::test]
async fn in_postgres_all_subscriptions_are_read_anew_from_another_server() {
    let (folder, server) = (tempfile::tempdir().unwrap(), need!(testkit::postgres::Server::start()));
    let store = open(&server.url(), folder.path()).await;
    subscribed(&store, "sub_1").await;
    subscribed(&store, "sub_2").await;
    let catalog = Catalog::new(store.clone(), Vault::new(&Secret::new("00".repeat(32))).unwrap(), Reachable::default());
    catalog.refresh().await.unwrap();
    server.sql(LOSE_SUB_2);
    server.restart();
    eventually(MINUTE, "an answer", async || store.ping().await.is_ok()).await;
    subscribed(&store, "sub_3").await;
    let unheard_of = store.changed_subscriptions(catalog.version()).await.unwrap();
    assert_eq!(unheard_of.len(), 0, "its version was used before");
    catalog.refresh().await.unwrap();
    let known = ["sub_1", "sub_2", "sub_3"].map(|id| catalog.endpoint("acme", id).is_some());
    assert_eq!(known, [true, false, true]);
}

/// One such row made the list of all of its tenant's subscriptions an error.
#[tokio::test]
async fn a_subscription_that_another_version_wrote_is_listed_and_can_be_switched_and_deleted() {
    each_store(async |store| {
        subscribed(&store, "sub_1").await;
        subscribed(&store, "sub_2").await;
        let foreign = r#"{"ordering":"strict"}"#;
        execute(&store, format!("UPDATE subscriptions SET settings = '{foreign}' WHERE id = 'sub_1'")).await;
        let listed = store.subscriptions("acme", None, 10).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["sub_2", "sub_1"]);
        assert!(matches!(listed[0].settings, Shown::Known(_)));
        assert_eq!(listed[1].settings, Shown::foreign(foreign));
        let unreadable = store.readable_subscription("acme", "sub_1").await.unwrap_err();
        assert!(matches!(unreadable, Error::Unreadable(..)), "{unreadable:?}");
        assert!(store.readable_subscription("acme", "sub_2").await.unwrap().is_some());
        let paused = store.switch_subscription("dev", "acme", "sub_1", false).await.unwrap().unwrap();
        assert_eq!((paused.enabled, paused.settings), (false, Shown::foreign(foreign)));
        assert!(store.delete_subscription("dev", "acme", "sub_1").await.unwrap());
        assert!(store.subscription("acme", "sub_1").await.unwrap().is_none());
    })
    .await;
}

/// They may hold the receiver's credentials.
#[tokio::test]
async fn with_a_subscription_its_secrets_go_and_after_retention_so_does_its_row() {
    each_store(async |store| {
        subscribed(&store, "sub_1").await;
        subscribed(&store, "sub_2").await;
        let secrets = async |id: &str| store.secrets("acme", &[id]).await.unwrap().len();
        assert_eq!((secrets("sub_1").await, secrets("sub_2").await), (3, 3));
        assert!(store.delete_subscription("dev", "acme", "sub_1").await.unwrap());
        assert_eq!((secrets("sub_1").await, secrets("sub_2").await), (0, 3));
        let rows = async || store.changed_subscriptions(0).await.unwrap().len();
        store.forget(1440 * MINUTE).await.unwrap();
        assert_eq!(rows().await, 2, "replicas must hear of it");
        store.forget(Duration::ZERO).await.unwrap();
        assert_eq!(rows().await, 1);
    })
    .await;
}

/// What a delivery waited for, or failed with once, was still shown of it after it had arrived.
#[tokio::test]
async fn a_delivered_delivery_has_no_error() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        let first = claim(&store, "w").await.remove(0);
        store.record(vec![record(&first, Status::Retrying, Some(MINUTE))]).await.unwrap();
        let id = first.id;
        assert!(store.cancel("acme", &id).await.unwrap());
        assert!(store.retry("acme", &id).await.unwrap());
        let again = claim(&store, "w").await.remove(0);
        let retried = Record { last_error: None, ..record(&again, Status::Retrying, Some(Duration::ZERO)) };
        store.record(vec![retried]).await.unwrap();
        let error = async || store.delivery("acme", &id).await.unwrap().unwrap().last_error;
        assert_eq!(error().await.as_deref(), Some("cancelled by hand"));
        let last = claim(&store, "w").await.remove(0);
        store.record(vec![Record { last_error: None, ..record(&last, Status::Delivered, None) }]).await.unwrap();
        assert_eq!(error().await, None);
    })
    .await;
}

/// Sets columns of the rows with this event by hand, as a broken tool would.
async fn by_hand(store: &Store, event: &str, set: &str) {
    let sql = format!("UPDATE deliveries SET {set} WHERE event_uid = (SELECT uid FROM events WHERE id = '{event}')");
    execute(store, sql).await;
}

async fn execute(store: &Store, sql: String) {
    match &store.database {
        Database::Sqlite(sqlite) => drop(sqlite.write(move |connection| connection.execute(&sql, [])).await.unwrap()),
        Database::Postgres(postgres) => postgres.client().await.unwrap().batch_execute(&sql).await.unwrap(),
    }
}

#[tokio::test]
async fn what_nobody_would_ever_take_is_rescued_and_what_is_held_is_not() {
    each_store(async |store| {
        let is_sqlite = matches!(store.database, Database::Sqlite(_));
        let years = if is_sqlite { "due_at = due_at + 315360000000" } else { "due_at = now() + interval '10 years'" };
        take_in(&store, ["null", "years", "held", "lost", "done"].map(|id| event(id, 1)).into()).await;
        let claimed = claim(&store, "w").await;
        let done = claimed.iter().find(|one| one.event_id == "done").unwrap();
        store.record(vec![record(done, Status::Delivered, None)]).await.unwrap();
        store.land().await;
        by_hand(&store, "null", "due_at = NULL").await;
        by_hand(&store, "years", years).await;
        by_hand(&store, "lost", "due_at = NULL, status = 'retrying', lease_owner = NULL, attempts = 1").await;
        let longest = Duration::from_secs(86_400);
        assert_eq!(store.rescue(longest).await.unwrap(), 3);
        assert_eq!(store.rescue(longest).await.unwrap(), 0);
        let mut again: Vec<String> = claim(&store, "x").await.into_iter().map(|one| one.event_id).collect();
        again.sort();
        assert_eq!(again, ["lost", "null", "years"]);
        let late = claimed.iter().find(|one| one.event_id == "years").unwrap();
        assert_eq!(store.record(vec![record(late, Status::Failed, None)]).await.unwrap(), 0, "it is another's now");
    })
    .await;
}

/// What had been attempted once was no lag as long as limits went on putting it off, for days, nor was a replay.
#[tokio::test]
async fn what_is_put_off_again_and_again_has_waited_since_its_attempt_was_first_due() {
    each_store(async |store| {
        let is_sqlite = matches!(store.database, Database::Sqlite(_));
        let earlier = async |column: &str, minutes: i64| {
            let time = if is_sqlite { (minutes * 60_000).to_string() } else { format!("interval '{minutes} minutes'") };
            by_hand(&store, "a", &format!("{column} = {column} - {time}")).await;
        };
        let minutes = async || store.lag().await.unwrap().as_secs() / 60;
        let put_off = async |due_in: Duration| {
            let claimed = claim(&store, "w").await.remove(0);
            let held = minutes().await;
            store.record(vec![record(&claimed, Status::Throttled, Some(due_in))]).await.unwrap();
            held
        };
        let fail = async |status: Status, due_in: Option<Duration>| {
            let claimed = claim(&store, "w").await.remove(0);
            store.record(vec![record(&claimed, status, due_in)]).await.unwrap();
            claimed.id
        };
        subscribed(&store, "sub_1").await;
        take_in(&store, vec![event("a", 1)]).await;
        fail(Status::Retrying, Some(Duration::ZERO)).await;
        earlier("created_at", 90).await;
        earlier("due_at", 10).await;
        for _ in 0..3 {
            assert_eq!(put_off(Duration::ZERO).await, 10, "it waits in a lane");
        }
        assert_eq!(put_off(MINUTE).await, 10);
        assert_eq!(minutes().await, 10, "it is not due, and it waits");
        earlier("due_at", 2).await;
        let delivery = fail(Status::Retrying, Some(MINUTE)).await;
        assert_eq!(minutes().await, 0, "it was attempted");
        earlier("due_at", 2).await;
        assert_eq!(put_off(MINUTE).await, 1, "its next attempt was due a minute ago");

        earlier("due_at", 2).await;
        fail(Status::Failed, None).await;
        assert_eq!(minutes().await, 0, "it has ended");
        assert!(store.retry("acme", &delivery).await.unwrap());
        earlier("due_at", 5).await;
        put_off(MINUTE).await;
        assert_eq!(minutes().await, 5, "it waits since it was asked for again");
        store.switch_subscription("dev", "acme", "sub_1", false).await.unwrap();
        assert_eq!(minutes().await, 0, "it waits on purpose");
    })
    .await;
}

#[tokio::test]
async fn with_a_tenant_its_subscriptions_end_and_none_is_made_after() {
    each_store(async |store| {
        for id in ["sub_1", "sub_2", "sub_3"] {
            subscribed(&store, id).await;
        }
        let before = store.subscription_version().await.unwrap();
        let tenants = tenancy::Store::new(store.database.clone());
        assert!(tenants.delete_tenant("dev", "acme", crate::end_tenant("acme")).await.unwrap());
        let changed = store.changed_subscriptions(before).await.unwrap();
        assert!(changed.iter().all(|one| one.is_deleted && !one.row.as_ref().unwrap().enabled));
        // A page of changes ends between two versions, so no two may share one.
        let versions: Vec<i64> = changed.iter().map(|one| one.version).collect();
        assert_eq!(versions, [before + 1, before + 2, before + 3]);
        let settings = changed[0].row.as_ref().unwrap().settings.clone();
        let secret = |id: &str| SealedSecret { id: id.to_owned(), sealed: vec![1], expires_at: None };
        let secrets = vec![secret("sec_1"), secret("headers"), secret("tls")];
        let late = store.create_subscription("dev", "acme", "late", &settings, true, secrets).await.unwrap();
        assert!(late.is_none());
        assert_eq!(store.subscriptions("acme", None, 10).await.unwrap().len(), 0);
    })
    .await;
}
