//! The places for connections. When they run short, the connection that has been idle for longest
//! gives way.
//!
//! A connection keeps its place while it has a request with a valid key. At all other times it is
//! idle: before the whole head has come, while a request is refused, and while it is answered on a
//! public path.
//!
//! No network may have more than three quarters of the places: the oldest of its own idle
//! connections then gives way. If nothing is idle, a few connections more are let in for public
//! paths, so that health checks are always answered. A connection that is idle for less than
//! [`IDLE_GRACE`] does not give way: its request may be on its way.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::{Rc, Weak};

use super::timers::Timer;
use crate::clock::Micros;
use crate::limits::{IDLE_GRACE, SPARE_CONNECTIONS_MAX};

/// All places.
pub(super) struct Places {
    max: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Connections with a place, without those that were told to leave.
    open: usize,
    /// Connections that were let in for public paths only.
    spare: usize,
    by_network: HashMap<IpAddr, usize>,
    /// Connections in the order in which they became idle. An entry is stale if its connection has
    /// ended, or has had a request since.
    idle: VecDeque<(Weak<Place>, Idle)>,
    /// The number of times that a connection became idle.
    turns: u64,
}

/// A time in which a connection is idle.
#[derive(Clone, Copy, PartialEq)]
struct Idle {
    /// Its number, from 1.
    turn: u64,
    since: Micros,
}

/// The place of one connection. Dropping it frees the place.
pub(super) struct Place {
    places: Rc<Places>,
    network: IpAddr,
    /// It was let in for public paths only.
    pub is_spare: bool,
    /// Set while it is idle.
    idle: Cell<Option<Idle>>,
    /// It must close: its place was given to another connection.
    must_leave: Cell<bool>,
    timer: Rc<Timer>,
}

impl Places {
    pub fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { max, state: RefCell::default() })
    }

    /// A place for a new connection from this address, which `timer` wakes. `None` if the spare
    /// places are taken, too. `is_short` says that open files run short: an idle connection must
    /// then close for the new one.
    pub fn take(
        self: &Rc<Self>,
        address: IpAddr,
        timer: Rc<Timer>,
        is_short: bool,
        now: Micros,
    ) -> Option<Rc<Place>> {
        let network = network_of(address);
        let mut state = self.state.borrow_mut();
        let of_network = state.by_network.get(&network).copied().unwrap_or(0);
        let mut has_room = true;
        if of_network >= self.network_max() {
            has_room = state.dismiss(now, |place| place.network == network);
        } else if state.open >= self.max || is_short {
            has_room = state.dismiss(now, |_| true);
        }
        if has_room {
            state.open += 1;
            *state.by_network.entry(network).or_default() += 1;
        } else if state.spare < SPARE_CONNECTIONS_MAX {
            state.spare += 1;
        } else {
            return None;
        }
        Some(Rc::new(Place {
            places: self.clone(),
            network,
            is_spare: !has_room,
            idle: Cell::new(None),
            must_leave: Cell::new(false),
            timer,
        }))
    }

    /// The oldest idle connection gives way. Returns false if none is idle.
    pub fn dismiss_one(&self, now: Micros) -> bool {
        self.state.borrow_mut().dismiss(now, |_| true)
    }

    /// Most connections of one network.
    fn network_max(&self) -> usize {
        (self.max - self.max / 4).max(1)
    }
}

impl State {
    /// Tells the oldest idle connection for which `is_meant` holds to leave, and frees its place.
    fn dismiss(&mut self, now: Micros, is_meant: impl Fn(&Place) -> bool) -> bool {
        let current = |entry: &(Weak<Place>, Idle)| {
            entry.0.upgrade().filter(|place| place.idle.get() == Some(entry.1))
        };
        while self.idle.front().is_some_and(|entry| current(entry).is_none()) {
            self.idle.pop_front();
        }
        let old = self.idle.iter().take_while(|(_, idle)| idle.since + IDLE_GRACE <= now);
        let Some(place) = old.filter_map(current).find(|place| is_meant(place)) else {
            return false;
        };
        place.idle.set(None);
        place.must_leave.set(true);
        place.timer.wake();
        self.free(&place);
        true
    }

