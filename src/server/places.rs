//! The places for connections. If all are taken, the connection that has been idle for longest is
//! closed for a new one: it gives way.
//!
//! A connection keeps its place while it has a request with a valid key. At all other times it is
//! idle: before the whole head has come, while a request is refused, and while it is answered on a
//! public path.
//!
//! A network may have at most three quarters of the places. For a further connection, one of its
//! own idle connections gives way. If none can give way, up to [`SPARE_CONNECTIONS_MAX`] more are
//! accepted for public paths only, so that health checks are answered. A connection that has been
//! idle for less than [`IDLE_GRACE`] does not give way: its request may be under way.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::{Rc, Weak};

use super::timers::Timer;
use crate::clock::Micros;
use crate::limits::{IDLE_GRACE, REFUSING_TIME_MAX, SPARE_CONNECTIONS_MAX};

/// All places.
pub struct Places {
    max: usize,
    state: RefCell<Occupancy>,
}

#[derive(Default)]
struct Occupancy {
    /// Connections with a place, without those that were told to leave.
    open: usize,
    /// Connections without a place, for public paths only.
    spare: usize,
    /// Connections that must leave and are still open.
    leaving: usize,
    /// Connections that have a request with a valid key.
    working: usize,
    by_network: HashMap<IpAddr, usize>,
    /// Connections in the order in which they became idle. An entry is stale if its connection has
    /// ended, or has had a request since.
    idle: VecDeque<(Weak<Place>, Idle)>,
    /// The number of times that any connection became idle.
    turns: u64,
    /// The times of the first and the last request that were refused because no place was free.
    /// `None` again once a connection gets a place or has a request.
    refused: Option<(Micros, Micros)>,
}

/// An idle period of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Idle {
    /// The number of the period among those of all connections, from 1.
    turn: u64,
    since: Micros,
}

/// The use of a place by its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// The connection is new, and does not wait for a request yet.
    New,
    /// The connection waits for a request, and may have to give way.
    Idle(Idle),
    /// The connection has a request with a valid key.
    Working,
    /// Its place was given to another connection. It has no place any more, and must close.
    Leaving,
}

/// The place of one connection. Dropping it frees the place.
pub struct Place {
    places: Rc<Places>,
    network: IpAddr,
    /// True if the connection has no place, and is open for public paths only.
    pub is_spare: bool,
    used: Cell<Use>,
    timer: Rc<Timer>,
}

impl Places {
    /// Makes `max` places.
    pub fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { max, state: RefCell::default() })
    }

    /// A place for a new connection from this address. `timer` wakes the connection if it must
    /// leave. If `is_short`, file descriptors run short, so an idle connection must close for the
    /// new one. `None` if no place and no spare place is free.
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
            state.refused = None;
        } else if state.spare < SPARE_CONNECTIONS_MAX {
            state.spare += 1;
        } else {
            return None;
        }
        Some(Rc::new(Place {
            places: self.clone(),
            network,
            is_spare: !has_room,
            used: Cell::new(Use::New),
            timer,
        }))
    }

    /// Tells the connection that has been idle for longest to close. Returns false if none can give
    /// way.
    pub fn dismiss_one(&self, now: Micros) -> bool {
        self.state.borrow_mut().dismiss(now, |_| true)
    }

    /// Notes that a request was refused because no place was free.
    pub fn refused(&self, now: Micros) {
        let mut state = self.state.borrow_mut();
        let first = state.refused.map_or(now, |(first, _)| first);
        state.refused = Some((first, now));
    }

    /// Whether no request runs, and every request has been refused for [`REFUSING_TIME_MAX`].
    /// Clients cannot cause this, because idle connections give way. Only a bug can.
    pub fn is_stuck(&self) -> bool {
        let state = self.state.borrow();
        let refuses = |(first, last): (Micros, Micros)| last >= first + REFUSING_TIME_MAX;
        state.working == 0 && state.refused.is_some_and(refuses)
    }

    /// Compares the counts with the number of open connections.
    ///
    /// # Panics
    /// If they differ.
    pub fn check(&self, connections: usize) {
        let Occupancy { open, spare, leaving, working, by_network, .. } = &*self.state.borrow();
        assert_eq!(
            open + spare + leaving,
            connections,
            "{open} places are taken, {spare} are spare and {leaving} connections leave, but \
             {connections} connections are open"
        );
        let networks: usize = by_network.values().sum();
        assert_eq!(networks, *open, "{networks} places of all networks, but {open} are taken");
        assert!(working <= open, "{working} connections work, but {open} have a place");
    }

    /// Most connections of one network.
    fn network_max(&self) -> usize {
        (self.max - self.max / 4).max(1)
    }
}

