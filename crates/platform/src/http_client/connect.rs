//! Opens connections, and is the only place that does: the address that was checked is the address that is dialled.
//!
//! Names and literals take the same way, at every connect. One forbidden address in an answer refuses the whole answer,
//! so a name cannot offer a good address to the check and a bad one to the dial. There is no other way out: no proxy of
//! the environment is asked, and nothing follows a redirect.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use super::{
    CallError, Config, Phase, Reachable, Refused, Target, TlsIdentity, address,
    resolve::Resolver,
    target::TargetHost,
    tls,
    wire::{Meter, Sealed, Stream, Wire},
};

/// A name with more addresses than this is tried at its first ones.
const MOST_TRIES: usize = 6;

pub(super) struct Connector {
    resolver: Resolver,
    pub(super) reachable: Reachable,
    own_listeners: Vec<SocketAddr>,
    connect_timeout: Duration,
    dns_timeout: Duration,
    tls: Arc<ClientConfig>,
}

/// How far a call has come, for the sentence that says where its time went.
pub(super) struct Progress(AtomicU8);

const PHASES: [Phase; 5] = [Phase::Dns, Phase::Connect, Phase::Tls, Phase::Answer, Phase::Body];

impl Progress {
    pub(super) fn new() -> Self {
        Progress(AtomicU8::new(0))
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        PHASES[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) meter: Arc<Meter>,
    pub(super) is_http2: bool,
}

impl Connector {
    pub(super) fn new(config: &Config) -> Self {
        Connector {
            resolver: Resolver::new(&config.dns, config.dns_timeout),
            reachable: config.reachable.clone(),
            own_listeners: config.own_listeners.clone(),
            connect_timeout: config.connect_timeout,
            dns_timeout: config.dns_timeout,
            tls: tls::default_config(),
        }
    }

    pub(super) async fn open(
        &self,
        target: &Target,
        identity: Option<&Arc<TlsIdentity>>,
        progress: &Progress,
    ) -> Result<Opened, CallError> {
        progress.enter(Phase::Dns);
        let addresses = self.addresses(target).await?;
        progress.enter(Phase::Connect);
        let socket = self.dial(&addresses).await?;
        let (wire, meter) = Wire::new(socket);
        if !target.is_https {
            return Ok(Opened { stream: Either::Left(wire), meter, is_http2: false });
        }
        progress.enter(Phase::Tls);
        let config = identity.map_or(&self.tls, |identity| &identity.config);
        let connector = TlsConnector::from(Arc::clone(config));
        let handshake = connector.connect(tls::server_name(&target.host)?, wire);
        let stream = timeout(self.connect_timeout, handshake)
            .await
            .map_err(|_| CallError::Timeout { phase: Phase::Tls, after: self.connect_timeout })?
            .map_err(CallError::Tls)?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = Either::Right(Box::new(Sealed::new(stream, &meter)));
        Ok(Opened { stream, meter, is_http2 })
    }

    /// Every address of the target, each of which may be dialled.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, CallError> {
        let found: Vec<IpAddr> = match &target.host {
            TargetHost::Address(ip) => vec![*ip],
            TargetHost::Name(name) => timeout(self.dns_timeout, self.resolver.addresses(name))
                .await
                .map_err(|_| CallError::Timeout { phase: Phase::Dns, after: self.dns_timeout })??,
        };
        if !found.iter().all(|ip| self.reachable.allows(*ip)) {
            return Err(Refused::address().into());
        }
        let mut addresses: Vec<SocketAddr> = found.iter().map(|ip| SocketAddr::new(*ip, target.port)).collect();
        if addresses.iter().any(|address| address::is_own(*address, &self.own_listeners)) {
            return Err(Refused::own_listener().into());
        }
        addresses.truncate(MOST_TRIES);
        Ok(addresses)
    }

    /// One address after the other; each gets its share of the time that is left.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<TcpStream, CallError> {
        let share = self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = CallError::Connect(io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            match timeout(share, TcpStream::connect(*address)).await {
                Ok(Ok(socket)) => return self.check_socket(socket),
                Ok(Err(error)) => last = CallError::Connect(error),
                Err(_) => last = CallError::Timeout { phase: Phase::Connect, after: self.connect_timeout },
            }
        }
        Err(last)
    }

    fn check_socket(&self, socket: TcpStream) -> Result<TcpStream, CallError> {
        let (local, peer) =
            (socket.local_addr().map_err(CallError::Connect)?, socket.peer_addr().map_err(CallError::Connect)?);
        if address::is_call_to_self(local, peer, &self.own_listeners) {
            return Err(Refused::own_listener().into());
        }
        socket.set_nodelay(true).map_err(CallError::Connect)?;
        Ok(socket)
    }
}
