//! A pass on paper, for a caller in another process or another language: it enters here and may leave anywhere.
//!
//! Nothing renews a detached pass by itself. Its permit ends with the lease unless [`Gate::renew`] comes in time, and a
//! token with a permit that is shown late, twice or to the wrong replica frees nobody else's permit and counts for
//! nothing. Without a permit nobody knows whether a token was shown before.

use std::fmt;
use std::time::Duration;

use super::pass::Pass;
use super::redis::RedisGate;
use super::{Gate, Outcome, Policy};
use crate::breaker::{Breaker, Draft, Ticket, Tickets};
use crate::{Holder, Key};

/// Written with `Display`, read with [`Token::parse`]. Opaque to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Who issued it: Redis, or the process that decided alone.
    is_shared: bool,
    permit: Option<Holder>,
    ticket: Option<Ticket>,
}

impl Token {
    /// Reads a token; anything that was not written by one is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        let mut fields = text.split('.');
        let is_shared = match fields.next()? {
            "s" => true,
            "l" => false,
            _ => return None,
        };
        let permit = optional(fields.next()?, Holder::parse)?;
        let generation = optional(fields.next()?, |text| text.parse().ok())?;
        let probe = optional(fields.next()?, Holder::parse)?;
        let ticket = generation.map(|generation| Ticket { generation, probe });
        fields.next().is_none().then_some(Token { is_shared, permit, ticket })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |holder: Option<Holder>| holder.map_or_else(|| "-".to_owned(), |holder| holder.to_string());
        let generation = self.ticket.map_or_else(|| "-".to_owned(), |ticket| ticket.generation.to_string());
        let probe = or_dash(self.ticket.and_then(|ticket| ticket.probe));
        let issuer = if self.is_shared { 's' } else { 'l' };
        write!(f, "{issuer}.{}.{generation}.{probe}", or_dash(self.permit))
    }
}

/// Did the end of a detached pass count?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Yes: its permit is free, the circuit has heard.
    Counted,
    /// The lease was over, or the pass was ended before: nothing changed.
    TooLate,
    /// Redis, which gave the pass, did not answer: its lease ends by itself, the circuit does not hear of the call.
    Unheard,
}

/// `-` is nothing; a field that cannot be read spoils the whole.
fn optional<T>(field: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if field == "-" { Some(None) } else { read(field).map(Some) }
}

impl Pass {
    /// Puts the pass on paper. From now on only its lease and [`Gate::exit`] end it.
    #[must_use]
    pub fn detach(mut self) -> Token {
        let (gate, target, policy) = (self.gate().clone(), self.target().clone(), self.policy().clone());
        let Some(duties) = self.take_duties() else { return Token { is_shared: false, permit: None, ticket: None } };
        let permit = duties.permit.map(|permit| gate.inner.semaphore.stop_keeping(permit));
        let tickets = duties.tickets.unwrap_or_default();
        let is_shared = tickets.shared.is_some() || permit.is_some_and(|(_, is_by_redis)| is_by_redis);
        if let (true, Some(circuit)) = (tickets.shared.is_some(), &policy.circuit) {
            // This process's own circuit hears nothing of a call that is reported elsewhere.
            gate.inner.breaker.judged_by(circuit).give_back_own(&target, tickets.local);
        }
        Token { is_shared, permit: permit.map(|(holder, _)| holder), ticket: tickets.shared.or(tickets.local) }
    }
}

impl Gate {
    /// Ends a detached pass: frees its permit and reports how the call went, in one round trip. A token may be shown again
    /// by mistake, so the report counts only if the permit was still held.
    pub async fn exit(
        &self,
        target: &Key,
        policy: &Policy,
        token: &Token,
        outcome: Outcome,
        latency: Duration,
    ) -> Exit {
        let was_held_here = token.permit.is_some_and(|holder| self.inner.semaphore.release_here(target, holder));
        let breaker = policy.circuit.as_ref().map(|circuit| self.inner.breaker.judged_by(circuit));
        let reported = breaker.zip(token.ticket);
        let exit = match &self.inner.shared {
            Some(shared) if token.is_shared => {
                let draft = reported.map(|(breaker, ticket)| {
                    let draft = breaker.draft(target, ticket, outcome, latency);
                    (breaker, draft)
                });
                self.exit_shared(shared, target, token.permit, draft).await
            }
            _ if token.permit.is_some() && !was_held_here => Exit::TooLate,
            _ => {
                if let (false, Some((breaker, ticket))) = (token.is_shared, reported) {
                    let tickets = Tickets { shared: None, local: Some(ticket) };
                    breaker.report_argument(target, tickets, outcome, latency);
                }
                Exit::Counted
            }
        };
        self.inner.semaphore.wake(target);
        exit
    }

