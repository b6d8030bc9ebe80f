//! Draws random prompts, as token ids or as words.
//!
//! Token ids need no tokeniser and give prompts of an exact length. Words are for servers that take
//! no token ids; the length in tokens is then approximate.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Short, common words. With a space before it, each is one token in most vocabularies.
#[rustfmt::skip]
const WORDS: [&str; 128] = [
    "able", "acid", "air", "apple", "arm", "army", "art", "baby", "back", "ball", "band", "bank",
    "base", "bath", "bear", "bed", "bell", "bird", "blue", "boat", "body", "bone", "book", "box",
    "boy", "bread", "brown", "bus", "cake", "call", "camp", "car", "card", "cat", "chair", "child",
    "city", "clock", "cloud", "coal", "coat", "cold", "cook", "corn", "cup", "day", "deep", "desk",
    "dog", "door", "dress", "drive", "dry", "dust", "ear", "east", "egg", "eye", "face", "farm",
    "fire", "fish", "flag", "floor", "food", "foot", "fruit", "game", "gate", "girl", "glass",
    "gold", "grass", "gray", "green", "hair", "hall", "hand", "hat", "head", "heart", "hill",
    "home", "horse", "hot", "house", "ice", "iron", "key", "king", "knee", "lake", "lamp", "land",
    "leaf", "leg", "lion", "list", "love", "map", "milk", "moon", "neck", "nest", "night", "nose",
    "ocean", "oil", "park", "path", "pen", "plane", "rain", "red", "ring", "river", "road", "rock",
    "room", "rose", "salt", "sand", "sea", "ship", "shoe", "snow", "song", "star",
];

/// Draws prompts and lengths. A seed gives the same ones with every version of this program:
/// ChaCha8 is a fixed algorithm, rand's `StdRng` is not.
pub struct Prompts {
    random: ChaCha8Rng,
    ids: Range<u32>,
    /// Prompts drawn so far, so that no prompt repeats.
    drawn: HashSet<Vec<u32>>,
}

impl Prompts {
    /// Draws prompts of token ids for a vocabulary of `n_vocab` tokens.
    ///
    /// Ids come from `n_vocab / 8..n_vocab / 2`, which holds ordinary words. Special tokens, single
    /// bytes and reserved ids are at the start of a vocabulary (SentencePiece, BERT) or at its end
    /// (GPT, Llama 3, Qwen).
    pub fn new(n_vocab: u32, seed: u64) -> Result<Self, String> {
        let ids = n_vocab / 8..n_vocab / 2;
        if ids.len() < 2 {
            return Err(format!(
                "a vocabulary of {n_vocab} tokens is too small to draw prompts from"
            ));
        }
        Ok(Self { random: ChaCha8Rng::seed_from_u64(seed), ids, drawn: HashSet::new() })
    }

    /// Draws prompts of word numbers, for [`words`].
    pub fn of_words(seed: u64) -> Self {
        let ids = 0..WORDS.len() as u32; // 128
        Self { random: ChaCha8Rng::seed_from_u64(seed), ids, drawn: HashSet::new() }
    }

    /// The random generator, for the other draws that the seed decides.
    pub fn random(&mut self) -> &mut ChaCha8Rng {
        &mut self.random
    }

    /// Draws a prompt of `length` tokens that was not drawn before, so that a server's prefix cache
    /// cannot help. Very short prompts repeat once all of them are drawn.
    pub fn draw(&mut self, length: usize) -> Vec<u32> {
        const TRIES_MAX: usize = 100;
        for _ in 0..TRIES_MAX {
            let prompt = self.ids_of(length);
            if self.drawn.insert(prompt.clone()) {
                return prompt;
            }
        }
        self.ids_of(length)
    }

    /// Draws `count` prompts that share their first `prefix` tokens. Each has `own` further tokens.
    pub fn sharing(&mut self, count: usize, prefix: usize, own: usize) -> Vec<Vec<u32>> {
        let prefix = self.draw(prefix);
        (0..count).map(|_| [prefix.clone(), self.draw(own)].concat()).collect()
    }

    /// Draws a length from `range`, uniformly.
    pub fn length(&mut self, range: RangeInclusive<u32>) -> u32 {
        if range.start() == range.end() {
            return *range.start(); // does not advance the random generator
        }
        self.random.random_range(range)
    }

