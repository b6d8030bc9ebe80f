//! `POST /debug/flamegraph`: profiles a lane while the connection waits.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use may_minihttp::Response;

use super::shared::{Connection, Shared, TEXT};
use crate::profile::{self, Form, ProfileRequest};

/// Time that a client has to read a profile, in addition to `OPS_IDLE_TIMEOUT`.
const PROFILE_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which a connection that waits for a profile checks whether it is done.
const PROFILE_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Answers with a profile, or with a sentence that says why there is none. Returns true for a
/// profile, which may be longer than the socket's send buffer.
pub(super) fn answer(
    query: &str,
    shared: &Shared,
    connection: &Connection,
    response: &mut Response,
) -> bool {
    match profile(query, shared, connection) {
        Ok((form, profile)) => {
            connection.reads_until(shared.now() + PROFILE_READ_TIMEOUT);
            let header = if form == Form::Svg { SVG } else { TEXT };
            response.header(header).body_vec(profile.into_bytes());
            true
        }
        Err((status, reason, message)) => {
            response.status_code(status, reason).header(TEXT);
            if status == 429 {
                response.header("Retry-After: 10");
            }
            response.body_vec((message + "\n").into_bytes());
            false
        }
    }
}

const SVG: &str = "Content-Type: image/svg+xml";

/// A status, its reason phrase, and a sentence for the body.
type Refused = (usize, &'static str, String);

fn profile(
    query: &str,
    shared: &Shared,
    connection: &Connection,
) -> Result<(Form, String), Refused> {
    if !shared.profiling {
        let message = "profiles are off; start the server with --profiling";
        return Err((403, "Forbidden", message.into()));
    }
    let plan = ProfileRequest::read(query).map_err(|message| (400, "Bad Request", message))?;
    if shared.is_profiling.swap(true, Ordering::Relaxed) {
        let message = "a profile is being taken already; they run one at a time; try again later";
        return Err((429, "Too Many Requests", message.into()));
    }
    let profile = wait_for(plan, shared, connection);
    shared.is_profiling.store(false, Ordering::Relaxed);
    let profile = profile.map_err(|message| (503, "Service Unavailable", message))?;
    Ok((plan.form, profile))
}

/// Runs a profile on a new thread: on this one it would block the coroutines of all connections.
fn wait_for(
    plan: ProfileRequest,
    shared: &Shared,
    connection: &Connection,
) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot start a thread for the profile: {error}");
    let thread = thread::Builder::new().name(profile::THREAD.into());
    let thread = thread.spawn(move || plan.run()).map_err(failed)?;
    while !thread.is_finished() {
        may::coroutine::sleep(PROFILE_LOOK_INTERVAL);
        shared.touch(connection); // its client is silent because it waits
    }
    thread.join().unwrap_or_else(|_| Err("the profile failed; the log says why".into()))
}
