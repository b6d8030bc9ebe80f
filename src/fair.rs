//! Fairness between API keys: which key is next ([`Turns`], [`Line`]), and how much each key may
//! hold ([`Quota`]).

use crate::types::KeyId;

/// The service that each key got, divided by its weight. The key with the least goes first. These
/// are the virtual token counters of Sheng et al., "Fairness in Serving Large Language Models",
/// 2024.
#[derive(Debug)]
pub struct Turns {
    keys: Box<[Turn]>,
    /// The key that was served last.
    last: Option<KeyId>,
}

#[derive(Debug)]
struct Turn {
    weight: f64,
    /// The generation of the key that has this place now. Service for an earlier key is not
    /// charged.
    generation: u32,
    /// The service, divided by the weight.
    served: f64,
}

impl Turns {
    /// One entry for each weight. Weights are positive.
    pub fn new(weights: &[f64]) -> Self {
        let turn = |weight: &f64| Turn { weight: *weight, generation: 0, served: 0.0 };
        Self { keys: weights.iter().map(turn).collect(), last: None }
    }

    /// Notes that a key sends something. `waits` tells whether the key at a place has something
    /// waiting.
    ///
    /// The level is the service of the least served other key that waits or, if none waits, of the
    /// key that was served last. A key with nothing waiting is raised to that level, so that it
    /// gets no credit for idle time. A key that is new at its place starts at that level: it
    /// neither owes anything for the key before it nor goes before all others.
    pub fn arrive(&mut self, key: KeyId, waits: impl Fn(usize) -> bool) {
        let (place, turn) = (key.index(), &self.keys[key.index()]);
        let is_new = key.generation > turn.generation;
        if !is_new && waits(place) {
            return;
        }
        let others = self.keys.iter().enumerate().filter(|(index, _)| *index != place);
        let waiting = others.filter(|(index, _)| waits(*index));
        let least = waiting.map(|(_, turn)| turn.served).reduce(f64::min);
        let floor = least.or(self.last.map(|key| self.served(key))).unwrap_or(0.0);
        let turn = &mut self.keys[place];
        if is_new {
            (turn.generation, turn.served) = (key.generation, floor);
        } else {
            turn.served = turn.served.max(floor);
        }
    }

    /// Limits how far the present keys may be behind the most served one of them: to `amount`,
    /// divided by that key's weight. Keys further behind are raised. Otherwise a key that always
    /// has something waiting, but too little to use its part, would collect ever more credit, and
    /// could later go before all others for a long time.
    pub fn bound_credit(&mut self, is_present: impl Fn(usize) -> bool, amount: f64) {
        let present = || (0..self.keys.len()).filter(|place| is_present(*place));
        let served = |place: &usize| self.keys[*place].served;
        let Some(most) = present().max_by(|a, b| served(a).total_cmp(&served(b))) else { return };
        let floor = served(&most) - amount / self.keys[most].weight;
        let turns = self.keys.iter_mut().enumerate().filter(|(place, _)| is_present(*place));
        turns.for_each(|(_, turn)| turn.served = turn.served.max(floor));
    }

    /// Whether a key still has its place. False once another key has taken it.
    pub fn has_place(&self, key: KeyId) -> bool {
        self.keys[key.index()].generation == key.generation
    }

    /// Notes that something of this key leaves the queue: the key was served last.
    pub fn leave(&mut self, key: KeyId) {
        self.last = Some(key);
    }

    /// Whether a key at this key's place was served last.
    fn was_last(&self, key: KeyId) -> bool {
        self.last.is_some_and(|last| last.index() == key.index())
    }

    /// Charges a key with an amount of service.
    pub fn serve(&mut self, key: KeyId, amount: f64) {
        if self.has_place(key) {
            let turn = &mut self.keys[key.index()];
            turn.served += amount / turn.weight;
        }
    }

    /// The service of a key, divided by its weight.
    pub fn served(&self, key: KeyId) -> f64 {
        self.keys[key.index()].served
    }
}

