//! What a batch promises: order, one reply each, and that nobody pays for a caller who left.

use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all};
use redis::Value;

use super::*;
use crate::redis::Config;
use crate::{Backend, Clock, fallback};

/// Adds to a counter and answers it; refuses 13.
static COUNT: Script = Script::new(concat!(
    include_str!("../now.lua"),
    "local function operation(k, a)
       if ARGV[a] == '13' then error('unlucky') end
       local count = redis.call('INCRBY', KEYS[k], ARGV[a])
       redis.call('PEXPIRE', KEYS[k], 60000)
       return count
     end
    ",
    include_str!("../batch.lua"),
));

fn backend(server: &testkit::redis::Shared) -> Backend {
    let config = Config { prefix: server.prefix().to_owned(), ..Config::new(server.url()) };
    let patient = fallback::Config { deadline: Duration::from_secs(10), ..fallback::Config::default() };
    Backend::redis_with(config, patient, Clock::System).unwrap()
}

fn batch(backend: &Backend) -> Batch {
    Batch::new(backend.shared.clone().unwrap(), &COUNT, backend.tasks.clone())
}

fn add(name: &str, number: u64) -> Call {
    Call { keys: vec![format!("{name}:{{count}}")], args: vec![Arg::Int(number)] }
}

#[tokio::test]
async fn concurrent_calls_run_in_the_order_they_came_and_get_their_own_reply() {
    let server = testkit::need!(testkit::redis());
    let backend = backend(&server);
    let batch = batch(&backend);
    // A server that does not know the script is told it by whoever comes first, which may cost that one its place.
    batch.call(add(server.prefix(), 0)).await.unwrap();
    let replies = join_all((0..1_000).map(|_| batch.call(add(server.prefix(), 1)))).await;
    let counts: Vec<Value> = replies.into_iter().map(Result::unwrap).collect();
    let in_order = counts.iter().zip(1..).all(|(count, expected)| *count == Value::Int(expected));
    assert!(in_order, "the first ten are {:?}", &counts[..10]);
}

#[tokio::test]
async fn an_error_in_one_call_leaves_the_others_alone() {
    let server = testkit::need!(testkit::redis());
    let backend = backend(&server);
    let batch = batch(&backend);
    let replies = join_all((0..100).map(|n| batch.call(add(server.prefix(), if n % 10 == 3 { 13 } else { 1 })))).await;
    let refused = replies.iter().filter(|reply| matches!(reply, Err(Error::Redis(_)))).count();
    assert_eq!(refused, 10);
    assert_eq!(replies.last().unwrap().as_ref().unwrap(), &Value::Int(90));
}

#[tokio::test]
async fn calls_of_one_batch_may_have_more_or_fewer_arguments_than_others() {
    let server = testkit::need!(testkit::redis());
    let backend = backend(&server);
    let batch = batch(&backend);
    let mut calls: Vec<Call> = (0..100).map(|_| add(server.prefix(), 1)).collect();
    for call in calls.iter_mut().step_by(3) {
        call.args.push(Arg::from("one more"));
        call.keys.push(format!("{}:{{count}}:beside", server.prefix()));
    }
    let replies = join_all(calls.into_iter().map(|call| batch.call(call))).await;
    let mut counts: Vec<Value> = replies.into_iter().map(Result::unwrap).collect();
    assert_eq!(counts.pop(), Some(Value::Int(100)));
}

#[tokio::test]
async fn a_caller_that_left_before_its_call_was_sent_is_not_charged() {
    let server = testkit::need!(testkit::redis());
    let backend = backend(&server);
    let batch = batch(&backend);
    // The connection is not there yet, so the first call is under way and the others wait.
    let mut calls: Vec<_> = (0..10).map(|_| Box::pin(batch.call(add(server.prefix(), 1)))).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    let stayed = calls.split_off(5);
    drop(calls);
    join_all(stayed).await;
    let last = batch.call(add(server.prefix(), 1)).await.unwrap();
    // The one that was on its way may have arrived; the four that only waited have not.
    assert!(matches!(last, Value::Int(6..=7)), "{last:?}");
}

/// The line went silent: a batch that nobody waited for any more held up everybody until its own timeout, 11 s, also on
/// the new line.
#[tokio::test]
async fn a_batch_ends_when_the_last_of_its_callers_has_left() {
    let server = testkit::need!(testkit::redis::Server::start());
    let backend = Backend::redis(&server.url()).unwrap();
    let batch = batch(&backend);
    batch.call(add("warm", 1)).await.unwrap();
    server.stop();
    let mut calls: Vec<_> = (0..4).map(|_| Box::pin(batch.call(add("silent", 1)))).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    // The first went alone; now that it is gone the others go together.
    drop(calls.remove(0));
    tokio::task::yield_now().await;
    assert_eq!(batch.inner.lane.lock().in_flight, 1);
    drop(calls);
    testkit::eventually(Duration::from_secs(5), "the lane to be free", async || batch.inner.lane.lock().in_flight == 0)
        .await;
    server.resume();
    backend.shutdown().await;
}
