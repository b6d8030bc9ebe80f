//! llama.cpp as a library: started once, with its log sent to `tracing`.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_sys_2 as sys;

use crate::kernels::ggml;

/// Starts llama.cpp, once in a process, with its log sent to `tracing`.
pub(super) fn start() -> &'static LlamaBackend {
    static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        // SAFETY: the callback has the type that llama.cpp asks for, uses no
        // user data, and lives as long as the process.
        unsafe { sys::llama_log_set(Some(on_llama_log), std::ptr::null_mut()) };
        // SAFETY: nothing of llama.cpp runs before this, and this runs once.
        unsafe { ggml::install() };
        LlamaBackend::init().expect("nothing else in this process starts llama.cpp")
    })
}

thread_local! {
    /// The last error line that llama.cpp logged on this thread.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
    /// Who else is told what llama.cpp logs on this thread.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

type Listener = Box<dyn FnMut(&str)>;

/// Runs `work`, which calls llama.cpp, and tells `listener` every line that it
/// logs meanwhile on this thread: of some calls there is no other progress.
pub(super) fn listening<T>(listener: impl FnMut(&str) + 'static, work: impl FnOnce() -> T) -> T {
    LAST_ERROR.take();
    LISTENER.set(Some(Box::new(listener)));
    let result = work();
    LISTENER.take();
    result
}

/// Forgets the last error, so that a later one is told apart.
pub(super) fn forget_error() {
    LAST_ERROR.take();
}

/// `": <what llama.cpp said last>"`, or nothing when it said nothing.
pub(super) fn last_error() -> String {
    let message = LAST_ERROR.take();
    if message.is_empty() { message } else { format!(": {message}") }
}

/// llama.cpp's log goes to `tracing` at debug level: what matters of it is
/// reported by whoever called it, as an error.
unsafe extern "C" fn on_llama_log(
    level: sys::ggml_log_level,
    text: *const c_char,
    _user_data: *mut c_void,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    if level == sys::GGML_LOG_LEVEL_ERROR {
        LAST_ERROR.replace(text.to_owned());
    }
    LISTENER.with_borrow_mut(|listener| {
        if let Some(listener) = listener {
            listener(text);
        }
    });
    tracing::debug!(target: "llama.cpp", "{text}");
}
