//! The memory of all requests outside the KV cache: bodies, prompts, answers and states of
//! constraints. Half of this memory is reserved for the keys, by their weights.

use std::cell::RefCell;
use std::rc::Rc;

use crate::api::error::ApiError;
use crate::fair::Quota;
use crate::limits::HOLD_BYTES_STEP;
use crate::types::KeyId;

/// Most bytes of clients that have not shown a key: of heads beyond their first 4 KiB, and of the
/// bodies of refused requests.
const KEYLESS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The budget. Requests take their parts with [`Budget::hold`].
#[derive(Debug)]
pub struct Budget {
    bytes: RefCell<Quota>,
    /// The bytes of clients that have not shown a key.
    keyless: RefCell<Quota>,
}

impl Budget {
    /// A budget of `bytes` for keys with these weights. Weights are positive.
    pub fn new(bytes: usize, weights: &[f64]) -> Rc<Self> {
        let keyless = RefCell::new(Quota::new(KEYLESS_BYTES_MAX, &[1.0]));
        Rc::new(Self { bytes: RefCell::new(Quota::new(bytes, weights)), keyless })
    }

    /// An empty part of the budget. `key` is `None` for a client that has not shown a key.
    pub fn hold(self: &Rc<Self>, key: Option<KeyId>) -> Hold {
        Hold { budget: self.clone(), key, bytes: 0 }
    }

    /// Bytes that all requests hold.
    pub fn held(&self) -> usize {
        self.bytes.borrow().held() + self.keyless.borrow().held()
    }

    fn quota(&self, key: Option<KeyId>) -> (&RefCell<Quota>, KeyId) {
        key.map_or((&self.keyless, KeyId::at(0)), |key| (&self.bytes, key))
    }
}

/// A request's part of the budget. Dropping it gives the part back.
#[derive(Debug)]
pub struct Hold {
    budget: Rc<Budget>,
    key: Option<KeyId>,
    bytes: usize,
}

impl Hold {
    /// The size of the part in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the part to `bytes`, rounded up to a multiple of [`HOLD_BYTES_STEP`].
    ///
    /// # Errors
    /// 400 if the request alone needs more bytes than the key may hold; 429 if other requests must
    /// end first. After an error the part has its old size.
    pub fn resize(&mut self, bytes: usize) -> Result<(), ApiError> {
        let bytes = bytes.next_multiple_of(HOLD_BYTES_STEP);
        if bytes == self.bytes {
            return Ok(());
        }
        let (quota, key) = self.budget.quota(self.key);
        let mut quota = quota.borrow_mut();
        quota.give(key, self.bytes);
        if bytes > self.bytes && !quota.has_room(key, bytes) {
            let error = refusal(bytes, &quota, key);
            quota.take(key, self.bytes);
            return Err(error);
        }
        quota.take(key, bytes);
        self.bytes = bytes;
        Ok(())
    }
}

/// The error for a request that needs `bytes`. Its numbers reveal nothing about other keys.
fn refusal(bytes: usize, quota: &Quota, key: KeyId) -> ApiError {
    let (held, limit) = (quota.held_by(key), quota.most(key));
    if held == 0 && bytes > limit {
        return ApiError::invalid(format!(
            "this request and its answer take {bytes} bytes of memory; they may take {limit}"
        ));
    }
    let of = if quota.is_shared() { " of this key" } else { "" };
    let message = format!(
        "requests{of} hold {held} bytes of memory, and this one needs {bytes}; together they may \
         hold {limit}{}",
        if quota.is_shared() { " while other keys leave room" } else { "" }
    );
    ApiError::busy(message, 1)
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (quota, key) = self.budget.quota(self.key);
        quota.borrow_mut().give(key, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = HOLD_BYTES_STEP;

    #[test]
    fn what_is_held_is_given_back() {
        let budget = Budget::new(100 * STEP, &[1.0]);
        let mut hold = budget.hold(Some(KeyId::at(0)));
        hold.resize(1).unwrap();
        hold.resize(STEP + 1).unwrap();
        assert_eq!(budget.held(), 2 * STEP);
        hold.resize(0).unwrap();
        assert_eq!(budget.held(), 0);
        hold.resize(5 * STEP).unwrap();
        drop(hold);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_key_that_takes_all_leaves_others_their_part() {
        let budget = Budget::new(100 * STEP, &[1.0, 1.0]);
        let mut greedy = budget.hold(Some(KeyId::at(0)));
        assert_eq!(greedy.resize(76 * STEP).unwrap_err().status, 400, "never");
        greedy.resize(75 * STEP).unwrap();
        let mut more = budget.hold(Some(KeyId::at(0)));
        assert_eq!(more.resize(1).unwrap_err().status, 429, "not now");
        let mut other = budget.hold(Some(KeyId::at(1)));
        other.resize(25 * STEP).unwrap();
        assert_eq!(other.resize(26 * STEP).unwrap_err().status, 429);
        assert_eq!(budget.held(), 100 * STEP, "a refusal changes nothing");
        let mut keyless = budget.hold(None);
        keyless.resize(KEYLESS_BYTES_MAX).unwrap();
        assert!(keyless.resize(KEYLESS_BYTES_MAX + 1).is_err());
    }
}
