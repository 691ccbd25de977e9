//! Brokers of one's own: one, or a cluster of several, each a JVM that is broker and controller.

use std::{fs, io, ops::Deref, thread, time::Duration};

use super::{
    settings::{Kafka, Node, Settings},
    wire,
};
use crate::{
    Server as Kind, Unavailable, fresh, ledger,
    port::{BUS, Port},
    process::{Plan, Process},
    proxy::FaultProxy,
    wait::try_wait_until,
};

/// Java starts slowly where cores are few and busy.
const READY: Duration = Duration::from_mins(4);

#[derive(Debug)]
pub struct Broker {
    // Before the port: the broker is gone before its port is free for others.
    process: Process,
    port: Port,
    /// Of a listener that asks who calls.
    guarded: Option<Port>,
    of: usize,
}

/// What a guarded listener shows its callers, and whom it lets in.
#[derive(Clone, Copy, Debug)]
pub struct Guarded<'a> {
    /// Certificate chain and PKCS#8 key, both PEM.
    pub chain: &'a str,
    pub key: &'a str,
    pub user: &'a str,
    pub password: &'a str,
}

/// Its pid, and what can be done to it: `kill`, `stop`, `resume`.
impl Deref for Broker {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Broker {
    pub fn start() -> Result<Broker, Unavailable> {
        Broker::start_with(&Settings::default())
    }

    pub fn start_with(settings: &Settings) -> Result<Broker, Unavailable> {
        let broker = Broker::launch(settings)?;
        ledger::used(Kind::Kafka);
        Ok(broker)
    }

    /// A broker that clients reach only through this proxy: that is the address which it tells them.
    pub fn start_behind_a_proxy() -> Result<(Broker, FaultProxy), Unavailable> {
        let port = reserve(1)?;
        let proxy = FaultProxy::start(("127.0.0.1", port[0].number()));
        let properties = vec![format!("advertised.listeners=PLAINTEXT://127.0.0.1:{}", proxy.port())];
        let broker = launch_on(port, &Settings { properties, ..Settings::default() })?.remove(0);
        ledger::used(Kind::Kafka);
        Ok((broker, proxy))
    }

    /// A broker with one more listener, for TLS and SASL's `PLAIN`: see [`Broker::guarded`].
    pub fn start_guarded(guarded: &Guarded<'_>) -> Result<Broker, Unavailable> {
        let mut ports = reserve(2)?;
        let own = ports.pop().expect("two were reserved");
        let (client, controller) = (ports[0].number(), ports[0].number() + BUS);
        let in_one_line = |pem: &str| pem.replace('\n', "\\n");
        let properties = vec![
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller},GUARDED://127.0.0.1:{}",
                own.number()
            ),
            format!("advertised.listeners=PLAINTEXT://127.0.0.1:{client},GUARDED://127.0.0.1:{}", own.number()),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL".to_owned(),
            "listener.name.guarded.sasl.enabled.mechanisms=PLAIN".to_owned(),
            format!(
                "listener.name.guarded.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
                 required user_{}=\"{}\";",
                guarded.user, guarded.password
            ),
            "ssl.keystore.type=PEM".to_owned(),
            format!("ssl.keystore.certificate.chain={}", in_one_line(guarded.chain)),
            format!("ssl.keystore.key={}", in_one_line(guarded.key)),
        ];
        let mut broker = launch_on(ports, &Settings { properties, ..Settings::default() })?.remove(0);
        broker.guarded = Some(own);
        ledger::used(Kind::Kafka);
        Ok(broker)
    }

    pub(crate) fn launch(settings: &Settings) -> Result<Broker, Unavailable> {
        launch_on(reserve(1)?, settings).map(|mut brokers| brokers.remove(0))
    }

    /// This broker's address, for `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The address of the guarded listener, if it has one.
    pub fn guarded(&self) -> Option<String> {
        self.guarded.as_ref().map(|port| format!("127.0.0.1:{}", port.number()))
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `kill -9` if it still runs, then a start on the same port and data; returns when it answers, which takes about
    /// six seconds.
    pub fn restart(&self) {
        self.process.start_again().expect("the supervisor obeys while its server handle lives");
        if let Err(error) = self.wait_until_ready(1) {
            panic!("the broker did not come back: {error}");
        }
    }

    /// Makes a topic and returns when every partition has its leader and all replicas in sync.
    ///
    /// # Panics
    /// When the broker refuses, or does not get there in time.
    pub fn create_topic(&self, name: &str, partitions: u16) {
        let replicas = i16::try_from(self.of.min(3)).expect("three at most");
        create_topic(self.port(), name, partitions, replicas);
    }

    fn wait_until_ready(&self, brokers: usize) -> io::Result<()> {
        let is_ready = || wire::metadata(self.port(), None).is_ok_and(|metadata| metadata.brokers >= brokers);
        self.process.wait_until_ready(READY, is_ready)
    }
}

