//! Facts about a request that its body does not have.

use std::time::Duration;

use crate::api::route::Route;
use crate::clock::Micros;
use crate::types::KeyId;

/// Facts about a request that its body does not have.
#[derive(Clone, Copy)]
pub struct Envelope {
    /// The route that it came by.
    pub route: &'static Route,
    /// Makes the id of the response.
    pub number: u64,
    /// The seed, where the body has none.
    pub seed: u64,
    /// The API key that it was sent with.
    pub key: KeyId,
    /// The lowest priority number that the key may ask for.
    pub priority_min: i32,
    /// The longest time that the server gives a request.
    pub timeout: Option<Duration>,
    /// When its head had been read.
    pub received: Micros,
    /// The same, in seconds since 1970.
    pub created: u64,
}