/// The tasks that wait for a lane, at most `N`. The key with the least service goes first. Its
/// smallest and its oldest task take turns: a small task waits for at most one large one, and a
/// large one is not put off forever.
pub struct Line<T, const N: usize> {
    waiting: heapless::Vec<Waiting<T>, N>, // in no order
    turns: Turns,
    /// For each key, whether its oldest task is next; otherwise its smallest.
    oldest_next: Box<[bool]>,
    arrived: u64,
}

struct Waiting<T> {
    key: KeyId,
    size: usize,
    number: u64,
    task: T,
}

impl<T, const N: usize> Line<T, N> {
    /// An empty line, with one entry for each weight.
    pub fn new(weights: &[f64]) -> Self {
        let oldest_next = vec![false; weights.len()].into_boxed_slice();
        Self { waiting: heapless::Vec::new(), turns: Turns::new(weights), oldest_next, arrived: 0 }
    }

    /// Adds a task of this expected size.
    ///
    /// # Panics
    /// If `N` tasks wait.
    pub fn push(&mut self, key: KeyId, size: usize, task: T) {
        let waits = |place| self.waiting.iter().any(|waiting| waiting.key.index() == place);
        self.turns.arrive(key, waits);
        self.arrived += 1;
        self.put_back(self.arrived, key, size, task);
    }

    /// Puts back the rest of a task that was taken out and partly done. It keeps its number, and so
    /// its age.
    ///
    /// # Panics
    /// As [`Line::push`].
    pub fn put_back(&mut self, number: u64, key: KeyId, size: usize, task: T) {
        let waiting = Waiting { key, size, number, task };
        assert!(self.waiting.push(waiting).is_ok(), "{N} tasks wait already");
    }

