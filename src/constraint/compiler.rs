//! Compiles the constraints of requests. Tries first those that may be costly, and caches the
//! results.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::{CompileError, ConstraintError};
use super::kind::Constraint;
use super::tables::{Compiled, Tables};
use super::trial;
use crate::limits::{CONSTRAINTS_CACHED_BYTES_MAX, CONSTRAINTS_CACHED_MAX};
use crate::model::vocab::Vocab;
use crate::types::{KeyId, TokenId};

/// Compiles constraints for one vocabulary, and caches the most recent ones.
pub struct Compiler {
    tables: Arc<Tables>,
    /// The path of this program, which is started to [try](super::trial) constraints that are not
    /// known to be cheap. With `None`, they are compiled without a trial.
    program: Option<PathBuf>,
    /// The least recently used first.
    cached: Vec<Cached>,
}

/// A compiled constraint of a key. Keys share no entry, even for equal constraints: otherwise a key
/// could learn another key's constraints from the time that compiling takes, and slow masks of one
/// key's texts would count for the other.
struct Cached {
    key: KeyId,
    constraint: Constraint,
    compiled: Arc<Compiled>,
}

impl Cached {
    fn bytes(&self) -> usize {
        self.constraint.source_bytes() + self.compiled.kept_bytes
    }
}

impl Compiler {
    /// A compiler with an empty cache. `program` is the path of this program, for trials.
    pub fn sharing(tables: Arc<Tables>, program: Option<PathBuf>) -> Self {
        Self { tables, program, cached: Vec::new() }
    }

    /// A compiler for a model's vocabulary, without trials.
    ///
    /// # Errors
    /// As [`Tables::new`].
    pub fn new(vocab: &Vocab) -> Result<Self, String> {
        Ok(Self::sharing(Arc::new(Tables::new(vocab)?), None))
    }

    /// A compiler for tokens with these bytes, without trials.
    ///
    /// # Errors
    /// As [`Tables::new`].
    pub fn of_words(words: Vec<Vec<u8>>, end_tokens: &[TokenId]) -> Result<Self, String> {
        Ok(Self::sharing(Arc::new(Tables::of_words(words, end_tokens)?), None))
    }

    /// Compiles a constraint of the first key.
    ///
    /// # Errors
    /// As [`Compiler::compile_for`].
    pub fn compile(&mut self, constraint: &Constraint) -> Result<Arc<Compiled>, CompileError> {
        self.compile_for(KeyId::at(0), constraint, &|| true)
    }

    /// Compiles a constraint, or finds it in the cache of a key. A constraint that is not known to
    /// be cheap is tried first. The trial stops if `is_wanted` returns false.
    ///
    /// # Errors
    /// The constraint's error and its place, the bound that it exceeds, or why it cannot be tried
    /// now.
    pub fn compile_for(
        &mut self,
        key: KeyId,
        constraint: &Constraint,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Arc<Compiled>, CompileError> {
        if let Some(at) = self.cached_at(key, constraint) {
            let entry = self.cached.remove(at);
            let found = entry.compiled.clone();
            self.cached.push(entry);
            return Ok(found);
        }
        check_size(constraint)?;
        if let Some(program) = &self.program
            && !constraint.is_cheap()
        {
            trial::pass(program, constraint, &self.tables, is_wanted)?;
        }
        let compiled = Arc::new(self.tables.compile(constraint)?);
        let (constraint, compiled_here) = (constraint.clone(), compiled.clone());
        self.cached.push(Cached { key, constraint, compiled: compiled_here });
        self.evict();
        Ok(compiled)
    }

    /// Whether a constraint is in the cache of a key.
    pub fn has(&self, key: KeyId, constraint: &Constraint) -> bool {
        self.cached_at(key, constraint).is_some()
    }

    fn cached_at(&self, key: KeyId, constraint: &Constraint) -> Option<usize> {
        let is_it = |cached: &Cached| cached.key == key && cached.constraint == *constraint;
        self.cached.iter().position(is_it)
    }

    /// Removes constraints from the cache until it is within its bounds: the key with the most
    /// bytes loses its least recently used one.
    fn evict(&mut self) {
        loop {
            let bytes_of = |key: KeyId| -> usize {
                self.cached.iter().filter(|cached| cached.key == key).map(Cached::bytes).sum()
            };
            let all: usize = self.cached.iter().map(Cached::bytes).sum();
            if self.cached.len() <= CONSTRAINTS_CACHED_MAX && all <= CONSTRAINTS_CACHED_BYTES_MAX {
                return;
            }
            let keys = self.cached.iter().map(|cached| cached.key);
            let Some(largest) = keys.max_by_key(|key| bytes_of(*key)) else { return };
            let oldest = self.cached.iter().position(|cached| cached.key == largest);
            self.cached.remove(oldest.expect("it has at least one"));
        }
    }
}

/// Refuses a constraint that is too long, before anything reads it.
fn check_size(constraint: &Constraint) -> Result<(), ConstraintError> {
    let what = match constraint {
        Constraint::Regex(_) => "the regular expression",
        Constraint::JsonSchema(_) => "the JSON schema",
        _ => "the grammar",
    };
    let (bytes, bound) = (constraint.source_bytes(), constraint.source_bytes_max());
    if bytes > bound {
        return Err(ConstraintError(format!("{what} has {bytes} bytes; it may have {bound}")));
    }
    Ok(())
}
