//! What ends the trust in Redis, and what does not.

use redis::Value;

use super::*;
use crate::Backend;
use crate::redis::{Arg, Config as RedisConfig};
use crate::redis::{Script, reply};

static NUMBER: Script = Script::new("return redis.call('GET', KEYS[1]) + 0");
static LONG: Script = Script::new("return 2^63");

/// One body of a settlement made a script answer below zero; five of them, and a replica decided alone for every
/// tenant.
#[tokio::test]
async fn what_a_script_makes_of_one_callers_numbers_does_not_cost_redis_its_trust() {
    let server = testkit::need!(testkit::redis());
    let config = RedisConfig { prefix: server.prefix().to_owned(), ..RedisConfig::new(server.url()) };
    let patient = Config { deadline: Duration::from_secs(10), ..Config::default() };
    let backend = Backend::redis_with(config, patient, Clock::System).unwrap();
    let (redis, fallback) = (backend.shared.clone().unwrap(), &backend.fallback);
    let keys = [redis.own_name("words"), redis.own_name("list")];
    for command in [redis::cmd("SET").arg(&keys[0]).arg("word"), redis::cmd("LPUSH").arg(&keys[1]).arg("a")] {
        redis.command(command).await.unwrap();
    }
    let ask = async |script, key: &String| -> Result<u64, Error> {
        reply::integer(&redis.run(script, std::slice::from_ref(key), Vec::<Arg>::new()).await?)
    };
    for _ in 0..30 {
        for (script, key) in [(&NUMBER, &keys[0]), (&NUMBER, &keys[1]), (&LONG, &keys[0])] {
            assert_eq!(fallback.attempt("limiter_check", ask(script, key)).await, None);
        }
    }
    assert!(!fallback.is_active(), "it answered every time");
    let refuses = async || redis.command(redis::cmd("TIDEGATE").arg("unknown")).await;
    for _ in 0..30 {
        assert_eq!(fallback.attempt::<Value>("limiter_check", refuses()).await, None);
    }
    assert!(fallback.is_active(), "a server that does not take our commands decides nothing");
    backend.shutdown().await;
}
