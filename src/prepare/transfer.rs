//! Chooses the lane for the next piece of a request.

use crate::api::asked::Request;
use crate::limits::PREPARE_LONG_BYTES_MIN;

/// The prepare lanes. A request moves between them, depending on the work that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Reads, renders and tokenises short requests. So a chat of usual length never waits behind a
    /// long text.
    Short,
    /// Reads, renders and tokenises long requests. A piece ends after 64 KiB of text, but a single
    /// text may have 1 MiB.
    Long,
    /// Compiles constraints that are known to be cheap, and marks the others as costly.
    Compile,
    /// Tries and compiles all other constraints. A piece is at most a second of processor time.
    Trial,
}

impl Lane {
    /// The lane for the next piece of a request.
    pub fn of(request: &Request) -> Self {
        match (request.text_bytes(), request) {
            (0, Request::Generate(request)) if request.is_costly => Lane::Trial,
            (0, Request::Generate(request)) if request.compiles() => Lane::Compile,
            (bytes, _) => Lane::for_texts(bytes),
        }
    }

    /// The lane that reads and tokenises texts of `bytes` bytes.
    pub fn for_texts(bytes: usize) -> Self {
        if bytes < PREPARE_LONG_BYTES_MIN { Lane::Short } else { Lane::Long }
    }
}

/// A request on its way to another lane.
pub struct Transfer {
    /// The request.
    pub request: Box<Request>,
    /// The lane. `None` if the request continues a stored response, which the front lane must find
    /// first.
    pub lane: Option<Lane>,
    /// The approximate bytes of memory that the request takes.
    pub bytes: usize,
    /// The bytes of its texts that are not tokenised yet.
    pub text_bytes: usize,
}

impl Transfer {
    /// A transfer to the lane for the request's next piece.
    pub fn new(request: Request) -> Self {
        let lane = request.previous().is_none().then(|| Lane::of(&request));
        let (bytes, text_bytes) = (request.bytes(), request.text_bytes());
        Self { request: Box::new(request), lane, bytes, text_bytes }
    }
}
