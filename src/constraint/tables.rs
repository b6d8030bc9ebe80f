//! Compiles a constraint into a form that matchers use. Our own part of the time is bounded.
//! llguidance's part is not, because it cannot be stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, TokenParser};

use super::error::{ConstraintError, tidy};
use super::kind::Constraint;
use super::{gbnf, lark, regex, schema, watch};
use crate::clock::cpu_time;
use crate::limits::{
    CONSTRAINT_STEP_FUEL, CONSTRAINT_STEP_ITEMS_MAX, CONSTRAINT_TOKEN_BYTES_MAX,
    CONSTRAINT_TOKEN_TIME_MAX,
};
use crate::memory::live_bytes_on_this_thread;
use crate::model::vocab::Vocab;
use crate::types::TokenId;

/// Fast masks in a row after which a constraint counts as fast.
const MASKS_TO_PROVE: u32 = 64;

/// Most processor time to compile a constraint and its first mask in the server. It is the time of
/// a trial, with room for a slower run.
const CONSTRAINT_COMPILE_TIME_MAX: Duration = Duration::from_secs(1);

/// llguidance's fuel (work on regular expressions) for compiling a constraint. Its authors state
/// 50,000 units a millisecond.
const CONSTRAINT_COMPILE_FUEL: u64 = 500_000;

/// Most symbols in llguidance's grammar of a constraint.
const CONSTRAINT_SYMBOLS_MAX: usize = 50_000;

/// Most Earley items at one position of a text: the ways in which the grammar may go on. The time
/// of a mask grows with the square of their number. This number usually takes 20 to 50 ms (by hand,
/// on two cores of a 2.5 GHz Xeon), and 400 ms if every item follows from every other.
const CONSTRAINT_ROW_ITEMS_MAX: usize = 1000;

/// Most states of one constraint's lexer, of about a kilobyte each. A string with a `maxLength`
/// takes about ten states for each of its characters.
const CONSTRAINT_LEXER_STATES_MAX: usize = 1 << 16;

/// The data of a vocabulary that compiling needs. Compilers share it.
pub struct Tables {
    factory: ParserFactory,
    tokens: Arc<Tokens>,
}

/// A compiled constraint.
pub struct Compiled {
    /// The matcher's initial state. It never changes; each sequence uses a clone. A clone has a
    /// lexer of its own, so that one sequence cannot use up another's states.
    pub(super) start: TokenParser,
    pub(super) tokens: Arc<Tokens>,
    /// Whether it names control tokens, such as the markers of tool calls.
    pub(super) names_control: bool,
    bytes: usize,
    /// The approximate bytes of all memory that was allocated for it.
    pub(super) kept_bytes: usize,
    masks: Masks,
}

/// Counts the masks of all texts with one constraint. Written and read by the scheduler.
#[derive(Default)]
struct Masks {
    /// The number of masks. From [`MASKS_TO_PROVE`] on, the constraint counts as fast if none of
    /// them was slow.
    count: AtomicU32,
    /// At least one mask was slow.
    is_slow: AtomicBool,
}

