//! Tries constraints that are not known to be cheap, in a separate process.
//!
//! llguidance cannot be stopped while it compiles, and its memory is not bounded. So the server
//! first starts its own program again as a helper process, which compiles one constraint under
//! limits and ends. Only a constraint that the helper could compile is then compiled in the server.
//!
//! The helper does not need the whole vocabulary: compiling looks up only the tokens that a grammar
//! names. They are sent with the constraint.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::cost::costliest;
use super::error::{CompileError, ConstraintError};
use super::kind::Constraint;
use super::tables::Tables;
use crate::limits::{COMPILE_STACK_BYTES, CONSTRAINT_ERROR_BYTES_MAX};
use crate::types::TokenId;

/// Most processor time of a trial.
const TRIAL_TIME_MAX: Duration = Duration::from_millis(400);

/// Most wall-clock time of a trial. On a busy machine it gets little processor time.
const TRIAL_WALL_TIME_MAX: Duration = Duration::from_secs(10);

/// Interval at which a trial's time is checked.
const TRIAL_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Most memory of a trial, including its stack.
const TRIAL_DATA_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// Bytes that a trial reads: a constraint and the tokens that it may name, as JSON.
const TRIAL_INPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Stack of a trial. It is half of the server's, so that every constraint that passes the trial
/// fits there.
const TRIAL_STACK_BYTES: usize = COMPILE_STACK_BYTES / 2;

/// The argument that makes the program a helper.
pub const TRIAL_ARGUMENT: &str = "try-constraint";

/// Exit statuses of the helper, besides 0: the constraint was refused, it took too long, or the
/// helper could not try it.
const REFUSED: u8 = 2;
const TOO_LONG: u8 = 3;
const UNABLE: u8 = 4;

/// The input of a helper.
#[derive(Serialize, Deserialize)]
struct Asked {
    constraint: Constraint,
    n_tokens: usize,
    end_tokens: Vec<TokenId>,
    /// The tokens that the grammar may name, with their bytes.
    named: Vec<(usize, Vec<u8>)>,
}

/// Tries a constraint. `program` is the server's own program. The trial ends if `is_wanted` returns
/// false.
///
/// # Errors
/// The constraint's error, or the limit that it exceeds and the part that is the likely reason, or
/// why it cannot be tried now.
pub(super) fn pass(
    program: &PathBuf,
    constraint: &Constraint,
    tables: &Tables,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), CompileError> {
    let (n_tokens, end_tokens) = tables.shape();
    let named = tables.named_in(constraint);
    let asked = Asked { constraint: constraint.clone(), n_tokens, end_tokens, named };
    let asked = serde_json::to_vec(&asked).expect("there are no maps, and memory takes all");
    let failed = |reason: std::io::Error| {
        tracing::warn!("a constraint cannot be tried: {}: {reason}", program.display());
        CompileError::Unavailable(reason.to_string())
    };
    let mut helper = Helper::start(program).map_err(failed)?;
    let (status, text) = helper.ask(&asked, is_wanted).map_err(failed)?;
    judge(status, text, constraint)
}

fn judge(
    status: Option<ExitStatus>,
    text: String,
    constraint: &Constraint,
) -> Result<(), CompileError> {
    let part = || costliest(constraint).unwrap_or_else(|| "its size".into());
    let too_long = || format!("more than {} ms of processor time", TRIAL_TIME_MAX.as_millis());
    let Some(status) = status else {
        let seconds = TRIAL_WALL_TIME_MAX.as_secs();
        let text = format!("the machine is too busy to try it within {seconds} s");
        return Err(CompileError::Unavailable(text));
    };
    let limit = match (status.code().map(u8::try_from), status.signal()) {
        (Some(Ok(0)), _) => return Ok(()),
        (Some(Ok(REFUSED)), _) => {
            // Errors about llguidance's own bounds name no place.
            let is_bound = text.contains("too large") || text.contains("limit");
            let part =
                if is_bound { format!("; the likely reason is {}", part()) } else { String::new() };
            return Err(ConstraintError(text + &part).into());
        }
        (Some(Ok(UNABLE)), _) => return Err(CompileError::Unavailable(text)),
        (_, Some(signal)) if signal == Signal::ABORT.as_raw() => {
            format!("more than {} MiB of memory or stack", TRIAL_DATA_BYTES_MAX >> 20)
        }
        (Some(Ok(TOO_LONG)), _) => too_long(),
        // The kernel's limit of processor time. SIGKILL has another cause: the kernel kills for
        // want of memory.
        (_, Some(signal)) if signal == Signal::XCPU.as_raw() => too_long(),
        _ => return Err(CompileError::Unavailable(format!("the helper ended: {status}"))),
    };
    let message = format!("it would take {limit} to compile; the likely reason is {}", part());
    Err(ConstraintError(message).into())
}

/// A running helper. Dropping it kills it.
struct Helper(Child);

