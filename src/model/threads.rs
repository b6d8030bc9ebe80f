//! The compute threads of a context.

use std::sync::Arc;
use std::time::Duration;

use llama_cpp_sys_2 as sys;

use super::library;
use crate::kernels::compute::Pool;
use crate::kernels::led::Led;

/// A pool of threads, and ggml's description of one. ggml is built with OpenMP, so its description
/// holds only the state of a barrier, and no threads.
pub(super) struct ComputeThreads {
    pool: Pool,
    /// The board of products that one thread leads; `None` with one thread.
    led: Option<Arc<Led>>,
    described: *mut sys::ggml_threadpool,
}

impl ComputeThreads {
    /// Starts `threads` threads, including the calling one; see [`Pool::new`].
    ///
    /// # Errors
    /// A sentence that names the missing resource.
    pub fn new(threads: usize, cores: Option<&[usize]>, for_job: Duration) -> Result<Self, String> {
        library::start();
        let pool = Pool::new(threads, cores, for_job)?;
        let count = i32::try_from(threads).expect("at most THREADS_MAX");
        // SAFETY: the parameters are initialised and read only during the call.
        let described = unsafe {
            let mut params = sys::ggml_threadpool_params_default(count);
            sys::ggml_threadpool_new(&raw mut params)
        };
        if described.is_null() {
            return Err(format!("no memory for {threads} compute threads"));
        }
        let led = (threads > 1).then(|| Arc::new(Led::new(threads - 1)));
        if let Some(led) = &led {
            pool.set_helped(led.clone());
        }
        Ok(Self { pool, led, described })
    }

    /// The board of products that one thread leads.
    pub fn led(&self) -> Option<&Led> {
        self.led.as_deref()
    }

    /// See [`Pool::change_places`].
    pub fn change_places(&self, worker: usize) -> bool {
        self.pool.change_places(worker)
    }

    /// Number of threads.
    pub fn count(&self) -> i32 {
        self.pool.threads() as i32 // at most THREADS_MAX
    }

    /// The number of jobs that they have computed together.
    pub fn jobs(&self) -> u32 {
        self.pool.jobs()
    }

    /// ggml's description.
    pub fn described(&self) -> *mut sys::ggml_threadpool {
        self.described
    }

    /// Runs `calls` on the calling thread, which must be the one that started the threads.
    /// Operations that ggml computes meanwhile run on all threads.
    pub fn run<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.pool.lend(calls)
    }
}

impl Drop for ComputeThreads {
    fn drop(&mut self) {
        // SAFETY: it is freed once, after the contexts that use it, which hold this.
        unsafe { sys::ggml_threadpool_free(self.described) };
    }
}
