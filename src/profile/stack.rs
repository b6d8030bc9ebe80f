//! Stacks of functions, as the kernel reports them.

/// A stack of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The thread's name.
    pub thread: String,
    /// Addresses, the innermost first.
    pub frames: Vec<Frame>,
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    User(u64),
    Kernel(u64),
}
