//! Facts about a request that its body does not have.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use crate::api::route::Route;
use crate::clock::Micros;
use crate::types::{CacheScope, KeyId};

/// Facts about a request that its body does not have.
#[derive(Clone, Copy)]
pub struct Envelope {
    /// The request's route.
    pub route: &'static Route,
    /// A random number, for the response's id.
    pub number: u64,
    /// The seed, if the body has none.
    pub seed: u64,
    /// The API key.
    pub key: KeyId,
    /// The part of the prefix cache that the request may use, without a `cache_salt`.
    pub cache: CacheScope,
    /// The lowest priority number that the key may ask for.
    pub priority_min: i32,
    /// The server's time limit for requests.
    pub timeout: Option<Duration>,
    /// When the request's head was complete.
    pub received: Micros,
    /// The same time in seconds since 1970.
    pub created: u64,
}

impl Envelope {
    /// The part of the prefix cache for requests with this `cache_salt`. Its hash is the standard
    /// library's SipHash, with fixed keys.
    pub fn scope(&self, cache_salt: Option<&str>) -> CacheScope {
        let salt = cache_salt.map_or(0, |salt| {
            let mut hasher = DefaultHasher::new();
            hasher.write(salt.as_bytes());
            hasher.finish()
        });
        CacheScope { salt, ..self.cache }
    }

    /// The deadline of the request. `timeout` is the request's time limit. The shorter of this and
    /// the server's limit counts.
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Micros> {
        let timeout = timeout.into_iter().chain(self.timeout).min()?;
        Some(self.received + timeout)
    }
}
