//! The contract of jobs' batches, on both databases: fences, cursors, and that nothing still due is ever deleted.

use platform::id;

use super::*;
use crate::{
    job::{Counts, Kind, Selection, State},
    store::{
        NewEvent,
        jobs::JobRow,
        search::DeliveryFilter,
        tests::{MINUTE, claim, each_store, event, lease, ordered, record, status_of, take_in},
    },
};

async fn job(store: &Store, kind: Kind) -> (JobRow, Held) {
    let selection = Selection::default().check(kind, None, Some(false)).unwrap();
    store.create_job("dev", "acme", kind, &selection).await.unwrap().unwrap();
    claimed(store).await
}

async fn claimed(store: &Store) -> (JobRow, Held) {
    let job = store.claim_job(&lease("runner", MINUTE)).await.unwrap().unwrap();
    let held = Held { id: job.id.clone(), fence: job.fence, lease: MINUTE };
    (job, held)
}

/// Deliveries that have ended in these ways, as a job sees them.
async fn ended(store: &Store, statuses: &[Status]) -> Vec<Candidate> {
    take_in(store, statuses.iter().enumerate().map(|(n, _)| event(&format!("e{n}"), 1)).collect()).await;
    let mut all = claim(store, "w").await;
    all.sort_by(|a, b| a.event_id.cmp(&b.event_id));
    for (one, status) in all.iter().zip(statuses) {
        if *status != Status::Processing {
            let due_in = (!status.is_final()).then_some(MINUTE);
            store.record(vec![record(one, *status, due_in)]).await.unwrap();
        }
    }
    look(store, &Walk::Tenant).await
}

fn span(until: OffsetDateTime) -> Span<'static> {
    Span { tenant: "acme", cursor: None, since: None, until, limit: 100 }
}

async fn look(store: &Store, walk: &Walk) -> Vec<Candidate> {
    let now = OffsetDateTime::now_utc();
    store.look_at_deliveries(walk, &span(now), &[]).await.unwrap()
}

fn requeue(candidate: &Candidate, delay: Duration) -> Changes {
    let one = Requeue { id: candidate.id.clone(), fence: candidate.fence, delay };
    Changes { requeue: vec![one], ..Changes::default() }
}

