//! The signals that other lanes give the front lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};

use crate::abort::StepAbort;
use crate::config::ApiKey;
use crate::ring::bell::SocketBell;

/// The signals that other lanes give the front lane.
pub struct Control {
    /// Wakes the front lane.
    pub bell: Arc<SocketBell>,
    /// Makes the decode lane give up steps.
    pub abort: Arc<StepAbort>,
    draining: AtomicBool,
    keys: ArcSwap<Vec<ApiKey>>,
}

impl Control {
    /// A control over the front lane that `bell` wakes and that lets in these keys.
    pub fn new(bell: Arc<SocketBell>, keys: Vec<ApiKey>) -> Self {
        let keys = ArcSwap::from_pointee(keys);
        Self { bell, abort: Arc::default(), draining: AtomicBool::new(false), keys }
    }

    /// The API keys. Without any, everybody is let in.
    pub fn keys(&self) -> Guard<Arc<Vec<ApiKey>>> {
        self.keys.load()
    }

    /// Replaces the secrets of the keys, for all requests from now on.
    ///
    /// # Errors
    /// A sentence if more than the secrets differs. Shares of the server belong to the places of
    /// the keys in the list.
    pub fn set_keys(&self, keys: Vec<ApiKey>) -> Result<(), String> {
        let before = self.keys();
        let share = |key: &ApiKey| (key.name.clone(), key.weight.to_bits(), key.priority_min);
        if before.len() != keys.len() {
            return Err(format!(
                "there were {} keys and now there are {}; the number only changes with a restart",
                before.len(),
                keys.len()
            ));
        }
        if let Some((old, _)) = before.iter().zip(&keys).find(|(a, b)| share(a) != share(b)) {
            return Err(format!(
                "the key {:?} has another name, weight or priority now; these only change with a \
                 restart",
                old.name
            ));
        }
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Makes the front lane stop accepting, finish the running requests and end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether [`Control::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secrets_of_keys_change_while_a_server_runs() {
        let (bell, _) = SocketBell::new().unwrap();
        let key = |text: &str| text.parse::<ApiKey>().unwrap();
        let control = Control::new(Arc::new(bell), vec![key("a:1"), key("b:2:3")]);
        control.set_keys(vec![key("a:new"), key("b:2:3")]).unwrap();
        assert_eq!(control.keys()[0].secret, "new");
        for wrong in [vec![], vec![key("a:1"), key("b:2:4")], vec![key("a:1"), key("c:2:3")]] {
            let error = control.set_keys(wrong).unwrap_err();
            assert!(error.contains("with a restart"), "{error}");
        }
        assert_eq!(control.keys()[0].secret, "new");
    }
}