    async fn exit_shared(
        &self,
        shared: &RedisGate,
        target: &Key,
        permit: Option<Holder>,
        draft: Option<(Breaker, Draft)>,
    ) -> Exit {
        let report = draft.as_ref().and_then(|(breaker, draft)| {
            let report = breaker.draft_argument(draft)?;
            Some((breaker.policy_argument(), report))
        });
        let recorded = if permit.is_some() || report.is_some() {
            let call = shared.exit(target, permit, report, true);
            match self.inner.fallback.attempt("gate_exit", call).await {
                None => return Exit::Unheard,
                Some((false, _)) if permit.is_some() => {
                    if let Some((breaker, draft)) = &draft {
                        breaker.draft_counts_not(target, draft);
                    }
                    return Exit::TooLate;
                }
                Some((_, recorded)) => recorded,
            }
        } else {
            None
        };
        if let Some((breaker, draft)) = draft {
            breaker.draft_counts(target, draft, recorded).await;
        }
        Exit::Counted
    }

    /// Renews a detached pass's permit, and its place among the probes if it is one. False: the lease is lost, or the pass
    /// has no permit.
    pub async fn renew(&self, target: &Key, policy: &Policy, token: &Token) -> bool {
        let (Some(permit), Some(permits)) = (token.permit, policy.concurrency) else { return false };
        let breaker = policy.circuit.as_ref().map(|circuit| self.inner.breaker.judged_by(circuit));
        let probe = breaker.zip(token.ticket.and_then(|ticket| ticket.probe));
        if let (Some(shared), Some((breaker, probe)), true) = (&self.inner.shared, &probe, token.is_shared) {
            let renewal = shared.renew(target, permit, permits.lease_us, breaker.policy_argument(), *probe);
            return self.inner.fallback.attempt("gate_renew", renewal).await.unwrap_or(false);
        }
        let renewed = self.inner.semaphore.with_policy(permits).renew_holder(target, permit, token.is_shared).await;
        if let (true, Some((breaker, probe))) = (renewed, probe) {
            breaker.renew_probe_here(target, probe);
        }
        renewed
    }

    /// Tells Redis what it must hear at the end of a pass, if anything. False: it did not hear.
    pub(super) async fn tell(
        &self,
        target: &Key,
        breaker: Option<Breaker>,
        permit: Option<Holder>,
        report: Option<(String, String)>,
    ) -> bool {
        let mut is_heard = true;
        if let Some(shared) = &self.inner.shared
            && (permit.is_some() || report.is_some())
        {
            let recorded = self.inner.fallback.attempt("gate_exit", shared.exit(target, permit, report, false)).await;
            is_heard = recorded.is_some();
            if let (Some(breaker), Some((_, Some(recorded)))) = (&breaker, recorded) {
                breaker.note_recorded(target, recorded).await;
            }
        }
        self.inner.semaphore.wake(target);
        is_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_what_it_wrote_and_nothing_else() {
        let probe = Some(Ticket { generation: 7, probe: Some(Holder::random()) });
        for (permit, ticket) in [(None, None), (Some(Holder::random()), probe), (None, probe)] {
            for is_shared in [true, false] {
                let token = Token { is_shared, permit, ticket };
                assert_eq!(Token::parse(&token.to_string()), Some(token));
            }
        }
        for text in ["", "s", "s.-.-", "s.-.-.-.-", "x.-.-.-", "s.zz.-.-", "l.-.-1.-", "s.-.1.-x"] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