#[tokio::test]
async fn every_walk_meets_what_it_should_and_nothing_of_others() {
    each_store(async |store| {
        let all = ended(&store, &[Status::Delivered, Status::Failed, Status::Retrying, Status::Failed]).await;
        assert_eq!(all.len(), 4);
        assert!(all.is_sorted_by_key(|one| one.id.clone()));
        assert_eq!(all[0].event_type.as_deref(), Some("order.created"));
        assert_eq!(look(&store, &Walk::Status(Status::Failed)).await.len(), 2);
        assert_eq!(look(&store, &Walk::Subscription("sub_1".to_owned())).await.len(), 4);
        assert_eq!(look(&store, &Walk::Subscription("sub_2".to_owned())).await.len(), 0);
        let now = OffsetDateTime::now_utc();
        let named = [all[1].id.clone(), "dlv_nobody".to_owned()];
        assert_eq!(store.look_at_deliveries(&Walk::Named, &span(now), &named).await.unwrap().len(), 1);
        let after = Span { cursor: Some(&all[1].id), ..span(now) };
        assert_eq!(store.look_at_deliveries(&Walk::Tenant, &after, &[]).await.unwrap().len(), 2);
        let theirs = Span { tenant: "other", ..span(now) };
        assert_eq!(store.look_at_deliveries(&Walk::Tenant, &theirs, &[]).await.unwrap().len(), 0);
        let long_ago = Span { until: now - time::Duration::days(2), ..span(now) };
        assert_eq!(store.look_at_deliveries(&Walk::Tenant, &long_ago, &[]).await.unwrap().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_replayed_delivery_starts_a_fresh_schedule_and_its_attempts_count_on() {
    each_store(async |store| {
        let failed = ended(&store, &[Status::Failed]).await.remove(0);
        let (_, held) = job(&store, Kind::Replay).await;
        let progress = Progress { cursor: Some(failed.id.clone()), ..Progress::default() };
        let done = store.commit_batch(&held, requeue(&failed, Duration::ZERO), progress, true).await.unwrap().unwrap();
        assert_eq!(done.counts, Counts { requeued: 1, ..Counts::default() });
        let again = claim(&store, "w").await.remove(0);
        assert_eq!((again.id.as_str(), again.attempts, again.is_manual), (failed.id.as_str(), 0, false));
        store.record(vec![record(&again, Status::Delivered, None)]).await.unwrap();
        assert_eq!(store.delivery("acme", &failed.id).await.unwrap().unwrap().attempts, 2);
        let row = store.job("acme", &held.id).await.unwrap().unwrap();
        assert_eq!((row.state, row.progress.counts.requeued), (State::Done, 1));
        assert!(row.finished_at.is_some() && row.started_at.is_some());
    })
    .await;
}

/// A replay of what was pending sent everything at once, also what was held back until next month.
#[tokio::test]
async fn what_waits_for_its_events_time_goes_on_waiting_when_it_is_replayed() {
    each_store(async |store| {
        let tomorrow = OffsetDateTime::now_utc() + time::Duration::days(1);
        take_in(&store, vec![NewEvent { deliver_at: Some(tomorrow), ..event("later", 1) }]).await;
        let later = look(&store, &Walk::Tenant).await.remove(0);
        let (_, held) = job(&store, Kind::Replay).await;
        let done = store.commit_batch(&held, requeue(&later, Duration::ZERO), Progress::default(), true).await;
        assert_eq!(done.unwrap().unwrap().counts.requeued, 1);
        assert_eq!(claim(&store, "w").await.len(), 0);
        assert!(store.next_due().await.unwrap().unwrap() > Duration::from_secs(23 * 3600));
    })
    .await;
}

#[tokio::test]
async fn a_line_moves_on_when_a_job_cancels_its_head() {
    each_store(async |store| {
        take_in(&store, vec![ordered("a1", "a"), ordered("a2", "a")]).await;
        let head = claim(&store, "w").await.remove(0);
        store.record(vec![record(&head, Status::Retrying, Some(MINUTE))]).await.unwrap();
        assert_eq!(claim(&store, "w").await.len(), 0, "the next one is put off");
        let (_, held) = job(&store, Kind::Cancel).await;
        let heads = look(&store, &Walk::Status(Status::Retrying)).await;
        let cancel = heads.into_iter().map(|one| (one.id, one.fence)).collect();
        let changes = Changes { cancel, ..Changes::default() };
        store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap();
        assert_eq!(claim(&store, "w").await[0].event_id, "a2");
    })
    .await;
}

#[tokio::test]
async fn what_changed_since_it_was_looked_at_is_skipped() {
    each_store(async |store| {
        let failed = ended(&store, &[Status::Failed]).await.remove(0);
        let (_, held) = job(&store, Kind::Replay).await;
        assert!(store.retry("acme", &failed.id).await.unwrap(), "somebody is faster");
        let progress = store.commit_batch(&held, requeue(&failed, MINUTE), Progress::default(), false).await.unwrap();
        assert_eq!(progress.unwrap().counts, Counts { skipped: 1, ..Counts::default() });
        assert!(claim(&store, "w").await[0].is_manual);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_was_cancelled_or_taken_over_changes_nothing_more() {
    each_store(async |store| {
        let failed = ended(&store, &[Status::Failed]).await.remove(0);
        let (_, held) = job(&store, Kind::Replay).await;
        assert!(store.cancel_job("other", &held.id).await.unwrap().is_none(), "not theirs");
        assert_eq!(store.cancel_job("acme", &held.id).await.unwrap().unwrap().state, State::Cancelled);
        assert!(store.cancel_job("acme", &held.id).await.unwrap().is_none(), "it has ended");
        let late = store.commit_batch(&held, requeue(&failed, Duration::ZERO), Progress::default(), true).await;
        assert_eq!(late.unwrap(), None);
        assert_eq!(status_of(&store, &failed.id).await, Status::Failed);

        let selection = Selection::default().check(Kind::Replay, None, None).unwrap();
        store.create_job("dev", "acme", Kind::Replay, &selection).await.unwrap().unwrap();
        let zombie = store.claim_job(&lease("zombie", Duration::ZERO)).await.unwrap().unwrap();
        let (heir, held) = claimed(&store).await;
        assert_eq!((heir.id.as_str(), heir.fence), (zombie.id.as_str(), zombie.fence + 1));
        let late = Held { fence: zombie.fence, ..held.clone() };
        let progress = Progress { walk: 7, ..Progress::default() };
        assert_eq!(store.commit_batch(&late, requeue(&failed, MINUTE), progress, true).await.unwrap(), None);
        assert_eq!(store.job("acme", &held.id).await.unwrap().unwrap().progress, Progress::default());
    })
    .await;
}

/// Who had made many was ahead of all who came later, until the last of them was done.
#[tokio::test]
async fn tenants_take_turns_however_many_jobs_each_has_made() {
    each_store(async |store| {
        let selection = Selection::default().check(Kind::Replay, None, None).unwrap();
        let make = async |tenant| store.create_job("dev", tenant, Kind::Replay, &selection).await.unwrap().unwrap().id;
        for _ in 0..3 {
            make("acme").await;
        }
        let (_, first) = claimed(&store).await;
        assert!(!store.do_others_wait("acme").await.unwrap(), "its own do not count");
        let theirs = make("other").await;
        assert!(store.do_others_wait("acme").await.unwrap());
        assert!(!store.do_others_wait("other").await.unwrap(), "one of acme's is being worked on");
        store.commit_batch(&first, Changes::default(), Progress::default(), true).await.unwrap().unwrap();
        let (job, second) = claimed(&store).await;
        assert_eq!(job.id, theirs);
        store.release_job(&second.id, second.fence).await.unwrap();
        assert_eq!(claimed(&store).await.0.tenant, "acme", "it has waited longer than what was just given back");
        assert_eq!(claimed(&store).await.0.id, theirs);
    })
    .await;
}

#[tokio::test]
async fn a_tenants_jobs_run_one_at_a_time_in_their_order() {
    each_store(async |store| {
        let selection = Selection::default().check(Kind::Replay, None, None).unwrap();
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(store.create_job("dev", "acme", Kind::Replay, &selection).await.unwrap().unwrap().id);
        }
        let theirs = store.create_job("dev", "other", Kind::Replay, &selection).await.unwrap().unwrap();
        let mut first = [claimed(&store).await.0.id, claimed(&store).await.0.id];
        first.sort();
        assert_eq!(first, [ids[0].clone(), theirs.id]);
        assert!(store.claim_job(&lease("runner", MINUTE)).await.unwrap().is_none());
        store.cancel_job("acme", &ids[0]).await.unwrap().unwrap();
        store.cancel_job("acme", &ids[1]).await.unwrap().unwrap();
        let (third, held) = claimed(&store).await;
        assert_eq!(third.id, ids[2]);
        store.release_job(&held.id, held.fence).await.unwrap();
        let (again, held) = claimed(&store).await;
        store.fail_job(&again.id, held.fence, "because").await.unwrap();
        let row = store.job("acme", &again.id).await.unwrap().unwrap();
        assert_eq!((row.state, row.error.as_deref()), (State::Failed, Some("because")));
        assert_eq!(store.jobs("acme", Some(Kind::Purge), None, 10).await.unwrap().len(), 0);
        let page = store.jobs("acme", None, Some(&ids[2]), 10).await.unwrap();
        assert_eq!(page.iter().map(|job| &job.id).collect::<Vec<_>>(), [&ids[1], &ids[0]], "newest first");
        store.forget_jobs(Duration::ZERO).await.unwrap();
        assert_eq!(store.jobs("other", None, None, 10).await.unwrap().len(), 1, "it has not ended");
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_a_hundred_jobs_at_most_that_have_not_ended() {
    each_store(async |store| {
        let selection = Selection::default().check(Kind::Replay, None, None).unwrap();
        for _ in 0..100 {
            assert!(store.create_job("dev", "acme", Kind::Replay, &selection).await.unwrap().is_some());
        }
        assert!(store.create_job("dev", "acme", Kind::Replay, &selection).await.unwrap().is_none());
        assert!(store.create_job("dev", "other", Kind::Replay, &selection).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_purge_never_takes_what_is_still_due() {
    each_store(async |store| {
        let all = ended(&store, &[Status::Delivered, Status::Retrying, Status::Processing]).await;
        take_in(&store, vec![event("unwanted", 0)]).await;
        let (_, held) = job(&store, Kind::Purge).await;
        let delete = all.iter().map(|one| (one.id.clone(), one.fence)).collect();
        let events = store.look_at_events(&span(OffsetDateTime::now_utc()), false).await.unwrap();
        assert_eq!((events.len(), events[0].receivers.len(), &events[0].data), (4, 1, &None));
        let bare_events = events.iter().map(|event| event.uid.clone()).collect();
        let changes = Changes { delete, bare_events, ..Changes::default() };
        let counts = store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap().counts;
        assert_eq!((counts.deleted, counts.events_deleted, counts.skipped), (1, 2, 2));
        assert!(store.event("acme", "e0").await.unwrap().is_none());
        assert!(store.attempts("acme", &all[0].id, None, 10).await.unwrap().is_empty());
        assert!(store.event("acme", "unwanted").await.unwrap().is_none());
        assert_eq!(look(&store, &Walk::Tenant).await.len(), 2);
        let again = take_in(&store, vec![event("e0", 1)]).await;
        assert!(matches!(again[0], crate::store::Accepted::New { .. }), "its id is free again: {again:?}");
    })
    .await;
}

/// The list ended where its cursor had been purged, as if nothing more were there.
#[tokio::test]
async fn a_list_by_type_goes_on_behind_what_was_purged() {
    each_store(async |store| {
        let all = ended(&store, &[Status::Delivered; 6]).await;
        let (_, held) = job(&store, Kind::Purge).await;
        let delete = vec![(all[3].id.clone(), all[3].fence)];
        let changes = Changes { delete, ..Changes::default() };
        store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap();
        let filter = DeliveryFilter { event_type: Some("order.created".into()), ..DeliveryFilter::default() };
        let left = store.deliveries("acme", &filter, Some(&all[3].id), 10).await.unwrap();
        let left: Vec<&str> = left.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(left, [2, 1, 0].map(|place: usize| all[place].id.as_str()));
    })
    .await;
}

/// An event may have a delivery in flight beside one that has ended, or none but those.
#[tokio::test]
async fn a_purge_never_takes_an_event_that_is_in_flight() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 2), event("b", 1)]).await;
        let (_, held) = job(&store, Kind::Purge).await;
        let ended = claim(&store, "w").await.into_iter().find(|one| one.event_id == "a").unwrap();
        store.record(vec![record(&ended, Status::Delivered, None)]).await.unwrap();
        let uids = [store.uid_of_event("acme", "a").await, store.uid_of_event("acme", "b").await];
        let bare_events = uids.map(|uid| uid.unwrap().unwrap()).into();
        let changes = Changes { delete: vec![(ended.id, ended.fence)], bare_events, ..Changes::default() };
        let counts = store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap().counts;
        assert_eq!((counts.deleted, counts.events_deleted), (1, 0));
        store.release("w").await.unwrap();
        assert_eq!(claim(&store, "w").await.len(), 2, "what was in flight is delivered");
    })
    .await;
}

/// An event may come in after flights were landed and before its events are looked at, or deleted.
#[tokio::test]
async fn what_took_off_since_the_landing_is_neither_missing_nor_bare() {
    each_store(async |store| {
        let (_, held) = job(&store, Kind::Purge).await;
        take_in(&store, vec![event("a", 1)]).await;
        let [tenant, first, last, limit] = span(OffsetDateTime::now_utc()).values("evt");
        let step = query!("look_at_events").with([tenant, first, last, limit, Value::Bool(false)]);
        let seen: Vec<OldEvent> = store.database.fetch(step).await.unwrap().iter().map(old_event).collect();
        assert_eq!(seen.iter().map(|event| &event.receivers[..]).collect::<Vec<_>>(), [["sub_1".to_owned()]]);
        let changes = Changes { bare_events: vec![seen[0].uid.clone()], ..Changes::default() };
        let counts = match &store.database {
            Database::Sqlite(sqlite) => sqlite::commit(sqlite, held, changes, Progress::default(), true).await,
            Database::Postgres(postgres) => {
                postgres::commit(postgres, &held, &changes, Progress::default(), true).await
            }
        };
        assert_eq!(counts.unwrap().unwrap().counts.events_deleted, 0);
        assert_eq!(claim(&store, "w").await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn cancelling_ends_what_waits_and_leaves_what_is_attempted() {
    each_store(async |store| {
        let all = ended(&store, &[Status::Retrying, Status::Throttled, Status::Processing, Status::Failed]).await;
        let (_, held) = job(&store, Kind::Cancel).await;
        let cancel = all.iter().map(|one| (one.id.clone(), one.fence)).collect();
        let changes = Changes { cancel, ..Changes::default() };
        let counts = store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap().counts;
        assert_eq!((counts.cancelled, counts.skipped), (2, 2));
        assert_eq!(status_of(&store, &all[0].id).await, Status::Cancelled);
        assert_eq!(status_of(&store, &all[2].id).await, Status::Processing);
        assert_eq!(status_of(&store, &all[3].id).await, Status::Failed);
    })
    .await;
}

#[tokio::test]
async fn a_missing_delivery_is_made_only_while_its_event_is_there() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 0)]).await;
        let old = store.look_at_events(&span(OffsetDateTime::now_utc()), true).await.unwrap().remove(0);
        assert_eq!((old.id.as_str(), old.data.as_deref()), ("a", Some("{\"n\":1}")));
        let (_, held) = job(&store, Kind::Replay).await;
        let creation = |event_uid: &str| Creation {
            id: id::new("dlv"),
            event_uid: event_uid.to_owned(),
            subscription: "sub_1".into(),
            ordering_key: None,
            delay: Duration::ZERO,
        };
        let create = vec![creation(&old.uid), creation("evt_gone")];
        let changes = Changes { create, ..Changes::default() };
        let counts = store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap().counts;
        assert_eq!(counts.created, 1);
        assert_eq!(claim(&store, "w").await[0].event_id, "a");
    })
    .await;
}

#[tokio::test]
async fn a_missing_delivery_waits_for_its_events_time() {
    each_store(async |store| {
        let deliver_at = Some(OffsetDateTime::now_utc() + MINUTE);
        take_in(&store, vec![crate::store::NewEvent { deliver_at, ..event("later", 0) }]).await;
        let later = store.look_at_events(&span(OffsetDateTime::now_utc()), false).await.unwrap().remove(0);
        let creation = Creation {
            id: id::new("dlv"),
            event_uid: later.uid,
            subscription: "sub_1".into(),
            ordering_key: None,
            delay: Duration::ZERO,
        };
        let (_, held) = job(&store, Kind::Replay).await;
        let changes = Changes { create: vec![creation], ..Changes::default() };
        let counts = store.commit_batch(&held, changes, Progress::default(), true).await.unwrap().unwrap().counts;
        assert_eq!(counts.created, 1);
        assert!(claim(&store, "w").await.is_empty());
        let due = store.next_due().await.unwrap().unwrap();
        assert!(due > MINUTE / 2 && due <= MINUTE, "{due:?}");
    })
    .await;
}
