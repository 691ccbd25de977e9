//! What runs beside the callers: probing a lost Redis, and counting live replicas by heartbeats.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Fallback;
use crate::redis::{Arg, Redis, Script};
use crate::{Error, Key};

static HEARTBEAT: Script = Script::new(include_str!("heartbeat.lua"));

const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Who returns waits for the others, and they for it.
const BEAT_OF_RETURN: Duration = Duration::from_millis(250);
/// A replica that missed this many milliseconds of beats is gone.
const ALIVE_MS: u32 = 5_000;
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// Tries Redis once its dwell is over: one PING and one script, so that a server which answers but cannot run scripts
/// is not trusted.
pub(super) async fn probe(fallback: Fallback, redis: Redis) {
    loop {
        // Jitter keeps a fleet from probing in step.
        sleep(PROBE_EVERY.mul_f64(0.5 + fastrand::f64())).await;
        if !fallback.is_probe_due() {
            continue;
        }
        match timeout(fallback.deadline(), try_out(&redis)).await {
            Ok(Ok(())) => fallback.probe_succeeded(),
            Ok(Err(_)) => (),
            // A line that swallows requests may be half dead; a new one is not.
            Err(_) => redis.reconnect(),
        }
    }
}

async fn try_out(redis: &Redis) -> Result<(), Error> {
    redis.command(&redis::cmd("PING")).await?;
    static RETURN: Script = Script::new("return 1");
    let key = Key::new("probe")?;
    redis.run(&RETURN, &[redis.name("probe", &key)], Vec::<Arg>::new()).await?;
    Ok(())
}

pub(super) async fn beat(fallback: Fallback, redis: Redis) {
    let Ok(fleet) = Key::new("fleet") else { return };
    let keys = [redis.name("replicas", &fleet), redis.name_beside("replicas", &fleet, "alone")];
    let me = format!("{:032x}", fastrand::u128(..));
    loop {
        let is_alone = u64::from(fallback.decides_some_alone());
        let args = vec![Arg::from(me.as_str()), Arg::from(u64::from(ALIVE_MS)), Arg::from(is_alone)];
        if let Ok(Ok(reply)) = timeout(BEAT_EVERY, redis.run(&HEARTBEAT, &keys, args)).await
            && let Ok((alive, alone)) = redis::from_redis_value::<(u32, u32)>(reply)
        {
            fallback.heard(alive, alone);
        }
        let pause = if fallback.is_returning() { BEAT_OF_RETURN } else { BEAT_EVERY };
        sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}