impl Compiled {
    /// The approximate bytes of a matcher at the start.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts a mask of one of its texts.
    pub fn count_mask(&self, is_slow: bool) {
        self.masks.count.fetch_add(1, Ordering::Relaxed);
        if is_slow {
            self.masks.is_slow.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one of its masks was slow.
    pub fn is_slow(&self) -> bool {
        self.masks.is_slow.load(Ordering::Relaxed)
    }

    /// Whether its masks are known to be fast.
    pub fn is_fast(&self) -> bool {
        !self.is_slow() && self.masks.count.load(Ordering::Relaxed) >= MASKS_TO_PROVE
    }
}

impl PartialEq for Compiled {
    /// Compiled constraints are equal only if they are the same object.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

/// The vocabulary's special tokens.
pub(super) struct Tokens {
    /// Tokens in the vocabulary.
    pub count: usize,
    /// The tokens that end a generation.
    pub ends: Vec<u32>,
    /// Control tokens that do not end a generation, and tokens without bytes.
    pub hidden: Vec<u32>,
}

impl Tables {
    /// Tables for a model's vocabulary. For a large vocabulary this takes seconds (llguidance
    /// walks all of it for each of its slices) and some tens of megabytes.
    ///
    /// # Errors
    /// If the vocabulary has no end token, or exceeds llguidance's tables.
    pub fn new(vocab: &Vocab) -> Result<Self, String> {
        let n_tokens = TokenId::try_from(vocab.n_tokens()).map_err(|error| error.to_string())?;
        let words = (0..n_tokens).map(|token| vocab.bytes_of(token).to_vec()).collect();
        Self::of_words(words, vocab.end_tokens())
    }

    /// Tables for tokens with these bytes. Control tokens have none.
    ///
    /// # Errors
    /// As [`Tables::new`].
    pub fn of_words(mut words: Vec<Vec<u8>>, end_tokens: &[TokenId]) -> Result<Self, String> {
        let count = words.len();
        let in_range =
            |token: &TokenId| u32::try_from(*token).ok().filter(|t| (*t as usize) < count);
        let ends: Vec<u32> = end_tokens.iter().filter_map(in_range).collect();
        if ends.is_empty() {
            return Err("the model has no token that ends a text".into());
        }
        // An end token's spelling must not match text. 0xFF never occurs in UTF-8, and llguidance
        // marks special tokens with it.
        for (token, word) in words.iter_mut().enumerate() {
            let is_text = word.len() <= CONSTRAINT_TOKEN_BYTES_MAX && !word.contains(&0xFF);
            if !is_text || ends.contains(&(token as u32)) {
                word.clear();
            }
        }
        let is_hidden = |token: &u32| words[*token as usize].is_empty() && !ends.contains(token);
        let hidden = (0..count as u32).filter(is_hidden).collect();
        // The trie panics if a bound of its own is exceeded.
        let factory = catch_unwind(AssertUnwindSafe(|| Ok(factory(&words, &ends))))
            .map_err(|error| tidy(&error.to_string()))??;
        let tokens = Arc::new(Tokens { count, ends, hidden });
        Ok(Self { factory, tokens })
    }

    /// The number of tokens, and the end tokens.
    pub(super) fn shape(&self) -> (usize, Vec<TokenId>) {
        (self.tokens.count, self.tokens.ends.iter().map(|end| end.cast_signed()).collect())
    }

    /// The tokens that a grammar may name (`<think>`, `<[42]>`), with their bytes.
    pub(super) fn named_in(&self, constraint: &Constraint) -> Vec<(usize, Vec<u8>)> {
        let (Constraint::Gbnf(source) | Constraint::Lark(source)) = constraint else {
            return Vec::new();
        };
        let trie = self.factory.tok_env().tok_trie();
        let named = |piece: &str| {
            let name = piece.split('>').next()?;
            let id = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
                Some(id) => id.parse().ok().filter(|id| (*id as usize) < self.tokens.count)?,
                None => trie.token_id(format!("<{name}>").as_bytes())?,
            };
            Some((id as usize, trie.token(id).to_vec()))
        };
        let named: BTreeMap<usize, Vec<u8>> = source.split('<').skip(1).filter_map(named).collect();
        named.into_iter().collect()
    }

    /// Compiles a constraint.
    ///
    /// # Errors
    /// The constraint's error and its place, or the bound that it exceeds.
    pub(super) fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError> {
        // This thread's processor time: time that the core spent on other threads does not count.
        let (began, live_before) = (cpu_time(), live_bytes_on_this_thread());
        let grammar = self.grammar(constraint)?;
        let mut start =
            self.factory.create_parser(grammar).map_err(|error| refused(&error.to_string()))?;
        // Compute and keep the first mask, so that no sequence computes it again. This also finds
        // grammars that allow no text.
        watch::work(&mut start, CONSTRAINT_TOKEN_TIME_MAX, |start| {
            start.start_without_prompt();
            start.compute_mask()
        })
        .map_err(|error| refused(&format!("no text satisfies the constraint: {error}")))?;
        let took = cpu_time().saturating_sub(began);
        if took > CONSTRAINT_COMPILE_TIME_MAX {
            let (took, bound) = (took.as_millis(), CONSTRAINT_COMPILE_TIME_MAX.as_millis());
            return Err(ConstraintError(format!(
                "the constraint took {took} ms to compile; it may take {bound} ms"
            )));
        }
        let (bytes, live) = (bytes_of(&start), live_bytes_on_this_thread() - live_before);
        Ok(Compiled {
            bytes,
            kept_bytes: bytes.max(usize::try_from(live).unwrap_or(0)),
            start,
            tokens: self.tokens.clone(),
            names_control: matches!(constraint, Constraint::Lark(_)),
            masks: Masks::default(),
        })
    }

    fn grammar(&self, constraint: &Constraint) -> Result<TopLevelGrammar, ConstraintError> {
        Ok(match constraint {
            Constraint::JsonObject => TopLevelGrammar::from_json_schema(schema::any_object()),
            Constraint::JsonSchema(source) => {
                TopLevelGrammar::from_json_schema(schema::read(source)?)
            }
            Constraint::Regex(source) => {
                regex::check_whole(source)?;
                TopLevelGrammar::from_regex(source)
            }
            Constraint::Gbnf(source) => {
                let trie = self.factory.tok_env().tok_trie();
                TopLevelGrammar::from_lark(gbnf::to_lark(source, trie)?)
            }
            Constraint::Lark(source) => TopLevelGrammar::from_lark(lark::checked(source)?),
        })
    }
}

impl Tokens {
    /// The end tokens only.
    pub fn end_set(&self) -> SimpleVob {
        let mut set = SimpleVob::alloc(self.count);
        for end in &self.ends {
            set.allow_token(*end);
        }
        set
    }
}

/// The bytes of a parser's lexer. The rest of a parser is small.
pub(super) fn bytes_of(parser: &TokenParser) -> usize {
    parser.parser.lexer_stats().num_bytes
}

fn factory(words: &[Vec<u8>], ends: &[u32]) -> Result<ParserFactory, String> {
    // Token ids are 32 bits wide, so the number fits.
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    let trie = TokTrie::from(&info, words).with_eos_tokens(ends);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&env).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        max_items_in_row: CONSTRAINT_ROW_ITEMS_MAX,
        initial_lexer_fuel: CONSTRAINT_COMPILE_FUEL,
        step_lexer_fuel: CONSTRAINT_STEP_FUEL,
        step_max_items: CONSTRAINT_STEP_ITEMS_MAX,
        max_lexer_states: CONSTRAINT_LEXER_STATES_MAX,
        max_grammar_size: CONSTRAINT_SYMBOLS_MAX,
        // This would walk the whole trie for each large lexeme, and there may be many.
        precompute_large_lexemes: false,
        verbose_errors: false,
    };
    Ok(factory)
}

fn refused(error: &str) -> ConstraintError {
    // llguidance does not know the control tokens, and reports this error for them.
    if error.contains("missing special token prefix") {
        return ConstraintError("the grammar names a control token, which none may have".into());
    }
    ConstraintError(tidy(error))
}
