//! A TCP proxy on loopback that makes a network bad on order: slow, thin, sliced, cut, silent.
//!
//! Faults can be set for one direction or both and changed while connections live; what is on its way is judged by the
//! new ones. Bytes are never lost, changed or reordered: a connection delivers a prefix of what was sent, as TCP does.
//! The proxy runs on a thread of its own, so it also serves tests without a runtime, and ends when dropped.

mod relay;

use std::{
    future,
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{mpsc, watch},
    time::sleep,
};

use crate::port::Port;

/// What is wrong with the network. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// How much later every byte arrives. Bytes travel at the same time: it delays, but does not limit.
    pub latency: Duration,
    /// Up to this much is added to the latency, at random, without reordering.
    pub jitter: Duration,
    /// Bytes per second, per connection.
    pub bandwidth: Option<u64>,
    /// Bytes arrive in pieces of at most this many.
    pub slice: Option<usize>,
    /// Connections are reset: live ones now, new ones once accepted.
    pub reset: bool,
    /// Connections stay open and nothing arrives, not even their end, until this is taken back; then everything does.
    pub black_hole: bool,
    /// After this many bytes a connection is closed.
    pub byte_limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// What every connection watches.
#[derive(Clone, Debug, Default)]
struct Weather {
    to_server: Faults,
    to_client: Faults,
    /// Connections from before the last `close_all` end.
    closed_before: u64,
}

#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    weather: watch::Sender<Weather>,
    counts: Arc<Counts>,
    /// Closed by drop, which ends the thread.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    live: AtomicU64,
}

/// Whether to listen, and whom to tell when it is so.
#[derive(Debug)]
struct Order {
    listen: bool,
    done: SyncSender<()>,
}

impl FaultProxy {
    /// Starts between a free port and `upstream`, without faults.
    ///
    /// # Panics
    /// When the upstream is no address, or no port is free.
    pub fn start(upstream: impl ToSocketAddrs) -> FaultProxy {
        let upstream = upstream.to_socket_addrs().ok().and_then(|mut found| found.next());
        let upstream = upstream.expect("the upstream is an address");
        let port = Port::reserve().expect("there is a free port on 127.0.0.1");
        let (weather, watching) = watch::channel(Weather::default());
        let (orders, received) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let listening = Listening {
            number: port.number(),
            upstream,
            weather: watching,
            counts: Arc::clone(&counts),
            orders: received,
        };
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(move || listening.run());
        let proxy = FaultProxy {
            port,
            weather,
            counts,
            orders: Some(orders),
            thread: Some(thread.expect("a thread can start")),
        };
        proxy.accept();
        proxy
    }

    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The same faults in both directions.
    pub fn set(&self, faults: Faults) {
        self.weather.send_modify(|weather| {
            weather.to_client = faults.clone();
            weather.to_server = faults;
        });
    }

    /// Faults in one direction; the other stays as it is.
    pub fn set_one(&self, direction: Direction, faults: Faults) {
        self.weather.send_modify(|weather| match direction {
            Direction::ToServer => weather.to_server = faults,
            Direction::ToClient => weather.to_client = faults,
        });
    }

    pub fn heal(&self) {
        self.set(Faults::default());
    }

    /// Closes every connection there is.
    pub fn close_all(&self) {
        let accepted = self.accepted();
        self.weather.send_modify(|weather| weather.closed_before = accepted);
    }

    /// Stops listening: new connections are refused, live ones go on.
    pub fn refuse(&self) {
        self.listen(false);
    }

    /// Listens again, on the same port.
    pub fn accept(&self) {
        self.listen(true);
    }

    /// How many connections were ever accepted.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Acquire)
    }

    /// How many connections there are.
    pub fn live(&self) -> u64 {
        self.counts.live.load(Ordering::Acquire)
    }

    fn listen(&self, listen: bool) {
        let (done, is_done) = sync_channel(1);
        let orders = self.orders.as_ref().expect("orders close on drop only");
        orders.send(Order { listen, done }).expect("the proxy's thread lives as long as its handle");
        is_done.recv().expect("the proxy can listen on the port it holds");
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The proxy's own thread: accepts while it shall, and hands each connection to a task.
struct Listening {
    number: u16,
    upstream: SocketAddr,
    weather: watch::Receiver<Weather>,
    counts: Arc<Counts>,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl Listening {
    fn run(mut self) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can start");
        runtime.block_on(async {
            let mut listener: Option<TcpListener> = None;
            loop {
                tokio::select! {
                    order = self.orders.recv() => {
                        let Some(order) = order else { return };
                        if !order.listen {
                            listener = None;
                        } else if listener.is_none() {
                            let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, self.number)).await;
                            listener = Some(bound.expect("the port is held for this proxy"));
                        }
                        // The test that gave the order may have panicked meanwhile.
                        order.done.send(()).ok();
                    }
                    client = accept(listener.as_ref()) => self.serve(client),
                }
            }
        });
    }

    fn serve(&self, client: TcpStream) {
        let number = self.counts.accepted.fetch_add(1, Ordering::AcqRel);
        self.counts.live.fetch_add(1, Ordering::AcqRel);
        let (counts, weather, upstream) = (Arc::clone(&self.counts), self.weather.clone(), self.upstream);
        tokio::spawn(async move {
            relay::connection(client, upstream, number, weather).await;
            counts.live.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Waits for ever while nobody listens.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            // Out of file descriptors, most likely: some connection has to end first.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}
