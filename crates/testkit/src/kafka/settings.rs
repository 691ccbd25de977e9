//! What a broker is told: `server.properties` and Java's flags.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::jars;

/// A cluster is one by this name: sixteen bytes in base64.
const CLUSTER_ID: &str = "VGlkZWdhdGVUZXN0cyEhIQ";

/// How one broker differs from the ordinary.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The default suits tests. From 512 on the JVM is also allowed to optimise as for production.
    pub heap_mb: u32,
    /// Lines added to `server.properties`; the last of two equal keys counts.
    pub properties: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { heap_mb: 256, properties: Vec::new() }
    }
}

/// A broker's place in its cluster: broker and controller in one JVM.
pub(crate) struct Node<'a> {
    pub(crate) id: usize,
    pub(crate) client_port: u16,
    pub(crate) controller_port: u16,
    /// All controller ports, in the order of the ids, which count from one.
    pub(crate) voters: &'a [u16],
    pub(crate) data: &'a Path,
}

/// The installation: Java and the jars.
pub(crate) struct Kafka {
    java: PathBuf,
    jars: PathBuf,
}

impl Kafka {
    pub(crate) fn find() -> Result<Kafka, String> {
        Ok(Kafka { java: jars::java()?, jars: jars::fetch()? })
    }

    /// Writes `server.properties` into `folder` and prepares the data folder.
    pub(crate) fn format(&self, folder: &Path, node: &Node<'_>, settings: &Settings) -> io::Result<()> {
        let properties = folder.join("server.properties");
        fs::write(&properties, text(node, settings))?;
        let mut format = Command::new(&self.java);
        format.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(self.class_path());
        format
            .args(["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c"])
            .arg(properties);
        let done = format.current_dir(folder).stdin(Stdio::null()).output()?;
        if done.status.success() {
            return Ok(());
        }
        let words = [done.stdout, done.stderr].concat();
        Err(io::Error::other(format!("Kafka's format failed: {}", String::from_utf8_lossy(&words).trim())))
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.java.clone()
    }

    pub(crate) fn arguments(&self, folder: &Path, settings: &Settings) -> Vec<OsString> {
        let heap = settings.heap_mb;
        let mut args: Vec<OsString> = vec![format!("-Xmx{heap}m").into()];
        args.extend(if heap < 512 {
            vec![format!("-Xms{}m", heap / 2).into(), "-XX:+UseSerialGC".into(), "-XX:TieredStopAtLevel=1".into()]
        } else {
            // For a load: all of it from the start.
            vec![format!("-Xms{heap}m").into(), "-XX:+AlwaysPreTouch".into()]
        });
        args.extend(["-Dlog4j2.level=WARN".into(), "-cp".into(), self.class_path(), "kafka.Kafka".into()]);
        args.push(folder.join("server.properties").into());
        args
    }

    pub(crate) fn tool(&self, class: &str) -> Command {
        let mut tool = Command::new(&self.java);
        tool.arg("-cp").arg(self.class_path()).arg(class);
        tool
    }

    fn class_path(&self) -> OsString {
        self.jars.join("*").into()
    }
}

fn text(node: &Node<'_>, settings: &Settings) -> String {
    let Node { id, client_port, controller_port, voters, data } = node;
    let quorum: Vec<String> =
        voters.iter().enumerate().map(|(place, port)| format!("{}@127.0.0.1:{port}", place + 1)).collect();
    let replicas = voters.len().min(3);
    let in_sync = replicas.div_ceil(2);
    let more = settings.properties.join("\n");
    format!(
        "process.roles=broker,controller
node.id={id}
controller.quorum.voters={}
listeners=PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{client_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={}
default.replication.factor={replicas}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
# After kill -9 a broker waits for its own former registration to end; the default makes that 13 s.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=300
{more}
",
        quorum.join(","),
        data.display(),
    )
}
