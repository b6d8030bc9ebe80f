//! How often the guesses of a sequence come true.

use crate::limits::GUESSES_MAX;

/// How often the guesses of a sequence were made, and came true. The first guesses of a step, the
/// second ones and so on have separate counts: a text in which many guesses are found repeats
/// itself, so its later guesses come true as often as its first ones.
///
/// Each count covers about the last [`Luck::STEPS`] steps in which that guess was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Luck {
    guesses: [Count; GUESSES_MAX],
    /// The initial probability that a guess comes true if the one before it did.
    chance_of_next: f32,
    /// The fraction by which a step that did not grant a guess moves its count back to the initial
    /// one.
    forgets: f32,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    /// Steps in which this guess was granted.
    granted: f32,
    /// Steps in which it was made.
    made: f32,
    /// Steps in which it came true.
    kept: f32,
}

impl Count {
    /// The initial count of a guess with an assumed probability of coming true.
    fn hope(chance: f32) -> Self {
        Self { granted: 2.0, made: 2.0, kept: 2.0 * chance }
    }

    /// Moves towards another count by a part of the distance.
    fn approach(&mut self, other: Self, part: f32) {
        self.granted += part * (other.granted - self.granted);
        self.made += part * (other.made - self.made);
        self.kept += part * (other.kept - self.kept);
    }
}

impl Luck {
    /// The initial probability that a first guess comes true. It is high, so that one is tried. The
    /// estimate returns to it while no guess is granted.
    const HOPE: f32 = 0.7;

    /// See [`Luck`].
    const STEPS: f32 = 16.0;

    /// The initial luck of guesses from the text. A text that does not repeat itself offers few
    /// guesses, so trying costs little.
    pub fn of_text() -> Self {
        Self::new(1.0, 1.0 / 256.0)
    }

    /// The initial luck of a draft model's guesses. Each takes time, and each may be wrong in any
    /// text, so later guesses start with a lower probability.
    pub fn of_draft() -> Self {
        Self::new(Self::HOPE, 1.0 / 1024.0)
    }

    fn new(chance_of_next: f32, forgets: f32) -> Self {
        let mut luck =
            Self { guesses: [Count::hope(Self::HOPE); GUESSES_MAX], chance_of_next, forgets };
        for index in 1..GUESSES_MAX {
            luck.guesses[index] = luck.hope(index);
        }
        luck
    }

    fn hope(&self, index: usize) -> Count {
        Count::hope(Self::HOPE * self.chance_of_next.powi(index as i32)) // below GUESSES_MAX
    }

    /// Learns that `kept` of `made` guesses came true.
    pub fn observe(&mut self, granted: usize, made: usize, kept: usize) {
        for index in 0..GUESSES_MAX {
            let (number, hope) = (index + 1, self.hope(index));
            let count = &mut self.guesses[index];
            if number > granted {
                count.approach(hope, self.forgets);
                continue;
            }
            count.approach(Count { granted: 0.0, made: 0.0, kept: 0.0 }, 1.0 / Self::STEPS);
            count.granted += 1.0;
            count.made += f32::from(u8::from(number <= made));
            count.kept += f32::from(u8::from(number <= kept));
        }
    }

    /// The probabilities that the guess behind `before` others is made, and that it comes true.
    /// They are no higher than those of the guesses before it, which must be made and come true,
    /// too.
    pub fn chances(&self, before: usize) -> (f64, f64) {
        let chances = self.guesses[..=before].iter().map(|count| {
            let Count { granted, made, kept } = *count;
            (f64::from(made / granted), f64::from(kept / granted))
        });
        chances.fold((1.0, 1.0), |(made, kept), next| (made.min(next.0), kept.min(next.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_guesses_are_counted_apart() {
        let mut luck = Luck::of_text();
        for step in 0..200 {
            // In one step of four, six guesses are made, and four come true.
            let (made, kept) = if step % 4 == 0 { (6, 4) } else { (0, 0) };
            luck.observe(8, made, kept);
        }
        for (before, expected) in
            [(0, (0.25, 0.25)), (3, (0.25, 0.25)), (4, (0.25, 0.0)), (6, (0.0, 0.0))]
        {
            let (made, kept) = luck.chances(before);
            let near = |found: f64, expected: f64| (found - expected).abs() < 0.08;
            assert!(near(made, expected.0) && near(kept, expected.1), "{before}: {made} {kept}");
        }
        let hoped = luck.guesses[8];
        assert_eq!((hoped.made, hoped.kept), (2.0, 1.4), "never granted");
        assert_eq!(luck.chances(8), luck.chances(7), "no better than the one before");
    }

    #[test]
    fn hope_comes_back() {
        let mut luck = Luck::of_text();
        (0..200).for_each(|_| luck.observe(1, 1, 0));
        let (_, hopeless) = luck.chances(0);
        (0..1000).for_each(|_| luck.observe(0, 0, 0));
        let (_, hope) = luck.chances(0);
        assert!(hopeless < 0.01 && hope > 0.5, "{hopeless} {hope}");
    }
}
