//! A Redis that evicts keys forgets limits, permits and circuits whenever it is full: worth a warning before it happens.

use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Fallback;
use crate::metrics::REDIS_MAY_EVICT;
use crate::redis::{Redis, Status};

const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_DEADLINE: Duration = Duration::from_secs(1);

/// Looks at the server's memory settings as long as the process lives; they can be changed at any time.
pub(super) async fn watch(fallback: Fallback, redis: Redis) {
    loop {
        let info = redis::cmd("INFO").arg("memory").to_owned();
        let may_evict = match redis.status() {
            Status::Connected => timeout(LOOK_DEADLINE, redis.command(&info)).await.ok().and_then(Result::ok),
            Status::Dialling | Status::Down => None,
        }
        .map(|reply| may_evict(&text(&reply)));
        if let Some(may_evict) = may_evict
            && fallback.set_may_evict(may_evict) != may_evict
        {
            metrics::gauge!(REDIS_MAY_EVICT).set(f64::from(u8::from(may_evict)));
            if may_evict {
                warn!(
                    "Redis evicts keys when it is full; set maxmemory-policy to noeviction, or limits are forgotten."
                );
            } else {
                info!("Redis no longer evicts keys.");
            }
        }
        sleep(if may_evict.is_some() { LOOK_EVERY } else { LOOK_AGAIN }).await;
    }
}

/// One server answers with text, a cluster with one text per node.
fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect(),
        Value::Map(pairs) => pairs.iter().map(|(_, value)| text(value)).collect(),
        _ => String::new(),
    }
}

fn may_evict(info: &str) -> bool {
    let values = |name: &str| -> Vec<&str> { info.lines().filter_map(|line| line.trim().strip_prefix(name)).collect() };
    let limits = values("maxmemory:");
    limits.iter().zip(values("maxmemory_policy:")).any(|(limit, policy)| *limit != "0" && policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_evicts_if_it_has_a_limit_and_another_policy_than_noeviction() {
        assert!(may_evict("used:1\r\nmaxmemory:100\r\nmaxmemory_human:1B\r\nmaxmemory_policy:allkeys-lru\r\n"));
        assert!(!may_evict("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"));
        assert!(!may_evict("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n"));
        let one_of_two =
            "maxmemory:100\r\nmaxmemory_policy:noeviction\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n";
        assert!(may_evict(one_of_two));
        assert!(!may_evict(""));
    }
}