impl Helper {
    fn start(program: &PathBuf) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        // Of the environment, which may hold secrets, it gets only the path to its libraries.
        command.arg(TRIAL_ARGUMENT).env_clear();
        command.envs(std::env::vars_os().filter(|(name, _)| name == "LD_LIBRARY_PATH"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    /// Sends the whole input, and waits for the helper's end. Returns its exit status and output.
    /// There is no status if it took too long or is no longer wanted.
    fn ask(
        &mut self,
        asked: &[u8],
        is_wanted: &dyn Fn() -> bool,
    ) -> std::io::Result<(Option<ExitStatus>, String)> {
        let pipes = (self.0.stdin.take(), self.0.stdout.take());
        let (Some(mut input), Some(output)) = pipes else { unreachable!("both are pipes") };
        ioctl_fionbio(&input, true)?;
        let began = Instant::now();
        let look = Timespec::try_from(TRIAL_LOOK_INTERVAL).expect("it is short");
        let ready = |pipe: BorrowedFd<'_>, flags: PollFlags| -> std::io::Result<bool> {
            while poll(&mut [PollFd::from_borrowed_fd(pipe, flags)], Some(&look))? == 0 {
                if began.elapsed() > TRIAL_WALL_TIME_MAX || !is_wanted() {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let mut rest = asked;
        while !rest.is_empty() {
            if !ready(input.as_fd(), PollFlags::OUT)? {
                return Ok((None, String::new()));
            }
            match input.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break, // its status says why
                Err(error) => return Err(error),
            }
        }
        drop(input);
        // The helper writes a short text when it ends, or nothing.
        if !ready(output.as_fd(), PollFlags::IN)? {
            return Ok((None, String::new()));
        }
        let mut text = Vec::new();
        output.take(CONSTRAINT_ERROR_BYTES_MAX as u64).read_to_end(&mut text)?;
        let status = self.0.wait()?;
        Ok((Some(status), String::from_utf8_lossy(&text).into_owned()))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // An error means that the helper has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The helper's main function.
pub fn run_helper() -> ExitCode {
    if let Err(error) = limit_this_process() {
        return end(UNABLE, &format!("the limits of a trial cannot be set: {error}"));
    }
    let mut asked = Vec::new();
    let read = std::io::stdin().take(TRIAL_INPUT_BYTES_MAX).read_to_end(&mut asked);
    let asked: Asked = match read.map(|_| serde_json::from_slice(&asked)) {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => return end(UNABLE, &format!("the helper cannot read it: {error}")),
        Err(error) => return end(UNABLE, &format!("the helper cannot read it: {error}")),
    };
    let thread = std::thread::Builder::new().stack_size(TRIAL_STACK_BYTES);
    let (waits, is_done) = (std::thread::current(), Arc::new(AtomicBool::new(false)));
    let done = is_done.clone();
    let compiles = thread.spawn(move || {
        let compiled = compile(asked);
        done.store(true, Ordering::Release);
        waits.unpark();
        compiled
    });
    let Ok(compiles) = compiles else {
        return end(UNABLE, "there is no memory for a stack");
    };
    while !is_done.load(Ordering::Acquire) && !compiles.is_finished() {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        if Duration::try_from(used).is_ok_and(|used| used > TRIAL_TIME_MAX) {
            std::process::exit(i32::from(TOO_LONG));
        }
        std::thread::park_timeout(TRIAL_LOOK_INTERVAL);
    }
    match compiles.join() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(ConstraintError(message))) => end(REFUSED, &message),
        Err(_) => end(REFUSED, "the constraint cannot be compiled"),
    }
}

fn end(status: u8, message: &str) -> ExitCode {
    // If this fails, the server is gone.
    let _ = std::io::stdout().write_all(message.as_bytes());
    ExitCode::from(status)
}

fn compile(asked: Asked) -> Result<(), ConstraintError> {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    words.resize(asked.n_tokens.max(words.len()), Vec::new());
    words.truncate(asked.n_tokens);
    for (token, bytes) in asked.named {
        if let Some(word) = words.get_mut(token) {
            *word = bytes;
        }
    }
    let tables = Tables::of_words(words, &asked.end_tokens).map_err(ConstraintError)?;
    tables.compile(&asked.constraint).map(drop)
}

/// Limits this process's memory and time, and ends it with its parent.
fn limit_this_process() -> rustix::io::Result<()> {
    let both = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Data, both(TRIAL_DATA_BYTES_MAX))?;
    // The helper's own watch over its processor time is more exact. This limit applies if the watch
    // fails.
    let seconds = TRIAL_TIME_MAX.as_secs() + 2;
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    // If memory runs out, the kernel should kill the helper and not the server. Some containers do
    // not allow this setting.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    set_parent_process_death_signal(Some(Signal::KILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_constraint_caused_is_its_fault() {
        let schema = r#"{"allOf":[{"pattern":"a+"},{"pattern":"[ab]+"}]}"#;
        let constraint = Constraint::JsonSchema(schema.into());
        let judge = |status: Option<i32>, text: &str| {
            judge(status.map(ExitStatus::from_raw), text.into(), &constraint)
        };
        let exit = |code: u8| Some(i32::from(code) << 8);
        assert_eq!(judge(exit(0), ""), Ok(()));
        for (status, text, said) in [
            (exit(REFUSED), "wrong", "wrong"),
            (exit(REFUSED), "schema too large", "#/allOf, where 2 schemas can meet"),
            (exit(TOO_LONG), "", "more than 400 ms of processor time"),
            (Some(Signal::XCPU.as_raw()), "", "more than 400 ms of processor time"),
            (Some(Signal::ABORT.as_raw()), "", "more than 192 MiB of memory or stack"),
        ] {
            let error = judge(status, text).unwrap_err();
            assert!(matches!(error, CompileError::Constraint(_)), "{error:?}");
            assert!(error.to_string().contains(said), "{error}");
        }
        for (status, text, said) in [
            (None, "", "the machine is too busy to try it within 10 s"),
            (exit(UNABLE), "no memory", "cannot be compiled now: no memory"),
            (exit(1), "", "exit status: 1"),
            (Some(Signal::KILL.as_raw()), "", "signal: 9"),
        ] {
            let error = judge(status, text).unwrap_err();
            assert!(matches!(error, CompileError::Unavailable(_)), "{error:?}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