impl Occupancy {
    /// Frees the place of the connection that has been idle for longest, among those for which
    /// `is_meant` holds, and tells it to close. Returns false if none can give way.
    fn dismiss(&mut self, now: Micros, is_meant: impl Fn(&Place) -> bool) -> bool {
        let current = |entry: &(Weak<Place>, Idle)| {
            entry.0.upgrade().filter(|place| place.used.get() == Use::Idle(entry.1))
        };
        while self.idle.front().is_some_and(|entry| current(entry).is_none()) {
            self.idle.pop_front();
        }
        let old = self.idle.iter().take_while(|(_, idle)| idle.since + IDLE_GRACE <= now);
        let Some(place) = old.filter_map(current).find(|place| is_meant(place)) else {
            return false;
        };
        self.free(&place);
        self.leaving += 1;
        place.used.set(Use::Leaving);
        place.timer.wake();
        true
    }

    /// Frees the place of a connection that ends, or that must leave.
    fn free(&mut self, place: &Place) {
        match place.used.get() {
            Use::Leaving => return one_less(&mut self.leaving, "connections that leave"),
            Use::Working => self.ends_work(),
            Use::New | Use::Idle(_) => {}
        }
        if place.is_spare {
            return one_less(&mut self.spare, "spare places");
        }
        one_less(&mut self.open, "places");
        let of_network = self.by_network.get_mut(&place.network);
        let of_network = of_network.expect("a network with a place is in the books");
        one_less(of_network, "places of a network");
        if *of_network == 0 {
            self.by_network.remove(&place.network);
        }
    }

    fn ends_work(&mut self) {
        one_less(&mut self.working, "connections with a request");
        self.refused = None;
    }
}

/// Subtracts 1 from a count.
///
/// # Panics
/// If the count is 0.
fn one_less(count: &mut usize, what: &str) {
    let less = count.checked_sub(1);
    *count = less.unwrap_or_else(|| panic!("one of {count} {what} was given back"));
}

impl Place {
    /// Notes that the connection waits for a request. The idle period continues if the last request
    /// was on a public path or refused, and begins now if it had a valid key.
    ///
    /// # Panics
    /// If it must leave.
    pub fn rest(self: &Rc<Self>, now: Micros) {
        let mut state = self.places.state.borrow_mut();
        match self.used.get() {
            Use::Leaving => panic!("a connection that must leave waits for a request"),
            Use::Idle(_) => return,
            Use::Working => state.ends_work(),
            Use::New => {}
        }
        state.turns += 1;
        let idle = Idle { turn: state.turns, since: now };
        self.used.set(Use::Idle(idle));
        if self.is_spare {
            return; // it has none of the `max` places, so it need not give way
        }
        state.idle.push_back((Rc::downgrade(self), idle));
        // Each request leaves a stale entry. Remove them before they are many.
        if state.idle.len() > 2 * state.open + 64 {
            state.idle.retain(|(place, idle)| {
                place.upgrade().is_some_and(|place| place.used.get() == Use::Idle(*idle))
            });
        }
    }

    /// Notes that the connection has a request with a valid key. Returns false if it must leave.
    #[must_use]
    pub fn work(&self) -> bool {
        match self.used.get() {
            Use::Leaving => return false,
            Use::Working => return true,
            Use::New | Use::Idle(_) => {}
        }
        assert!(!self.is_spare, "a connection without a place has a request with a key");
        let mut state = self.places.state.borrow_mut();
        state.working += 1;
        state.refused = None;
        self.used.set(Use::Working);
        true
    }