/// Brokers that are one cluster. Topics get three replicas; two must be in sync for a write with `acks=all`.
#[derive(Debug)]
pub struct Cluster {
    brokers: Vec<Broker>,
}

impl Cluster {
    pub fn start(brokers: usize) -> Result<Cluster, Unavailable> {
        let brokers = launch_on(reserve(brokers)?, &Settings::default())?;
        ledger::used(Kind::Kafka);
        Ok(Cluster { brokers })
    }

    /// All addresses, for `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        self.brokers.iter().map(Broker::brokers).collect::<Vec<_>>().join(",")
    }

    /// One of them, counted from zero, to be killed, stopped, resumed and restarted.
    pub fn broker(&self, place: usize) -> &Broker {
        &self.brokers[place]
    }

    /// See `Broker::create_topic`.
    pub fn create_topic(&self, name: &str, partitions: u16) {
        self.brokers[0].create_topic(name, partitions);
    }
}

pub(super) fn create_topic(port: u16, name: &str, partitions: u16, replicas: i16) {
    if let Err(error) = wire::create_topic(port, name, i32::from(partitions), replicas) {
        panic!("{error}");
    }
    let all =
        || wire::metadata(port, Some(name)).is_ok_and(|known| known.healthy_partitions == usize::from(partitions));
    if let Err(timed_out) = try_wait_until(READY, format!("topic {name} on its brokers"), || all().then_some(())) {
        panic!("{timed_out}");
    }
}

fn reserve(count: usize) -> Result<Vec<Port>, Unavailable> {
    let ports: Option<Vec<Port>> = (0..count).map(|_| Port::reserve()).collect();
    ports.ok_or_else(|| Unavailable::new(Kind::Kafka, "no free port on 127.0.0.1"))
}

fn launch_on(ports: Vec<Port>, settings: &Settings) -> Result<Vec<Broker>, Unavailable> {
    let because = |error: io::Error| Unavailable::new(Kind::Kafka, error);
    let kafka = Kafka::find().map_err(|reason| Unavailable::new(Kind::Kafka, reason))?;
    let count = ports.len();
    let voters: Vec<u16> = ports.iter().map(|port| port.number() + BUS).collect();
    let started: Vec<io::Result<Broker>> = thread::scope(|scope| {
        let (kafka, voters) = (&kafka, &voters);
        let start = |(place, port)| scope.spawn(move || start(kafka, voters, place, port, settings));
        let threads: Vec<_> = ports.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("starting a broker does not panic")).collect()
    });
    let brokers: Vec<Broker> = started.into_iter().collect::<io::Result<_>>().map_err(because)?;
    for broker in &brokers {
        broker.wait_until_ready(count).map_err(because)?;
    }
    Ok(brokers)
}

fn start(kafka: &Kafka, voters: &[u16], place: usize, port: Port, settings: &Settings) -> io::Result<Broker> {
    let folder = fresh::folder("kafka")?;
    let node = Node {
        id: place + 1,
        client_port: port.number(),
        controller_port: voters[place],
        voters,
        data: &folder.join("data"),
    };
    if let Err(error) = kafka.format(&folder, &node, settings) {
        drop(fs::remove_dir_all(&folder));
        return Err(error);
    }
    let args = kafka.arguments(&folder, settings);
    let process = Process::start(Plan { program: kafka.program(), args, folder, user: None, last_signal: "KILL" })?;
    Ok(Broker { process, port, guarded: None, of: voters.len() })
}
