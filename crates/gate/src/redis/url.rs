//! How Redis is reached, read from a URL.
//!
//! | URL | server |
//! | --- | --- |
//! | `redis://[user:password@]host[:port][/db]`, `rediss://..` | one server, plain or TLS |
//! | `redis+sentinel://[user:password@]host:port[,host:port..]/master[/db]`, `rediss+sentinel://..` | the master that Sentinel names |
//! | `redis+cluster://[user:password@]host:port[,host:port..]`, `rediss+cluster://..` | a cluster |

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::Error;

/// A URL taken apart.
#[derive(Debug)]
pub(crate) enum Topology {
    Standalone(Box<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, credentials: Credentials, db: i64, is_tls: bool },
    Cluster { nodes: Vec<ConnectionInfo> },
}

#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(***)")
    }
}

impl Topology {
    pub(crate) fn parse(url: &str) -> Result<Topology, Error> {
        let (scheme, rest) =
            url.split_once("://").ok_or(Error::Url { reason: "it has no scheme, such as redis://" })?;
        match scheme {
            "redis" | "rediss" => Ok(Topology::Standalone(Box::new(node(url)?))),
            "redis+sentinel" | "redis-sentinel" => sentinel(rest, false),
            "rediss+sentinel" | "rediss-sentinel" => sentinel(rest, true),
            "redis+cluster" | "redis-cluster" => cluster("redis", rest),
            "rediss+cluster" | "rediss-cluster" => cluster("rediss", rest),
            _ => Err(Error::Url { reason: "its scheme is not redis, rediss, redis+sentinel or redis+cluster" }),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        let of = |node: &ConnectionInfo| matches!(node.addr(), redis::ConnectionAddr::TcpTls { .. });
        match self {
            Topology::Standalone(node) => of(node),
            Topology::Sentinel { is_tls, .. } => *is_tls,
            Topology::Cluster { nodes } => nodes.iter().any(of),
        }
    }
}

fn cluster(scheme: &str, rest: &str) -> Result<Topology, Error> {
    let (login, hosts) = split_login(rest);
    let hosts = hosts.split('/').next().unwrap_or_default();
    let login = login.map(|login| format!("{login}@")).unwrap_or_default();
    let nodes = hosts.split(',').map(|host| node(&format!("{scheme}://{login}{host}"))).collect::<Result<_, _>>()?;
    Ok(Topology::Cluster { nodes })
}

fn sentinel(rest: &str, is_tls: bool) -> Result<Topology, Error> {
    let (login, rest) = split_login(rest);
    let mut parts = rest.split('/');
    let hosts = parts.next().unwrap_or_default();
    let master = parts.next().filter(|master| !master.is_empty());
    let master =
        master.ok_or(Error::Url { reason: "a sentinel URL names the master: redis+sentinel://host/master" })?;
    let db = match parts.next().filter(|db| !db.is_empty()) {
        Some(db) => db.parse().map_err(|_| Error::Url { reason: "the database is not a number" })?,
        None => 0,
    };
    let credentials = match login {
        // Parsed by the client's own URL reader, which undoes percent-encoding.
        Some(login) => {
            let settings = node(&format!("redis://{login}@host"))?;
            let settings = settings.redis_settings();
            Credentials {
                username: settings.username().map(str::to_owned),
                password: settings.password().map(str::to_owned),
            }
        }
        None => Credentials::default(),
    };
    let scheme = if is_tls { "rediss" } else { "redis" };
    let sentinels = hosts
        .split(',')
        .map(|host| node(&format!("{scheme}://{}", with_port(host, 26_379))))
        .collect::<Result<_, _>>()?;
    Ok(Topology::Sentinel { sentinels, master: master.to_owned(), credentials, db, is_tls })
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

fn split_login(rest: &str) -> (Option<&str>, &str) {
    match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    }
}

fn node(url: &str) -> Result<ConnectionInfo, Error> {
    // The client's own error would repeat the URL, and with it the password.
    url.into_connection_info().map_err(|_| Error::Url { reason: "a host, port, login or database in it is malformed" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topology_is_read_from_its_url() {
        assert!(matches!(Topology::parse("redis://:pw@localhost:1/2").unwrap(), Topology::Standalone(_)));
        assert!(Topology::parse("rediss://localhost").unwrap().is_tls());
        let Topology::Cluster { nodes } = Topology::parse("redis+cluster://u:p@a:1,b:2").unwrap() else { panic!() };
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[1].redis_settings().username(), Some("u"));
        let Topology::Sentinel { sentinels, master, credentials, db, is_tls } =
            Topology::parse("rediss+sentinel://u:p%40@a,b:7/mymaster/3").unwrap()
        else {
            panic!()
        };
        assert_eq!((sentinels.len(), master.as_str(), db, is_tls), (2, "mymaster", 3, true));
        assert_eq!(credentials.password.as_deref(), Some("p@"));
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_its_password() {
        for url in ["", "localhost", "http://x", "redis://u:secret@host:99999", "redis+sentinel://u:secret@host"] {
            let error = Topology::parse(url).unwrap_err().to_string();
            assert!(error.starts_with("the Redis URL is not understood: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