    /// Whether its place was given to another connection. Once true, it stays true.
    pub fn must_leave(&self) -> bool {
        self.used.get() == Use::Leaving
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state.borrow_mut().free(self);
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
    use crate::random::SplitMix64;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    const BEGIN: Micros = Micros(0);
    /// A time at which connections that were idle from the start may give way.
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
        assert!(open[2].work()); // it was idle for longest, and has a request now
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
        let busy = [take(&places, 1), take(&places, 2)];
        assert!(busy.iter().flatten().all(|place| place.work()));
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
            assert!(place.work());
        }
        assert!(places.state.borrow().idle.len() < 100);
    }

    /// Otherwise a client without a key could keep a place by health checks.
    #[test]
    fn requests_on_public_paths_hold_no_place() {
        let places = Places::new(1);
        let old = take(&places, 1).unwrap();
        old.rest(BEGIN);
        old.rest(LATER); // it has asked for a public page
        assert!(!take(&places, 2).unwrap().is_spare && old.must_leave());
    }

    #[test]
    fn a_connection_that_must_leave_gets_no_work() {
        let places = Places::new(1);
        let old = take(&places, 1).unwrap();
        old.rest(BEGIN);
        let new = take(&places, 2).unwrap();
        assert!(!old.work() && old.must_leave() && new.work());
        places.check(2);
        drop(old);
        places.check(1);
        assert_eq!(places.state.borrow().open, 1, "its place was freed once");
    }

    /// A connection once did, and had to leave a second time.
    #[test]
    #[should_panic(expected = "a connection that must leave waits for a request")]
    fn a_connection_that_must_leave_does_not_wait_for_a_request() {
        let places = Places::new(1);
        let old = take(&places, 1).unwrap();
        old.rest(BEGIN);
        let _new = take(&places, 2);
        old.rest(LATER);
    }

    #[test]
    #[should_panic(expected = "one of 0 places was given back")]
    fn a_place_that_nobody_has_is_not_given_back() {
        one_less(&mut 0, "places");
    }

    #[test]
    #[should_panic(expected = "but 3 connections are open")]
    fn books_that_differ_from_the_connections_are_a_bug() {
        let places = Places::new(4);
        let _two = [take(&places, 1), take(&places, 2)];
        places.check(2);
        places.check(3);
    }

    #[test]
    fn only_a_fault_makes_a_server_refuse_for_long() {
        let places = Places::new(1);
        let refuse = |seconds: u64| places.refused(Micros(seconds * 1_000_000));
        let busy = take(&places, 1).unwrap();
        assert!(busy.work());
        (0..100).for_each(refuse);
        assert!(!places.is_stuck(), "it is only busy");
        busy.rest(BEGIN);
        assert!(!places.is_stuck(), "what was refused before does not count");
        refuse(100);
        assert!(!places.is_stuck());
        refuse(100 + REFUSING_TIME_MAX.as_secs());
        assert!(places.is_stuck(), "nobody works, and the idle one has not given way");
        let new = take(&places, 2).unwrap();
        assert!(!new.is_spare && !places.is_stuck(), "somebody gets a place");
    }

    /// Random connections come, work, idle and go, and the books are compared with plain sums.
    /// Connections that were told to leave sometimes have input waiting, and notice it later.
    #[test]
    fn the_books_agree_with_the_connections_at_every_time() {
        const MAX: usize = 8;
        for seed in 0..200 {
            let mut random = SplitMix64(seed);
            let places = Places::new(MAX);
            let mut open: Vec<Rc<Place>> = Vec::new();
            let mut told = 0;
            for step in 0..300 {
                let now = Micros(step * 50_000);
                let mut draw = |below: usize| (random.next_u64() % below as u64) as usize;
                match draw(6) {
                    0 | 1 => open.extend(places.take(
                        address(draw(3) as u8), // below 3
                        Rc::default(),
                        draw(20) == 0,
                        now,
                    )),
                    _ if open.is_empty() => {}
                    2 => drop(open.swap_remove(draw(open.len()))),
                    3 => {
                        let place = &open[draw(open.len())];
                        assert_eq!(
                            !place.is_spare && place.work(),
                            place.used.get() == Use::Working
                        );
                    }
                    4 => {
                        // As a connection does: it waits for a request, or leaves.
                        let index = draw(open.len());
                        if open[index].must_leave() {
                            open.swap_remove(index);
                        } else {
                            open[index].rest(now);
                        }
                    }
                    _ => {
                        places.dismiss_one(now);
                    }
                }
                places.check(open.len());
                let count = |is: &dyn Fn(&Place) -> bool| open.iter().filter(|p| is(p)).count();
                let having = |place: &Place| !place.is_spare && !place.must_leave();
                let state = places.state.borrow();
                assert_eq!(state.open, count(&having), "seed {seed}, step {step}");
                assert_eq!(state.working, count(&|p| p.used.get() == Use::Working), "seed {seed}");
                assert!(state.open <= MAX, "seed {seed}: {} have a place", state.open);
                for n in 0..3 {
                    let own = count(&|place| having(place) && place.network == address(n));
                    assert!(own <= places.network_max(), "seed {seed}: {own} of one network");
                }
                told = told.max(state.leaving);
            }
            assert!(told > 0, "seed {seed}: nobody had to leave");
            open.clear();
            places.check(0);
        }
    }
}
