//! Starts llama.cpp once, and sends its log to `tracing`.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_sys_2 as sys;

use crate::kernels::ggml;
use crate::types::printable::one_line;

/// Most characters of an error of llama.cpp, which may have a file's text in it.
const ERROR_CHARS_MAX: usize = 500;

/// Most characters of a line of its log.
const LOG_CHARS_MAX: usize = 4096;

/// Starts llama.cpp, once per process.
pub fn start() -> &'static LlamaBackend {
    static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        // SAFETY: the callback has the type that llama.cpp expects, takes no user data, and lives
        // as long as the process.
        unsafe { sys::llama_log_set(Some(on_llama_log), std::ptr::null_mut()) };
        // SAFETY: no code of llama.cpp ran before this, and this runs once.
        unsafe {
            ggml::install();
            corelane_guard_assertions();
        }
        LlamaBackend::init().expect("nothing else in this process starts llama.cpp")
    })
}

// In guard.cpp.
unsafe extern "C" {
    fn corelane_guard_assertions();
    fn corelane_assertions_throw(yes: bool);
}

/// Runs `work`, a call of llama.cpp that catches exceptions. If an assertion fails in it, the
/// process does not end: the call fails, and [`error`] returns the assertion.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> T {
    forget_error();
    // SAFETY: both set a flag of this thread.
    unsafe { corelane_assertions_throw(true) };
    let result = work();
    // SAFETY: as above.
    unsafe { corelane_assertions_throw(false) };
    result
}

thread_local! {
    /// The first error line that llama.cpp logged on this thread since [`forget_error`]. It names
    /// the cause. Later lines only name the calls that failed because of it.
    static ERROR: RefCell<String> = const { RefCell::new(String::new()) };
    /// Receives the lines that llama.cpp logs on this thread.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

type Listener = Box<dyn FnMut(&str)>;

/// Runs `work`, which calls llama.cpp, and passes every line logged on this thread meanwhile to
/// `listener`. For some calls this is the only sign of progress.
pub fn listening<T>(listener: impl FnMut(&str) + 'static, work: impl FnOnce() -> T) -> T {
    forget_error();
    LISTENER.set(Some(Box::new(listener)));
    let result = work();
    LISTENER.take();
    result
}

fn forget_error() {
    ERROR.take();
}

/// `": <llama.cpp's error>"` in one line, or nothing without an error.
pub fn error() -> String {
    let message = one_line(&ERROR.take(), ERROR_CHARS_MAX);
    if message.is_empty() { message } else { format!(": {message}") }
}

/// Logs llama.cpp's lines at debug level. Callers report its failures as errors of their own.
unsafe extern "C" fn on_llama_log(
    level: sys::ggml_log_level,
    text: *const c_char,
    _user_data: *mut c_void,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives until the call returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    if level == sys::GGML_LOG_LEVEL_ERROR {
        ERROR.with_borrow_mut(|error| {
            if error.is_empty() {
                text.clone_into(error);
            }
        });
    }
    LISTENER.with_borrow_mut(|listener| {
        if let Some(listener) = listener {
            listener(text);
        }
    });
    tracing::debug!(target: "llama.cpp", "{}", one_line(text, LOG_CHARS_MAX));
}
