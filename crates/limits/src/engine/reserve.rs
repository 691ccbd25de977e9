//! Reservations: take a cost now, say later what it really was. The gate's holds, found again by an id that any replica
//! understands: it carries the hold's token and the key.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gate::limiter::hold::{Outcome, Settlement, Token};

use super::{Answer, Ask, Engine};
use crate::error::Error;

const PREFIX: &str = "rsv_";

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
        let (decision, token) = self.inner.holds.hold(&found.key, &found.policy, cost, lasts).await?;
        let id = token.map(|token| format!("{PREFIX}{token}{}", URL_SAFE_NO_PAD.encode(ask.key)));
        Ok(Reserved { answer: self.answer(tenant, ask.key, found, decision), id })
    }

    /// The price is known; 0 gives everything back. The rule that speaks for the key now is the one that is corrected.
    pub async fn settle(&self, tenant: &str, id: &str, cost: u64) -> Result<Settlement, Error> {
        let unknown = || Error::NoReservation { id: id.to_owned() };
        let (token, key) = parse(id).ok_or_else(unknown)?;
        let found = self.find(tenant, &key)?;
        let settlement = self.inner.holds.settle(&found.key, &found.policy, &token, cost).await;
        match settlement.outcome {
            Outcome::Unknown => Err(unknown()),
            Outcome::Unavailable => Err(Error::RedisUnavailable),
            Outcome::Settled | Outcome::Again | Outcome::Late => Ok(settlement),
        }
    }
}

/// A token has 33 letters; the key follows.
fn parse(id: &str) -> Option<(Token, String)> {
    let (token, key) = id.strip_prefix(PREFIX)?.split_at_checked(33)?;
    let key = String::from_utf8(URL_SAFE_NO_PAD.decode(key).ok()?).ok()?;
    Some((Token::parse(token)?, key))
}
