//! Connections and their places. A connection that has been idle for long may lose its place while
//! its next request is on its way.

use std::net::IpAddr;

use super::*;

/// A connection with a client.
pub(super) struct Link {
    place: Rc<Place>,
    /// It has a request, or the bytes of one wait to be read.
    pub(super) is_taken: bool,
}

impl World {
    /// A client sends the bytes of a request, on a connection that is open or on a new one.
    pub(super) fn arrive(&mut self) {
        self.to_come -= 1;
        if self.to_come > 0 {
            // Many come at once.
            let pause =
                if self.random.one_in(2) { 0 } else { self.random.within(0, self.pause_us) };
            self.after(Duration::from_micros(pause as u64), Occurrence::Arrive);
        }
        if self.random.one_in(self.changes_one_in()) {
            let time = self.within_us(0, 300_000);
            self.after(time, Occurrence::ChangeKey);
        }
        let free: Vec<usize> = (0..self.links.len()).filter(|link| self.is_free(*link)).collect();
        let link = if free.is_empty() || self.random.one_in(3) {
            let Some(link) = self.connect() else {
                self.count("closed", 1);
                return;
            };
            link
        } else {
            free[self.random.within(0, free.len() - 1)]
        };
        self.links[link].as_mut().expect("it is open").is_taken = true;
        // Its task runs later, and may have to leave by then.
        let slow = self.random.one_in(4);
        let late = if slow { self.within_us(0, 1_000_000) } else { self.within_us(0, 300) };
        self.after(late, Occurrence::Read(link));
    }

    fn is_free(&self, link: usize) -> bool {
        self.links[link].as_ref().is_some_and(|link| !link.is_taken)
    }

    fn connect(&mut self) -> Option<usize> {
        let address = IpAddr::from([10, 0, 0, self.random.within(0, 2) as u8]);
        let is_short = self.random.one_in(20);
        let place = self.places.take(address, Rc::default(), is_short, self.now)?;
        place.rest(self.now);
        self.links.push(Some(Link { place, is_taken: false }));
        Some(self.links.len() - 1)
    }

    /// A connection's task reads a request.
    pub(super) fn read(&mut self, link: usize) {
        let place = &self.links[link].as_ref().expect("it has bytes to read").place;
        if place.is_spare {
            self.places.refused(self.now);
            self.count("without a place", 1);
        } else if !place.work() {
            self.count("dismissed", 1);
        } else {
            return self.ask(link);
        }
        self.links[link] = None;
    }

    /// A connection's request has ended: it waits for the next one, or closes.
    pub(super) fn answered(&mut self, index: usize) {
        let link = self.clients[index].link;
        let closes = self.random.one_in(3);
        let place = &mut self.links[link];
        let Some(Link { place: held, is_taken }) = place else { return }; // the client has left
        if closes || held.must_leave() {
            *place = None;
        } else {
            *is_taken = false;
            held.rest(self.now);
        }
    }

    /// Connections that were told to leave do, as their tasks run. The books agree with what is open.
    pub(super) fn check_places(&mut self) {
        for link in &mut self.links {
            if link.as_ref().is_some_and(|link| !link.is_taken && link.place.must_leave()) {
                *link = None;
            }
        }
        self.places.check(self.links.iter().flatten().count());
        assert!(!self.places.is_stuck(), "all are refused, and nobody works");
    }
}
