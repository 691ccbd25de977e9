//! Reservations: take a cost now, say later what it really was. The gate's holds, found again by an id that any replica
//! understands: it carries the hold's token and the key.
//!
//! Whoever is allowed has an id to settle. A shadow rule allows also what it would have refused; then nothing is charged, the
//! id says that nothing is held, and settling it changes nothing.

use std::{num::NonZeroU64, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gate::{
    Holder,
    limiter::{
        Policy,
        hold::{Outcome, Settlement, Token},
    },
};

use super::{Answer, Ask, Engine};
use crate::error::Error;

const PREFIX: &str = "rsv_";
/// Stands where a token has the letter of who knows it.
const NOTHING: char = 'n';

/// What an id stands for.
enum Held {
    Token(Token),
    Nothing,
}

/// A reservation that was made, or refused: then without an id.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub answer: Answer,
    pub id: Option<String>,
}

impl Engine {
    /// Like [`Engine::check`]; what was taken comes back after `lasts` unless it is settled.
    pub async fn reserve(&self, tenant: &str, ask: Ask<'_>, lasts: Duration) -> Result<Reserved, Error> {
        let (found, cost) = self.priced(tenant, ask)?;
        let (decision, token) = self.inner.holds.hold(tenant, &found.key, &found.policy, cost, lasts).await?;
        let answer = self.answer(tenant, ask.key, found, decision);
        let key = || URL_SAFE_NO_PAD.encode(ask.key);
        let id = match token {
            Some(token) => Some(format!("{PREFIX}{token}{}", key())),
            None if answer.is_allowed() => Some(format!("{PREFIX}{NOTHING}{}{}", Holder::random(), key())),
            None => None,
        };
        Ok(Reserved { answer, id })
    }

    /// The price is known; 0 gives everything back. The rule that speaks for the key now is the one that is corrected.
    pub async fn settle(&self, tenant: &str, id: &str, cost: u64) -> Result<Settlement, Error> {
        if cost > Policy::MOST_LIMIT {
            return Err(Error::CostAboveAll { cost });
        }
        let unknown = || Error::NoReservation { id: id.to_owned() };
        let (held, key) = parse(id).ok_or_else(unknown)?;
        let found = self.find(tenant, &key)?;
        let Held::Token(token) = held else {
            let stands = self.inner.limiter.peek(&found.key, &found.policy, NonZeroU64::MIN).await;
            let (remaining, reset_after) = (stands.remaining, stands.reset_after);
            return Ok(Settlement { outcome: Outcome::Settled, cost: 0, remaining, reset_after });
        };
        let settlement = self.inner.holds.settle(&found.key, &found.policy, &token, cost).await;
        match settlement.outcome {
            Outcome::Unknown => Err(unknown()),
            Outcome::Unavailable => Err(Error::RedisUnavailable),
            Outcome::Settled | Outcome::Again | Outcome::Late => Ok(settlement),
        }
    }
}

/// A token has 33 letters; the key follows.
fn parse(id: &str) -> Option<(Held, String)> {
    let (token, key) = id.strip_prefix(PREFIX)?.split_at_checked(33)?;
    let key = String::from_utf8(URL_SAFE_NO_PAD.decode(key).ok()?).ok()?;
    let held = match token.strip_prefix(NOTHING) {
        Some(holder) => Holder::parse(holder).map(|_| Held::Nothing)?,
        None => Held::Token(Token::parse(token)?),
    };
    Some((held, key))
}
