//! The rings between the lanes: typed pairs of SPSC queues and their bells.
//!
//! ```text
//! front lane --FrontLink--> [ring: Box<Batch>] --DecodeLink--> decode lane
//!            <------------- [ring: Box<Batch>] <-------------
//! ```
//!
//! **Invariant:** a push never waits. There are fewer batches alive than a
//! ring has places (`limits.rs`), so a full ring is a bug.

pub mod bell;
pub mod message;

use std::sync::Arc;
use std::time::Duration;

use bell::{SocketBell, ThreadBell};
use message::Batch;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::limits::RING_CAPACITY;

/// The front lane's end.
pub struct FrontLink {
    down: Producer<Box<Batch>>,
    up: Consumer<Box<Batch>>,
    decode_bell: Arc<ThreadBell>,
}

/// The decode lane's end.
pub struct DecodeLink {
    down: Consumer<Box<Batch>>,
    up: Producer<Box<Batch>>,
    decode_bell: Arc<ThreadBell>,
    front_bell: Arc<SocketBell>,
    spin: Duration,
}

/// Both ends of the link between the front lane and the decode lane. `spin` is
/// how long the decode lane polls an empty ring before it parks.
pub fn link(front_bell: Arc<SocketBell>, spin: Duration) -> (FrontLink, DecodeLink) {
    let (down_tx, down_rx) = RingBuffer::new(RING_CAPACITY);
    let (up_tx, up_rx) = RingBuffer::new(RING_CAPACITY);
    let decode_bell = Arc::new(ThreadBell::default());
    (
        FrontLink { down: down_tx, up: up_rx, decode_bell: decode_bell.clone() },
        DecodeLink { down: down_rx, up: up_tx, decode_bell, front_bell, spin },
    )
}

impl FrontLink {
    /// Hands a batch to the decode lane.
    pub fn send(&mut self, batch: Box<Batch>) {
        assert!(self.down.push(batch).is_ok(), "the ring holds every batch alive");
        self.decode_bell.ring();
    }

    /// The next batch that came back, if one has.
    pub fn receive(&mut self) -> Option<Box<Batch>> {
        self.up.pop().ok()
    }

    /// True when [`FrontLink::receive`] would return a batch.
    pub fn is_ready(&self) -> bool {
        !self.up.is_empty()
    }
}

impl Drop for FrontLink {
    fn drop(&mut self) {
        self.decode_bell.close();
    }
}

impl DecodeLink {
    /// The next batch, waiting for one; `None` once the front lane is gone and
    /// all it sent has been received.
    pub fn receive(&mut self) -> Option<Box<Batch>> {
        self.decode_bell.wait(self.spin, || !self.down.is_empty());
        self.down.pop().ok()
    }

    /// Sends a batch back.
    pub fn send(&mut self, batch: Box<Batch>) {
        assert!(self.up.push(batch).is_ok(), "the ring holds every batch alive");
        self.front_bell.ring();
    }
}
