//! Links between the front lane and the lanes that work for it. A link has two SPSC rings and a
//! bell for each side.
//!
//! ```text
//! front lane --FrontLink--> [ring: Box<T>] --LaneLink--> another lane
//!            <------------- [ring: Box<T>] <------------
//! ```
//!
//! Every item that goes down comes back. The decode lane gets batches. The prepare lane and the
//! embed lane get tasks.
//!
//! **Invariant:** a push never waits, because both rings have room for every item in flight.

pub mod bell;
mod link;
pub mod message;
mod sync;

pub use link::{FrontLink, LaneLink, link};
