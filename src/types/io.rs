//! How the front lane reads and writes its sockets.

use std::str::FromStr;

/// A way to ask the kernel for reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// io_uring: one system call hands over many operations.
    Uring,
    /// epoll: the kernel says which sockets are ready, and each read and write is a system call.
    Epoll,
}

impl Io {
    /// Its name: that of `--io`, in metrics and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The choice of `--io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, otherwise epoll.
    #[default]
    Auto,
    /// This one alone.
    Only(Io),
}

impl FromStr for IoChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Only(Io::Uring)),
            "epoll" => Ok(Self::Only(Io::Epoll)),
            _ => Err("it must be auto, uring or epoll".into()),
        }
    }
}
