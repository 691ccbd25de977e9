//! What runs beside the callers: probing a lost Redis, and counting live replicas by heartbeats.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Fallback;
use crate::redis::{Arg, Redis, Script};
use crate::{Error, Key};

static HEARTBEAT: Script = Script::new(include_str!("heartbeat.lua"));

const BEAT_EVERY: Duration = Duration::from_secs(1);
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
    let keys = [redis.name("replicas", &fleet)];
    let me = format!("{:032x}", fastrand::u128(..));
    loop {
        let args = vec![Arg::from(me.as_str()), Arg::from(u64::from(ALIVE_MS))];
        if let Ok(Ok(redis::Value::Int(alive))) = timeout(BEAT_EVERY, redis.run(&HEARTBEAT, &keys, args)).await {
            fallback.set_replicas(u32::try_from(alive).unwrap_or(1));
        }
        sleep(BEAT_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}
