//! Names to addresses, all of them: a caller that sees one forbidden address refuses the lot.
//!
//! Names are taken as complete, so no search domain is tried on a public name; a name without a dot (of a network's inside) is
//! looked up as the system would. Answers are cached for their own time to live.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::runtime::TokioRuntimeProvider,
    proto::rr::Name,
};

use super::{CallError, Refused};

const CACHED_NAMES: u64 = 32_768;
const LONGEST_TTL: Duration = Duration::from_secs(600);
const MOST_QUERIES: usize = 4096;

/// Who is asked for addresses.
#[derive(Clone, Debug, Default)]
pub enum Dns {
    /// What `/etc/resolv.conf` and `/etc/hosts` say.
    #[default]
    System,
    /// These servers and nothing else.
    Servers(Vec<SocketAddr>),
}

#[derive(Clone)]
pub(super) struct Resolver(TokioResolver);

impl Resolver {
    pub(super) fn new(dns: &Dns, timeout: Duration) -> Self {
        let asking = |servers: Vec<NameServerConfig>| {
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let mut builder = match dns {
            Dns::System => TokioResolver::builder_tokio().unwrap_or_else(|error| {
                // What the C library does without a configuration.
                tracing::warn!(%error, "The system's DNS configuration cannot be read; asking 127.0.0.1.");
                asking(vec![NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into())])
            }),
            Dns::Servers(servers) => asking(servers.iter().map(server).collect()),
        };
        set_options(builder.options_mut(), timeout, dns);
        Resolver(builder.build().expect("a resolver without TLS has nothing that can fail"))
    }

    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, CallError> {
        let mut name = Name::from_ascii(host)
            .map_err(|_| CallError::Refused(Refused::new("url_host", "the host is not a name DNS can look up")))?;
        name.set_fqdn(host.contains('.'));
        let found = self.0.lookup_ip(name).await.map_err(|error| {
            tracing::debug!(%error, "A name could not be resolved.");
            CallError::Dns
        })?;
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() { Err(CallError::Dns) } else { Ok(addresses) }
    }
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

fn set_options(options: &mut ResolverOpts, timeout: Duration, dns: &Dns) {
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHED_NAMES;
    options.positive_max_ttl = Some(LONGEST_TTL);
    options.negative_max_ttl = Some(Duration::from_secs(30));
    options.max_active_requests = MOST_QUERIES;
    // Two tries, and time to spare: one lost packet, or one family of addresses that gets no answer, is not the end.
    options.attempts = 1;
    options.timeout = timeout / 3;
    options.use_hosts_file = match dns {
        Dns::System => ResolveHosts::Always,
        Dns::Servers(_) => ResolveHosts::Never,
    };
}
