//! The two ends of a link, and their construction. See [`super`].

use std::sync::Arc;
use std::time::Duration;

use super::bell::{SocketBell, ThreadBell};
use super::sync::{Consumer, Producer, RingBuffer};

/// The front lane's end.
pub struct FrontLink<T> {
    down: Producer<Box<T>>,
    up: Consumer<Box<T>>,
    lane_bell: Arc<ThreadBell>,
    /// Items sent and not yet received. `up` has room for all of them.
    in_flight: usize,
}

/// The other lane's end.
pub struct LaneLink<T> {
    down: Consumer<Box<T>>,
    up: Producer<Box<T>>,
    lane_bell: Arc<ThreadBell>,
    front_bell: Arc<SocketBell>,
    spin: Duration,
}

/// Makes both ends of a link with room for `capacity` items. `front_bell` wakes the front lane. The
/// other lane polls an empty ring for `spin` before it parks.
pub fn link<T>(
    capacity: usize,
    front_bell: Arc<SocketBell>,
    spin: Duration,
) -> (FrontLink<T>, LaneLink<T>) {
    let (down_tx, down_rx) = RingBuffer::new(capacity);
    let (up_tx, up_rx) = RingBuffer::new(capacity);
    let lane_bell = Arc::new(ThreadBell::default());
    (
        FrontLink { down: down_tx, up: up_rx, lane_bell: lane_bell.clone(), in_flight: 0 },
        LaneLink { down: down_rx, up: up_tx, lane_bell, front_bell, spin },
    )
}

impl<T> FrontLink<T> {
    /// Sends an item to the lane.
    ///
    /// # Errors
    /// Returns the item if the link is full.
    pub fn send(&mut self, item: Box<T>) -> Result<(), Box<T>> {
        if self.in_flight == self.down.buffer().capacity() {
            return Err(item);
        }
        assert!(self.down.push(item).is_ok(), "the ring holds every item in flight");
        self.in_flight += 1;
        self.lane_bell.ring();
        Ok(())
    }

    /// The next item that came back, if there is one.
    pub fn receive(&mut self) -> Option<Box<T>> {
        let item = self.up.pop().ok()?;
        self.in_flight -= 1;
        Some(item)
    }

    /// Items sent and not yet received.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True when [`FrontLink::receive`] would return an item.
    pub fn is_ready(&self) -> bool {
        !self.up.is_empty()
    }
}

impl<T> Drop for FrontLink<T> {
    fn drop(&mut self) {
        self.lane_bell.close();
    }
}

impl<T> LaneLink<T> {
    /// Waits for the next item. `None` if the front lane is gone and every item has been received.
    pub fn receive(&mut self) -> Option<Box<T>> {
        self.lane_bell.wait(self.spin, || !self.down.is_empty());
        self.down.pop().ok()
    }

    /// The next item, if there is one.
    pub fn try_receive(&mut self) -> Option<Box<T>> {
        self.down.pop().ok()
    }

    /// True when the front lane is gone.
    pub fn is_closed(&self) -> bool {
        self.lane_bell.is_closed()
    }

    /// Sends an item back.
    pub fn send(&mut self, item: Box<T>) {
        assert!(self.up.push(item).is_ok(), "the ring holds every item in flight");
        self.front_bell.ring();
    }
}