    /// Takes out the next task. Also returns its number.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let served = |waiting: &Waiting<T>| self.turns.served(waiting.key);
        // A key that has just arrived is level with the key at work. On a tie, the key at work goes
        // last.
        let was_last = |waiting: &Waiting<T>| self.turns.was_last(waiting.key);
        let least = self.waiting.iter().min_by(|a, b| {
            served(a).total_cmp(&served(b)).then_with(|| was_last(a).cmp(&was_last(b)))
        })?;
        let place = least.key.index();
        let oldest = &mut self.oldest_next[place];
        let order = |waiting: &Waiting<T>| match *oldest {
            true => (0, waiting.number),
            false => (waiting.size, waiting.number),
        };
        let own =
            self.waiting.iter().enumerate().filter(|(_, waiting)| waiting.key.index() == place);
        let (next, _) = own.min_by_key(|(_, waiting)| order(waiting))?;
        *oldest = !*oldest;
        let Waiting { number, task, .. } = self.waiting.swap_remove(next);
        Some((number, task))
    }

    /// Charges a key for a task, or for a part of one.
    pub fn serve(&mut self, key: KeyId, amount: f64) {
        self.turns.serve(key, amount);
        self.turns.leave(key);
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// A quantity that all keys share, such as bytes or places in a queue. Half of it is reserved for
/// the keys by their weights, so that one key cannot take all of it.
#[derive(Debug)]
pub struct Quota {
    whole: usize,
    keys: Box<[Part]>,
}

#[derive(Debug)]
struct Part {
    /// The amount that is reserved for the key.
    reserved: usize,
    held: usize,
}

impl Quota {
    /// All keys together may hold `whole`. One entry for each weight. Weights are positive.
    pub fn new(whole: usize, weights: &[f64]) -> Self {
        let all: f64 = weights.iter().sum();
        let part = |weight: &f64| Part {
            reserved: (whole as f64 * weight / (2.0 * all)) as usize,
            held: 0,
        };
        Self { whole, keys: weights.iter().map(part).collect() }
    }

    /// The most that all keys together may hold after this key takes more: the whole, less the
    /// parts that are reserved for other keys and not yet held by them.
    pub fn limit(&self, key: KeyId) -> usize {
        let others = self.keys.iter().enumerate().filter(|(index, _)| *index != key.index());
        let left = others.map(|(_, part)| part.reserved.saturating_sub(part.held));
        self.whole - left.sum::<usize>()
    }

    /// The most that a key may hold while no other key holds anything. It reveals nothing about the
    /// other keys, so it may be shown to clients.
    pub fn most(&self, key: KeyId) -> usize {
        let others = self.keys.iter().enumerate().filter(|(index, _)| *index != key.index());
        self.whole - others.map(|(_, part)| part.reserved).sum::<usize>()
    }

    /// Whether there are several keys.
    pub fn is_shared(&self) -> bool {
        self.keys.len() > 1
    }

    /// The amount that all keys hold together.
    pub fn held(&self) -> usize {
        self.keys.iter().map(|part| part.held).sum()
    }

    /// The amount held by the keys that have, or had, this key's place.
    pub fn held_by(&self, key: KeyId) -> usize {
        self.held_at(key.index())
    }

    /// The amount held by the keys of a place.
    pub fn held_at(&self, place: usize) -> usize {
        self.keys[place].held
    }

    /// Whether a key may take this much more.
    pub fn has_room(&self, key: KeyId, amount: usize) -> bool {
        self.held() + amount <= self.limit(key)
    }

    /// Adds to a key's amount. The caller has checked [`Quota::has_room`].
    pub fn take(&mut self, key: KeyId, amount: usize) {
        self.keys[key.index()].held += amount;
    }

    /// Subtracts from a key's amount.
    ///
    /// # Panics
    /// If it holds less.
    pub fn give(&mut self, key: KeyId, amount: usize) {
        let part = &mut self.keys[key.index()];
        let held = part.held;
        assert!(amount <= held, "key {} gives {amount} back and holds {held}", key.index());
        part.held -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId::at(0);
    const B: KeyId = KeyId::at(1);

    /// Serves a key while no other key waits.
    fn pass(turns: &mut Turns, key: KeyId, amount: f64) {
        turns.arrive(key, |_| false);
        turns.leave(key);
        turns.serve(key, amount);
    }

    #[test]
    fn a_key_that_was_idle_is_not_owed_what_it_did_not_use() {
        // Once while the other key waits, and once while no key waits.
        for waits in [true, false] {
            let mut turns = Turns::new(&[1.0, 2.0]);
            pass(&mut turns, A, 1000.0);
            turns.arrive(B, |place| waits && place == A.index());
            assert!((turns.served(B) - 1000.0).abs() < 1e-9, "{}", turns.served(B));
            // Twice the weight gets twice the tokens.
            turns.serve(A, 100.0);
            turns.serve(B, 200.0);
            assert!((turns.served(A) - turns.served(B)).abs() < 1e-9);
        }
    }

    /// A key with one endless stream gets no credit for the service that others got meanwhile.
    #[test]
    fn a_key_that_only_runs_does_not_save_up() {
        let mut turns = Turns::new(&[1.0, 1.0]);
        pass(&mut turns, A, 10.0);
        pass(&mut turns, B, 1000.0);
        turns.arrive(A, |_| false);
        assert!((turns.served(A) - turns.served(B)).abs() < 1e-9);
    }

    #[test]
    fn what_a_key_is_owed_is_bounded() {
        let mut turns = Turns::new(&[2.0, 1.0, 1.0]);
        turns.serve(A, 1000.0); // 500 for its weight
        turns.serve(B, 480.0);
        turns.bound_credit(|place| place < 2, 100.0);
        let served = |place| turns.served(KeyId::at(place));
        let is = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(is(served(0), 500.0) && is(served(1), 480.0) && is(served(2), 0.0), "near, absent");
        turns.bound_credit(|_| true, 100.0);
        assert!(is(turns.served(KeyId::at(2)), 450.0));
    }

    #[test]
    fn a_new_key_at_a_place_owes_nothing_for_the_one_before() {
        let mut turns = Turns::new(&[1.0, 1.0]);
        pass(&mut turns, A, 1000.0);
        pass(&mut turns, B, 10.0);
        let owed = turns.served(B);
        let new = KeyId { generation: 1, ..A };
        turns.arrive(new, |place| place == B.index());
        turns.serve(A, 500.0); // for work that the key before had begun
        assert!((turns.served(new) - owed).abs() < 1e-9, "{}", turns.served(new));
        turns.arrive(A, |_| false);
        assert!(turns.has_place(new) && !turns.has_place(A));
    }

    /// Otherwise it would go before all other keys while tasks of the key before it wait.
    #[test]
    fn a_new_key_waits_like_everybody_while_tasks_of_the_one_before_wait() {
        let mut line = Line::<&str, 8>::new(&[1.0, 1.0]);
        for (key, task) in [(A, "old"), (A, "old"), (B, "other"), (B, "other"), (B, "other")] {
            line.push(key, 1, task);
        }
        line.serve(A, 500.0);
        line.serve(B, 1000.0);
        let new = KeyId { generation: 1, ..A };
        line.push(new, 1, "new");
        let mut turns = Vec::new();
        while let Some((_, task)) = line.pop() {
            line.serve(if task == "other" { B } else { new }, 10.0);
            turns.push(task);
        }
        let others = turns.iter().take(4).filter(|task| **task == "other").count();
        assert_eq!(others, 2, "{turns:?}");
    }

    #[test]
    fn a_key_that_has_just_come_waits_for_one_piece_of_another() {
        let mut line = Line::<KeyId, 8>::new(&[1.0, 1.0]);
        for round in 0..6 {
            line.push(A, 1, A);
            line.push(A, 1, A);
            let (_, first) = line.pop().unwrap();
            line.serve(first, 10.0);
            line.push(B, 1, B); // it arrives while a piece of the other key's task runs
            let (_, next) = line.pop().unwrap();
            assert_eq!((first, next), (A, B), "round {round}");
            line.serve(B, 0.1);
        }
    }

    /// Two keys take turns. Each has a small task again and again, and a large one.
    #[test]
    fn a_large_task_has_its_turn_whatever_other_keys_do() {
        let mut line = Line::<(KeyId, usize), 8>::new(&[1.0, 1.0]);
        for key in [A, B] {
            line.push(key, 100, (key, 100));
        }
        let mut large = Vec::new();
        for _ in 0..4 {
            for key in [A, B] {
                line.push(key, 1, (key, 1));
            }
            for _ in 0..2 {
                let (_, (key, size)) = line.pop().unwrap();
                line.serve(key, 1.0);
                if size == 100 {
                    large.push(key);
                }
            }
        }
        large.sort_unstable_by_key(|key| key.index());
        assert_eq!(large, [A, B]);
    }

    #[test]
    fn the_rest_of_a_task_is_as_old_as_the_task() {
        let mut line = Line::<&str, 8>::new(&[1.0]);
        line.push(A, 50, "first");
        line.push(A, 60, "second");
        let (number, first) = line.pop().unwrap(); // the smallest
        line.put_back(number, A, 70, first);
        assert_eq!(line.pop().unwrap().1, "first", "the oldest");
    }

    #[test]
    fn a_quota_has_room_for_every_key() {
        let mut quota = Quota::new(80, &[1.0, 3.0]);
        assert_eq!((quota.limit(A), quota.limit(B)), (50, 70));
        // The amount that the other key holds is taken from the part that was reserved for that
        // key.
        quota.take(B, 20);
        assert_eq!((quota.limit(A), quota.held()), (70, 20));
        assert!(quota.has_room(A, 50) && !quota.has_room(A, 51));
        quota.give(B, 20);
        assert_eq!(quota.limit(A), 50);
        assert_eq!((quota.most(A), quota.most(B)), (50, 70), "whatever is held");
        assert_eq!(Quota::new(80, &[2.0]).limit(A), 80);
    }

    #[test]
    #[should_panic(expected = "key 1 gives 3 back and holds 2")]
    fn nobody_gives_back_more_than_it_holds() {
        let mut quota = Quota::new(80, &[1.0, 3.0]);
        quota.take(B, 2);
        quota.give(B, 3);
    }
}
