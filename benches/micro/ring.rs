//! Measures the way of one batch from the front lane to the decode lane and back, through the
//! lanes' own rings and bells, between two pinned threads.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use corelane::limits::RING_CAPACITY;
use corelane::placement::{Topology, Wishes, pin_this_thread};
use corelane::ring::bell::SocketBell;
use corelane::ring::message::Batch;
use corelane::ring::{FrontLink, LaneLink, link};
use criterion::{Criterion, criterion_group};

/// How a lane waits for the other.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// By polling, as on a core of its own.
    Poll,
    /// By sleeping in the kernel each time, as on a shared core.
    Sleep,
}

/// The front lane's side, and the other side's thread.
struct Pair {
    link: FrontLink<Batch>,
    bell: Arc<SocketBell>,
    socket: UnixStream,
    wait: Wait,
    batch: Option<Box<Batch>>,
    decode: std::thread::JoinHandle<()>,
}

impl Pair {
    fn new(wait: Wait, decode_core: usize) -> Self {
        let (bell, socket) = SocketBell::new().expect("a socket pair");
        socket.set_nonblocking(false).expect("a live socket");
        let bell = Arc::new(bell);
        let spin = match wait {
            Wait::Poll => Duration::from_secs(3600),
            Wait::Sleep => Duration::ZERO,
        };
        let (link, other) = link(RING_CAPACITY, bell.clone(), spin);
        let decode = std::thread::spawn(move || echo(other, decode_core));
        Self { link, bell, socket, wait, batch: Some(Box::default()), decode }
    }

    /// Sends a batch there and back.
    fn round_trip(&mut self) {
        let batch = self.batch.take().expect("the batch is here");
        assert!(self.link.send(batch).is_ok(), "the link holds it");
        let back = loop {
            match self.link.receive() {
                Some(batch) => break batch,
                None if self.wait == Wait::Poll => std::hint::spin_loop(),
                None => self.sleep(),
            }
        };
        self.batch = Some(back);
    }

    /// Sleeps as the front lane does between events. A blocking read replaces its executor's wait.
    fn sleep(&mut self) {
        self.bell.announce();
        if !self.link.is_ready() {
            let read = self.socket.read(&mut [0; 64]);
            assert!(read.expect("the other side lives") > 0);
        }
        self.bell.withdraw();
    }

    fn end(self) {
        drop(self.link);
        self.decode.join().expect("the other side ends");
    }
}

/// A decode lane whose steps take no time.
fn echo(mut link: LaneLink<Batch>, core: usize) {
    pin_this_thread(&[core]).expect("a core that may be used");
    while let Some(batch) = link.receive() {
        link.send(batch);
    }
}

fn ring(c: &mut Criterion) {
    let placement = Topology::read().and_then(|topology| topology.place(&Wishes::default()));
    let placement = placement.expect("the machine can be read");
    let front = placement.front_core;
    let Some(decode) = placement.decode_cores.iter().copied().find(|core| *core != front) else {
        eprintln!("left out: a round trip needs two cores");
        return;
    };
    pin_this_thread(&[front]).expect("a core that may be used");
    let mut group = c.benchmark_group("a batch to the decode lane and back");
    for (name, wait) in [("both poll", Wait::Poll), ("both sleep", Wait::Sleep)] {
        let mut pair = Pair::new(wait, decode);
        group.bench_function(name, |b| b.iter(|| pair.round_trip()));
        pair.end();
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = ring);
