//! The four prepare lanes. They do work that is too long for a turn of the front lane, which may
//! take about a millisecond. [`Lane`] says which lane does what.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use time::OffsetDateTime;

use super::worker::{Outcome, Task, Wanted};
use super::{Envelope, Lane, Prepared, ServedModel, Step, Transfer};
use crate::api::asked::Request;
use crate::api::error::ApiError;
use crate::api::route::ReadBody;
use crate::api::stored::{ItemRange, Stored};
use crate::constraint::{Compiler, Tables};
use crate::limits::PIECE_BYTES;

/// A task for a prepare lane.
pub enum PrepareTask {
    /// A body, and the function that reads it.
    Body(Envelope, ReadBody, Vec<u8>),
    /// A request whose body was read.
    Request(Envelope, Box<Request>),
    /// A page of the items of a stored response.
    Items(Arc<Stored>, ItemRange),
    /// A request that nobody waits for. The lane frees its memory, which takes long.
    Waste(Box<Request>),
}

impl Task for PrepareTask {
    fn size(&self) -> usize {
        match self {
            Self::Body(_, _, body) => body.len(),
            // 0 if only a constraint is left to compile.
            Self::Request(_, request) => request.text_bytes(),
            Self::Items(stored, range) => stored.range_bytes(range),
            Self::Waste(_) => 0,
        }
    }
}

/// The compiler of a lane, or the reason why this model's text cannot be constrained.
pub type LaneCompiler = Result<Compiler, String>;

/// The tables that all compilers share.
pub type SharedTables = Arc<OnceLock<Result<Arc<Tables>, String>>>;

/// A compiler for one lane. The first lane that calls this makes the tables, and the others wait
/// for it. `program` is the path of this program, which is started again to try constraints.
pub fn compiler(
    tables: &SharedTables,
    model: &ServedModel,
    program: Option<PathBuf>,
) -> LaneCompiler {
    let tables = tables.get_or_init(|| Tables::new(&model.vocab).map(Arc::new));
    tables.as_ref().map(|tables| Compiler::sharing(tables.clone(), program)).map_err(String::clone)
}

/// Does a piece of a task on the lane `here`.
pub fn prepare(
    task: PrepareTask,
    here: Lane,
    model: &ServedModel,
    compiler: Option<&mut LaneCompiler>,
    wanted: &Wanted<'_>,
    now: OffsetDateTime,
) -> Outcome<PrepareTask> {
    let (envelope, request) = match task {
        PrepareTask::Body(envelope, read, mut body) => match read(&mut body) {
            Ok(request) => (envelope, request),
            Err(error) => return Outcome::Done(Err(error)),
        },
        PrepareTask::Request(envelope, request) => (envelope, *request),
        PrepareTask::Items(stored, range) => {
            let mut answer = Vec::with_capacity(stored.range_bytes(&range));
            stored.push_range(&mut answer, &range);
            return Outcome::Done(Ok(Step::Done(Prepared::Answer(answer))));
        }
        PrepareTask::Waste(_) => {
            return Outcome::Done(Ok(Step::Done(Prepared::Answer(Vec::new()))));
        }
    };
    if request.previous().is_some() {
        return Outcome::Done(Ok(Step::More(Transfer::new(request))));
    }
    wanted.ends(envelope.deadline(request.timeout()));
    let compiler = match compiler {
        Some(Ok(compiler)) => Some(compiler),
        Some(Err(reason)) => {
            let message = format!("this model's text cannot be constrained: {reason}");
            return Outcome::Done(Err(ApiError::invalid(message)));
        }
        None => None,
    };
    let is_wanted = || wanted.is_wanted();
    match super::advance(request, &envelope, model, compiler, PIECE_BYTES, &is_wanted, now) {
        Ok(Step::Done(prepared)) => Outcome::Done(Ok(Step::Done(prepared))),
        Ok(Step::Embed(texts)) => Outcome::Done(Ok(Step::Embed(texts))),
        Ok(Step::More(request)) => match (here, Lane::of(&request)) {
            // A long request stays on this lane, even if the rest of it is short.
            (Lane::Long, Lane::Short) => {
                Outcome::More(PrepareTask::Request(envelope, Box::new(request)))
            }
            (here, next) if here == next => {
                Outcome::More(PrepareTask::Request(envelope, Box::new(request)))
            }
            _ => Outcome::Done(Ok(Step::More(Transfer::new(request)))),
        },
        Err(error) => Outcome::Done(Err(error)),
    }
}