    fn ids_of(&mut self, length: usize) -> Vec<u32> {
        (0..length).map(|_| self.random.random_range(self.ids.clone())).collect()
    }
}

/// Writes a prompt as text, with one word for each number. Prompts that begin with the same numbers
/// begin with the same text.
pub fn words(prompt: &[u32]) -> String {
    let words: Vec<&str> = prompt.iter().map(|id| WORDS[*id as usize % WORDS.len()]).collect();
    words.join(" ")
}

/// The range of lengths for `--random-range-ratio`, as in vllm: from length · (1 − ratio) to length
/// · (1 + ratio), at least 1.
pub fn lengths(length: u32, ratio: f64) -> Result<RangeInclusive<u32>, String> {
    if !(0.0..1.0).contains(&ratio) {
        return Err(format!("--random-range-ratio is {ratio}; it must be from 0 to below 1"));
    }
    // `low` is at most `length`, and `high` is capped at u32::MAX, so both fit a u32.
    let scaled = |factor: f64| f64::from(length) * factor;
    let low = scaled(1.0 - ratio).floor() as u32;
    let high = scaled(1.0 + ratio).ceil().min(f64::from(u32::MAX)) as u32;
    Ok(low.max(1)..=high.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_differ_and_a_seed_repeats_them() {
        let draw = |seed| {
            let mut prompts = Prompts::new(151_936, seed).unwrap();
            (0..100).map(|_| prompts.draw(32)).collect::<Vec<_>>()
        };
        let prompts = draw(0);
        assert_eq!(prompts, draw(0));
        assert_ne!(prompts, draw(1));
        let distinct: HashSet<_> = prompts.iter().collect();
        assert_eq!(distinct.len(), 100);
        assert!(prompts.iter().flatten().all(|id| (18_992..75_968).contains(id)));
        assert!(prompts.iter().all(|prompt| prompt.len() == 32));
    }

    #[test]
    fn short_prompts_differ_as_long_as_there_are_any() {
        let mut prompts = Prompts::new(64, 3).unwrap(); // ids 8 to 31
        let first: HashSet<_> = (0..12).map(|_| prompts.draw(1)).collect();
        assert_eq!(first.len(), 12);
        for _ in 0..100 {
            assert_eq!(prompts.draw(1).len(), 1, "and then repeat");
        }
        assert!(Prompts::new(2, 0).is_err());
    }

    #[test]
    fn a_shared_prefix_is_shared_and_the_rest_is_not() {
        let mut prompts = Prompts::new(1000, 0).unwrap();
        let shared = prompts.sharing(8, 20, 12);
        assert!(shared.iter().all(|prompt| prompt.len() == 32));
        assert!(shared.iter().all(|prompt| prompt[..20] == shared[0][..20]));
        let own: HashSet<_> = shared.iter().map(|prompt| &prompt[20..]).collect();
        assert_eq!(own.len(), 8);
        assert_ne!(prompts.sharing(1, 20, 12)[0][..20], shared[0][..20]);
    }

    #[test]
    fn words_tell_prompts_apart_and_keep_their_prefixes() {
        let distinct: HashSet<&str> = WORDS.into_iter().collect();
        assert_eq!(distinct.len(), WORDS.len());
        assert!(WORDS.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
        let shared = Prompts::of_words(0).sharing(8, 20, 12);
        let texts: HashSet<String> = shared.iter().map(|prompt| words(prompt)).collect();
        assert_eq!(texts.len(), 8);
        assert!(texts.iter().all(|text| text.split(' ').count() == 32));
        assert!(texts.iter().all(|text| text.starts_with(&words(&shared[0][..20]))));
    }

    #[test]
    fn lengths_spread_around_the_middle() {
        assert_eq!(lengths(32, 0.0), Ok(32..=32));
        assert_eq!(lengths(100, 0.25), Ok(75..=125));
        assert_eq!(lengths(3, 0.5), Ok(1..=5));
        assert_eq!(lengths(1, 0.9), Ok(1..=2));
        for ratio in [-0.1, 1.0, f64::NAN] {
            assert!(lengths(32, ratio).is_err());
        }
        let mut prompts = Prompts::new(1000, 0).unwrap();
        let drawn: HashSet<u32> = (0..1000).map(|_| prompts.length(75..=125)).collect();
        assert_eq!(drawn.len(), 51);
    }
}
