//! How often the guesses of a sequence come true.

use crate::limits::GUESSES_MAX;

/// How often the guesses of a sequence were made, and came true. The first guesses of a step, the
/// second ones and so on are counted apart: a text that finds many guesses is one that repeats
/// itself, so the later ones come true as often.
///
/// Each count covers about the last [`Luck::STEPS`] steps in which that guess was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Luck {
    guesses: [Count; GUESSES_MAX],
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
    /// Before the first guess, and again when it was not granted for a long time: it is worth a try.
    const HOPE: Self = Self { granted: 2.0, made: 2.0, kept: 1.4 };

    /// Moves towards another count by a part of the distance.
    fn approach(&mut self, other: Self, part: f32) {
        self.granted += part * (other.granted - self.granted);
        self.made += part * (other.made - self.made);
        self.kept += part * (other.kept - self.kept);
    }
}

impl Default for Luck {
    fn default() -> Self {
        Self { guesses: [Count::HOPE; GUESSES_MAX] }
    }
}

impl Luck {
    /// See [`Luck`].
    const STEPS: f32 = 16.0;

    /// The part by which a step without a guess brings back the hope in it.
    const FORGETS: f32 = 1.0 / 256.0;

    /// Learns that `kept` of `made` guesses came true.
    pub fn observe(&mut self, granted: usize, made: usize, kept: usize) {
        for (index, count) in self.guesses.iter_mut().enumerate() {
            let number = index + 1;
            if number > granted {
                count.approach(Count::HOPE, Self::FORGETS);
                continue;
            }
            count.approach(Count { granted: 0.0, made: 0.0, kept: 0.0 }, 1.0 / Self::STEPS);
            count.granted += 1.0;
            count.made += f32::from(u8::from(number <= made));
            count.kept += f32::from(u8::from(number <= kept));
        }
    }

    /// The chances that one more guess is made and that it comes true, behind `before` others.
    pub fn chances(&self, before: usize) -> (f64, f64) {
        let Count { granted, made, kept } = self.guesses[before];
        ((made / granted).into(), (kept / granted).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_guesses_are_counted_apart() {
        let mut luck = Luck::default();
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
        assert_eq!(luck.chances(8), (1.0, f64::from(0.7f32)), "never granted");
    }

    #[test]
    fn hope_comes_back() {
        let mut luck = Luck::default();
        (0..200).for_each(|_| luck.observe(1, 1, 0));
        let (_, hopeless) = luck.chances(0);
        (0..1000).for_each(|_| luck.observe(0, 0, 0));
        let (_, hope) = luck.chances(0);
        assert!(hopeless < 0.01 && hope > 0.5, "{hopeless} {hope}");
    }
}
