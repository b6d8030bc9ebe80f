//! Measuring: the instruments that ship in the binary.
//!
//! [`load`] is the load generator; [`client`] holds the connections, [`body`]
//! writes requests, [`response`], [`sse`] and [`reply`] read what comes back
//! into a [`result`] or a [`failure`].

pub mod body;
pub mod client;
pub mod failure;
pub mod load;
pub mod reply;
pub mod response;
pub mod result;
pub mod sse;
