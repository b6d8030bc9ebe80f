//! Claims of cores, so that two instances on one machine do not pin the same ones.
//!
//! A claim is a socket in Linux's abstract namespace, with the number of the core in its name. It
//! needs no file, and the kernel removes it when the process ends, however it ends. Instances in
//! different network namespaces (containers) do not see each other's.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The claims of this process. Dropping them frees the cores.
#[derive(Debug, Default)]
pub struct Claims {
    held: Vec<(usize, UnixListener)>,
}

impl Claims {
    /// Claims those of `cores` that no other instance has claimed, and returns them. If claims are
    /// not possible, all cores count as claimed by this process.
    pub fn of(cores: &[usize]) -> (Self, Vec<usize>) {
        let (mut claims, mut ours) = (Self::default(), Vec::new());
        for core in cores {
            let address = SocketAddr::from_abstract_name(format!("corelane-core-{core}"));
            match address.and_then(|address| UnixListener::bind_addr(&address)) {
                Ok(listener) => {
                    claims.held.push((*core, listener));
                    ours.push(*core);
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(_) => ours.push(*core),
            }
        }
        (claims, ours)
    }

    /// Frees the cores that `keep` does not have.
    pub fn keep(&mut self, keep: &[usize]) {
        self.held.retain(|(core, _)| keep.contains(core));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_claimed_once() {
        // No machine has these, and no other run of this test.
        let [a, b, c] = [0, 1, 2].map(|n| 1_000_000 + 3 * std::process::id() as usize + n);
        let (mut first, ours) = Claims::of(&[a, b, c]);
        assert_eq!(ours, [a, b, c]);
        first.keep(&[a]);
        let (_second, ours) = Claims::of(&[a, b]);
        assert_eq!(ours, [b]);
        drop(first);
        assert_eq!(Claims::of(&[a]).1, [a]);
    }
}
