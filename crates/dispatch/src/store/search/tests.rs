//! Lists, on both databases: every row exactly once however they are paged, and along the index that was made for it.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    job::Kind,
    store::{
        NewEvent,
        sweep::{Changes, Creation, Held},
        tests::{MINUTE, claim, each_store, event, lease, record, take_in},
    },
};

/// Sixty deliveries of thirty events of three types, in several statuses.
async fn filled(store: &Store) {
    let events = (0..30).map(|n| NewEvent { event_type: format!("type.t{}", n % 3), ..event(&format!("e{n:02}"), 2) });
    take_in(store, events.collect()).await;
    for (n, one) in claim(store, "w").await.iter().enumerate() {
        let status = [Status::Delivered, Status::Failed, Status::Retrying, Status::Processing][n % 4];
        if status != Status::Processing {
            let due_in = (status == Status::Retrying).then_some(MINUTE);
            store.record(vec![record(one, status, due_in)]).await.unwrap();
        }
    }
}

/// Every id of a list that is read three at a time.
async fn paged(store: &Store, filter: &DeliveryFilter) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let page = store.deliveries("acme", filter, all.last().map(String::as_str), 3).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page.into_iter().map(|delivery| delivery.id));
    }
}

#[tokio::test]
async fn however_a_list_is_asked_for_its_pages_hold_every_delivery_once() {
    each_store(async |store| {
        filled(&store).await;
        let now = OffsetDateTime::now_utc();
        let event_uid = store.uid_of_event("acme", "e07").await.unwrap();
        let filter = DeliveryFilter::default;
        for (filter, along, count) in [
            (filter(), Along::Tenant, 60),
            (DeliveryFilter { status: Some(Status::Delivered), ..filter() }, Along::Tenant, 15),
            (DeliveryFilter { status: Some(Status::Failed), ..filter() }, Along::Status, 15),
            (DeliveryFilter { status: Some(Status::Processing), ..filter() }, Along::Waiting, 15),
            (DeliveryFilter { subscription: Some("sub_1".into()), ..filter() }, Along::Subscription, 60),
            (DeliveryFilter { event_uid, ..filter() }, Along::Event, 2),
            (DeliveryFilter { event_type: Some("type.t1".into()), ..filter() }, Along::Type, 20),
            (DeliveryFilter { since: Some(now - MINUTE), until: Some(now + MINUTE), ..filter() }, Along::Tenant, 60),
            (DeliveryFilter { until: Some(now - MINUTE), ..filter() }, Along::Tenant, 0),
        ] {
            assert_eq!(filter.along(), along);
            let all = paged(&store, &filter).await;
            assert_eq!(all.len(), count, "{filter:?}");
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), count, "{filter:?}");
            if along != Along::Type {
                assert!(all.is_sorted_by(|a, b| a > b), "newest first: {filter:?}");
            }
        }
        assert_eq!(store.deliveries("other", &filter(), None, 10).await.unwrap().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn attempts_are_found_by_what_their_deliveries_have_in_common() {
    each_store(async |store| {
        filled(&store).await;
        let filter = DeliveryFilter { status: Some(Status::Failed), ..DeliveryFilter::default() };
        let failed = store.deliveries("acme", &filter, None, 100).await.unwrap();
        let found = store.attempts_of("acme", &failed, None).await.unwrap();
        assert_eq!(found.len(), 15);
        assert!(found.iter().zip(&failed).all(|(attempt, delivery)| attempt.delivery_id == delivery.id));
        assert_eq!(store.attempts_of("acme", &failed, Some("success")).await.unwrap().len(), 15);
        assert_eq!(store.attempts_of("acme", &failed, Some("timeout")).await.unwrap().len(), 0);
        assert_eq!(store.attempts_of("other", &failed, None).await.unwrap().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn events_are_listed_by_type_and_time() {
    each_store(async |store| {
        filled(&store).await;
        let now = OffsetDateTime::now_utc();
        let of_type = EventFilter { event_type: Some("type.t2".into()), ..EventFilter::default() };
        let page = store.events("acme", &of_type, None, 4).await.unwrap();
        assert_eq!(page[0].id, "e29");
        let rest = store.events("acme", &of_type, Some(&page[3].id), 100).await.unwrap();
        assert_eq!((rest.len(), rest[0].id.as_str()), (6, "e17"));
        let late = EventFilter { since: Some(now + MINUTE), ..EventFilter::default() };
        assert_eq!(store.events("acme", &late, None, 10).await.unwrap().len(), 0);
        let early = EventFilter { until: Some(now + MINUTE), ..EventFilter::default() };
        assert_eq!(store.events("acme", &early, None, 100).await.unwrap().len(), 30);
    })
    .await;
}

/// Pages are in memory until callers have them.
#[tokio::test]
async fn a_page_of_large_events_ends_early_and_the_next_goes_on() {
    each_store(async |store| {
        let data = bytes::Bytes::from(format!("{:?}", "x".repeat(1 << 20)));
        take_in(&store, (0..25).map(|n| NewEvent { data: data.clone(), ..event(&format!("e{n}"), 1) }).collect()).await;
        let page = async |after: Option<&str>| store.events("acme", &EventFilter::default(), after, 100).await.unwrap();
        let first = page(None).await;
        assert_eq!(first.len(), 10, "the first look brought more than 8 MiB");
        let second = page(Some(&first[9].uid)).await;
        let third = page(Some(&second[9].uid)).await;
        let all: BTreeSet<_> = [first, second, third].into_iter().flatten().map(|event| event.id).collect();
        assert_eq!(all.len(), 25);
    })
    .await;
}

/// A replay of what was missing makes deliveries of events that are days old. Lists by type and time looked at events of that time only.
#[tokio::test]
async fn deliveries_that_were_made_late_are_listed_by_type_and_time() {
    each_store(async |store| {
        let hours_ago = |hours| OffsetDateTime::now_utc() - time::Duration::hours(hours);
        let old = NewEvent { uid: first_id("evt", hours_ago(2)), ..event("old", 0) };
        take_in(&store, vec![old.clone()]).await;
        let selection = Selection { missing: true, since: Some(hours_ago(3)), ..Selection::default() };
        let selection = selection.check(Kind::Replay, Some(Vec::new()), None).unwrap();
        store.create_job("dev", "acme", Kind::Replay, &selection).await.unwrap().unwrap();
        let job = store.claim_job(&lease("runner", MINUTE)).await.unwrap().unwrap();
        let held = Held { id: job.id, fence: job.fence, lease: MINUTE };
        let late = Creation {
            id: id::new("dlv"),
            event_uid: old.uid,
            subscription: "sub_1".into(),
            ordering_key: None,
            delay: Duration::ZERO,
        };
        let changes = Changes { create: vec![late.clone()], ..Changes::default() };
        store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap();
        let filter = DeliveryFilter {
            event_type: Some("order.created".into()),
            since: Some(OffsetDateTime::now_utc() - MINUTE),
            ..DeliveryFilter::default()
        };
        assert_eq!(paged(&store, &filter).await, [late.id]);
        let before = DeliveryFilter { since: Some(OffsetDateTime::now_utc() + MINUTE), ..filter };
        assert_eq!(paged(&store, &before).await.len(), 0);
    })
    .await;
}
