//! Links between the front lane and the lanes that work for it. A link has two SPSC rings. Each
//! side rings the other's bell after a push; all links share the front lane's bell.
//!
//! ```text
//! front lane --FrontLink--> [ring: Box<T>] --LaneLink--> another lane
//!            <------------- [ring: Box<T>] <------------
//! ```
//!
//! Every item that goes down comes back. The decode lane gets batches, the mask lane gets mask
//! tasks, and the worker lanes (prepare and embed) get tasks.
//!
//! **Invariant:** a push never waits, because both rings have room for every item in flight.

pub mod bell;
pub mod files;
mod link;
pub mod message;
mod sync;

pub use link::{FrontLink, LaneLink, link};
