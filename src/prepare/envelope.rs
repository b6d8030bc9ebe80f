//! Facts about a request that its body does not have.

use std::time::Duration;

use crate::api::route::Route;
use crate::clock::Micros;
use crate::types::{CacheScope, KeyId};

/// Facts about a request that its body does not have.
#[derive(Clone, Copy)]
pub struct Envelope {
    /// Its route.
    pub route: &'static Route,
    /// The number in the response's id.
    pub number: u64,
    /// The seed, if the body has none.
    pub seed: u64,
    /// Its API key.
    pub key: KeyId,
    /// The part of the prefix cache that it may use.
    pub cache: CacheScope,
    /// The lowest priority number that the key may ask for.
    pub priority_min: i32,
    /// The server's time limit for requests.
    pub timeout: Option<Duration>,
    /// When its head had been read.
    pub received: Micros,
    /// The time at which its head was read, in seconds since 1970.
    pub created: u64,
}

impl Envelope {
    /// The deadline of the request, which may set a time limit itself: the earlier of both.
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Micros> {
        let timeout = timeout.into_iter().chain(self.timeout).min()?;
        Some(self.received + timeout)
    }
}