    fn free(&mut self, place: &Place) {
        if place.is_spare {
            self.spare -= 1;
            return;
        }
        self.open -= 1;
        if let Some(count) = self.by_network.get_mut(&place.network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&place.network);
            }
        }
    }
}

impl Place {
    /// The connection waits for a request.
    pub fn rest(self: &Rc<Self>, now: Micros) {
        let mut state = self.places.state.borrow_mut();
        state.turns += 1;
        let idle = Idle { turn: state.turns, since: now };
        self.idle.set(Some(idle));
        if self.is_spare {
            return; // it has none of the places that could run short
        }
        state.idle.push_back((Rc::downgrade(self), idle));
        // Each request leaves a stale entry.
        if state.idle.len() > 2 * state.open + 64 {
            state.idle.retain(|(place, idle)| {
                place.upgrade().is_some_and(|place| place.idle.get() == Some(*idle))
            });
        }
    }

    /// The connection has a request with a valid key.
    pub fn work(&self) {
        self.idle.set(None);
    }

    /// Whether its place was given away.
    pub fn must_leave(&self) -> bool {
        self.must_leave.get()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.must_leave.get() {
            self.places.state.borrow_mut().free(self);
        }
    }
}

/// The network that counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    const BEGIN: Micros = Micros(0);
    /// Whoever is idle since the beginning may give way.
    const LATER: Micros = Micros(10_000_000);

    fn take(places: &Rc<Places>, last: u8) -> Option<Rc<Place>> {
        places.take(address(last), Rc::default(), false, LATER)
    }

    #[test]
    fn the_oldest_idle_connection_gives_way() {
        let places = Places::new(4);
        let open: Vec<_> = (0..4).map(|n| take(&places, n).unwrap()).collect();
        for place in [2, 0, 1, 3] {
            open[place].rest(BEGIN);
        }
        open[2].work(); // it was idle for longest, and has a request now
        let new = take(&places, 9).unwrap();
        assert!(!new.is_spare);
        assert_eq!([0, 1, 2, 3].map(|n| open[n].must_leave()), [true, false, false, false]);
        open[2].rest(BEGIN);
        drop(new);
        take(&places, 9).unwrap();
        assert!(!open[1].must_leave(), "the last one left by itself");
    }

    #[test]
    fn when_all_work_a_few_more_are_let_in_for_health_checks() {
        let places = Places::new(2);
        let _busy = [take(&places, 1), take(&places, 2)];
        let spare: Vec<_> = std::iter::from_fn(|| take(&places, 3)).collect();
        assert_eq!(spare.len(), SPARE_CONNECTIONS_MAX);
        assert!(spare.iter().all(|place| place.is_spare));
        drop(spare);
        assert!(take(&places, 3).is_some());
        assert!(!places.dismiss_one(LATER), "nothing is idle");
    }

    #[test]
    fn a_connection_has_time_to_send_its_request() {
        let places = Places::new(10);
        let old = take(&places, 1).unwrap();
        old.rest(BEGIN);
        let short = |now| places.take(address(2), Rc::default(), true, now).unwrap();
        let early = short(BEGIN);
        assert!(early.is_spare && !old.must_leave());
        assert!(!short(BEGIN + IDLE_GRACE).is_spare && old.must_leave());
    }

    #[test]
    fn one_network_cannot_take_all_places() {
        let places = Places::new(8);
        let mut greedy = Vec::new();
        for _ in 0..20 {
            let place = take(&places, 1).unwrap();
            place.rest(BEGIN);
            greedy.push(place);
        }
        assert_eq!(greedy.iter().filter(|place| !place.must_leave()).count(), 6);
        let others: Vec<_> = (2..4).map(|n| take(&places, n).unwrap()).collect();
        assert!(others.iter().all(|place| !place.is_spare));
        let six = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:1:2:3"));
        assert_ne!(six("2001:db8::1"), six("2001:db8:0:1::1"));
        assert_eq!(six("::ffff:10.0.0.1"), address(1));
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let places = Places::new(10);
        let place = take(&places, 1).unwrap();
        for _ in 0..10_000 {
            place.rest(BEGIN);
            place.work();
        }
        assert!(places.state.borrow().idle.len() < 100);
    }
}
