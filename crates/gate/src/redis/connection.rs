//! One connection to whatever the URL names, and the rule of what may be sent twice.
//!
//! A command is repeated only when the server certainly did not run it: `NOSCRIPT` (it has no such script), `MOVED`,
//! `ASK` and `TRYAGAIN` (the slot is elsewhere). After any other failure its effect is unknown, and it is never repeated.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, TlsCertificates, Value,
};

use super::url::Topology;
use super::{Arg, Script};
use crate::Error;

/// Above every deadline that can be configured: it only ends waits that nobody is left to watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(11);
/// Shorter in a cluster, which also asks its nodes for their slots: one that hangs must not hold up the others.
const CLUSTER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often one call follows a slot that moves under it.
const MOST_REDIRECTS: usize = 8;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(2);

#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn dial(topology: &Topology, root_certificate: Option<&[u8]>) -> Result<Connection, Error> {
        if topology.is_tls() {
            // One crypto library for the process; a provider that is already there is the same one.
            rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        }
        let certificates =
            root_certificate.map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) });
        match topology {
            Topology::Standalone(server) => single(server, certificates).await,
            Topology::Sentinel { .. } => sentinel(topology, certificates).await,
            Topology::Cluster { nodes } => cluster(nodes, certificates).await,
        }
    }

    /// Runs a script by its hash; a server that lacks it gets the text in the same call.
    pub(super) async fn run(&mut self, script: &Script, keys: &[String], args: &[Arg]) -> Result<Value, RedisError> {
        match self.send(&script.by_hash(keys, args)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(&script.by_text(keys, args)).await
            }
            other => other,
        }
    }

    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Connection::Single(connection) => refusal(connection.send_packed_command(command).await?),
            Connection::Cluster(connection) => send_following_slots(connection, command).await,
        }
    }
}

async fn single(server: &ConnectionInfo, certificates: Option<TlsCertificates>) -> Result<Connection, Error> {
    let client = match certificates {
        Some(certificates) => redis::Client::build_with_tls(server.clone(), certificates)?,
        None => redis::Client::open(server.clone())?,
    };
    Ok(Connection::Single(client.get_multiplexed_async_connection_with_config(&single_config()).await?))
}

fn single_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

async fn sentinel(topology: &Topology, certificates: Option<TlsCertificates>) -> Result<Connection, Error> {
    let Topology::Sentinel { sentinels, master, credentials, db, is_tls } = topology else {
        return Err(Error::Url { reason: "it names no sentinel" });
    };
    let addresses: Vec<_> = sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
    let mut builder =
        SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?.set_client_to_redis_db(*db);
    if let Some(username) = &credentials.username {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = &credentials.password {
        builder = builder.set_client_to_redis_password(password);
    }
    if *is_tls {
        builder = builder
            .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(redis::TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    let mut client = builder.build()?;
    Ok(Connection::Single(client.get_async_connection_with_config(&single_config()).await?))
}

async fn cluster(nodes: &[ConnectionInfo], certificates: Option<TlsCertificates>) -> Result<Connection, Error> {
    // The client's own retries would also repeat a command whose connection broke after it was sent.
    let mut builder = ClusterClientBuilder::new(nodes.iter().cloned())
        .retries(0)
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(CLUSTER_RESPONSE_TIMEOUT);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    Ok(Connection::Cluster(builder.build()?.get_async_connection().await?))
}

async fn send_following_slots(connection: &mut ClusterConnection, command: &Cmd) -> Result<Value, RedisError> {
    let mut result = redis::aio::ConnectionLike::req_packed_command(connection, command).await;
    for _ in 0..MOST_REDIRECTS {
        let error = match result.and_then(refusal) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        result = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                let Some(node) = redirect(&error) else { return Err(error) };
                connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let Some(node) = redirect(&error) else { return Err(error) };
                ask(connection, command, node).await
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => {
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                redis::aio::ConnectionLike::req_packed_command(connection, command).await
            }
            _ => return Err(error),
        };
    }
    result.and_then(refusal)
}

async fn ask(
    connection: &mut ClusterConnection,
    command: &Cmd,
    node: SingleNodeRoutingInfo,
) -> Result<Value, RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
    let mut values = connection.route_pipeline(pipeline, 0, 2, node).await?;
    refusal(values.pop().unwrap_or(Value::Nil))
}

/// An error that is the whole reply. One inside an array belongs to one call of a batch and stays there.
fn refusal(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        other => Ok(other),
    }
}

fn redirect(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}
