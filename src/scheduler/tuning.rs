//! The scheduler's tuning numbers. Each has its unit, its reason where it is known, and the effect
//! of another value. Those of the luck of guesses stand in `luck.rs`, and bounds that other lanes
//! rely on in [`crate::limits`].

use std::time::Duration;

// Prompts

/// Without `--itl-target-ms`, a step with prompt rows may take at least this long. The prompt's
/// client waits for its first token, and readers do not notice the slower streams: 16 tokens/s are
/// nearly three times as fast as people read (240 words a minute), and events within 100 ms are
/// seen as one (Card, Moran and Newell: The Psychology of Human-Computer Interaction, 1983). With
/// 60 ms, a prompt of 2,000 tokens beside four streams takes 1.4 times as long to its first token
/// as alone; with 50 ms 1.6 times (two Zen 5 cores).
pub const ITL_UNNOTICED: Duration = Duration::from_millis(60);

/// Every fourth step computes the oldest prompts first. If that were every eighth step, long
/// prompts would take longer. If it were every second step, short ones would.
pub const OLDEST_FIRST_ONE_IN: u64 = 4;

/// The most prompt rows that a key can be owed, in full steps. A key that got more rows than
/// another waits for the other at most this many steps, even if it got its rows while no other key
/// had prompts, or by its priority. Below 1, keys would not get rows by their weights. A larger
/// number would lengthen the wait.
pub const PROMPT_CREDIT_STEPS: f64 = 2.0;

/// Prompt rows beside decode rows while the time of a step is not known. If slots have caches of
/// their own, prompt rows beside decode rows are a pass of their own over the weights. They then
/// come in multiples of this number, and at least once this number if there is room, however long
/// the step takes.
pub const PREFILL_ROWS_STEP: usize = 16;

// Starts and prefixes

/// A sequence starts only if one in four of the cells for its generation is free. If more are
/// needed later, it may be preempted.
pub const PROMISED_SHARE: usize = 4;

/// Most cells that must be free for a generation. Clients ask for as many tokens as their largest
/// model can write, and few answers are that long. With more, such a request would wait for cells
/// that it never uses; with less, long answers are preempted more often.
pub const PROMISED_CELLS_MAX: usize = 2048;

/// Steps in which other keys may overtake a sequence that is first in the queue and does not fit.
pub const OVERTAKEN_STEPS_MAX: u32 = 256;

/// Shortest cached prefix that is reused. Copying a shorter one takes longer than computing it.
pub const REUSE_TOKENS_MIN: usize = 16;

/// A sequence waits for another one to compute their shared prefix if that saves at least this
/// many tokens.
pub const FOLLOW_TOKENS_MIN: usize = 32;

/// Cells that are copied in the time of one computed prompt token, at least. For the shape of
/// Qwen3-0.6B on two cores of a 2.5 GHz Xeon, a cell takes 23 us and a token 6 ms (by hand; no
/// study measures it).
pub const CELLS_COPIED_PER_TOKEN: usize = 128;

/// A kept prefix that was reused counts as used this many steps later than one that was not.
pub const REUSED_STEPS: u64 = 1024;

// The prefix store ([`super::moves`])

/// Time of a step for copies from the store, if no sequence decodes. A request that arrives
/// meanwhile waits for it.
pub const LOADS_TIME: Duration = Duration::from_millis(20);

/// Copies from the store make a step with decode rows longer by this part, or by one page if that
/// takes longer. With more, streams would notice; with less, a returning text would wait for longer.
pub const LOADS_PART: f64 = 0.15;

/// Time of a step without rows for copies into the store. A request that arrives meanwhile waits
/// for it.
pub const STORES_TIME: Duration = Duration::from_millis(4);

/// Copies into the store make any other step longer by this part, or by one page if that takes
/// longer.
pub const STORES_PART: f64 = 0.05;

// The files of the prefix store ([`super::disk`])

/// A sequence waits for files for this long if it is not known how long computing would take.
pub const FETCH_TIME: Duration = Duration::from_secs(2);

/// A sequence waits for files at least this long. Reading a few tokens must not be given up before
/// the disk lane has woken, which takes a few turns of the kernel's scheduler on a busy machine.
pub const FETCH_TIME_MIN: Duration = Duration::from_millis(20);

/// Sequences wait for the list of the files only for this long after the start.
pub const LISTING_TIME: Duration = Duration::from_secs(10);

/// Most sequences that are looked up in the files in one turn of the engine.
pub const LOOK_UPS_MAX: usize = 8;

/// Most pages that are looked at in one turn to find one that lacks a file.
pub const WRITES_LOOKED: usize = 256;

/// How much one read counts in the average time to read a byte, and how much that average sinks
/// when a text is computed because reading it would take longer.
pub const READ_RATE: f64 = 0.1;

/// The part of the pages in memory that waiting sequences may keep for what they read.
pub const FETCHED_PART: f64 = 0.5;

/// After a write that the system refused, nothing is written for this long.
pub const FILES_PAUSE: Duration = Duration::from_secs(10);

// Saved states

/// Fewest tokens that a saved state must save. For the shape of Qwen3.5-0.8B, a state takes as long
/// to save and to restore as one token to compute, and a stop for it makes a prompt a step longer.
pub const CHECKPOINT_TOKENS_MIN: usize = 32;

/// Fewest new tokens of a prompt behind which the logits are kept, with a recurrent state if there is
/// any. No step ends for them.
pub const WHOLE_TOKENS_MIN: usize = 8;

/// A saved state that was not used for this many steps is worth half as much as a new one.
pub const CHECKPOINT_STEPS: f64 = 1024.0;

/// Most places of a prompt that are known to be shared by other sequences, and at which its state
/// is saved. Further sequences compute their prompts themselves.
pub const SHARED_STOPS_MAX: usize = 8;

// Claims of keys

/// Number of steps for which a slot stays reserved for a key after its sequence has ended, if the
/// key has less than its part of the slots. Other keys may be waiting for it.
pub const SLOT_KEPT_STEPS: u64 = 64;

/// If [`SLOT_KEPT_STEPS`] steps take less than this time, the slot stays free until steps have run
/// for this time.
pub const SLOT_KEPT_TIME: Duration = Duration::from_millis(250);

/// How often a sequence is preempted at once for the claims of other keys. After that, it first
/// goes on; see [`MAKE_WAY_SHARE`].
pub const MAKE_WAY_MAX: u32 = 3;

/// A sequence that was preempted [`MAKE_WAY_MAX`] times for claims generates one new token for this
/// many old ones before the next time. So most of its time goes into new tokens, and not into
/// computing old ones again, and it comes to its end.
pub const MAKE_WAY_SHARE: usize = 8;

// Constrained texts

/// All masks that the decode lane computes in a step may take this long, or half as long as the
/// step's decode rows if that is more. Constrained texts beyond that get their masks from the mask
/// lane.
pub const STEP_MASKS_MIN: Duration = Duration::from_millis(1);

/// A constrained text whose state has more bytes than this gets its masks from the mask lane.
pub const STEP_WALK_BYTES_MAX: usize = 1024 * 1024;

/// After a slow mask, new constraints of its key begin on the mask lane until the key has had this
/// many fast masks there.
pub const MASKS_OF_DISTRUST: u32 = 1024;

// Guesses

/// Guesses must promise 3 % more tokens in a second, because the cost model is not exact.
pub const GUESSES_WORTH: f64 = 1.03;

/// Guesses may make a step a tenth longer (times the fewest tokens that one of its sequences is
/// expected to get). Sequences that gain nothing by the guesses must not wait much longer for them.
pub const GUESSES_OTHERS_WAIT: f64 = 1.1;

/// The weight of the newest step in the moving average of the share of granted guesses that are
/// made.
pub const GUESSES_MADE_RATE: f64 = 0.1;

// Failed steps

/// Failed steps in a row that a sequence survives. One more ends it.
pub const STEP_RETRIES_MAX: u32 = 3;

// The time of a step ([`super::cost`])

/// Differences in the share of decode rows below this say nothing about their cost.
pub const DECODE_SHARES_SPREAD: f64 = 0.05;

/// A step that takes longer than the expected time plus the margin raises the margin by this part
/// of the expected time. Any other step lowers it by a part that is `STEPS_WITHIN` times smaller.
/// So the margin settles where one step in a hundred is longer.
pub const MARGIN_RISE: f64 = 0.05;

/// Steps within the margin for each one beyond it.
pub const STEPS_WITHIN: f64 = 99.0;

/// The margin before the first step, as a part of the expected time.
pub const MARGIN_START: f64 = 0.2;

/// The largest margin, as a part of the expected time.
pub const MARGIN_MAX: f64 = 0.5;

/// Decay of the estimated time of a copy in each step without one, and of a drafted guess likewise.
/// A copy that seems too slow is not made, and so not measured again, although the first one may
/// have been slow only because its memory was untouched. The decay lets a copy be tried again after
/// some hundred steps.
pub const UNUSED_FADES: f64 = 0.002;

/// A step whose time differs from the expected one by a larger factor says more about the machine
/// than about the rows. It changes the slowdown of the compute threads. While steps are slowed,
/// they do not change the cost of rows: otherwise the two estimates would chase each other without
/// end.
pub const STEP_UNUSUAL: f64 = 1.15;

/// A step that takes longer than this many times the expected time met something else, such as a
/// page fault or another program. It counts as if it had taken that long.
pub const STEP_SURPRISE_MAX: f64 = 2.0;

// Its curves ([`super::curve`])

/// The fraction of its error by which a step moves the cost of depth. It is lower than
/// [`KNOT_RATE`], because the cost of depth changes less than that of rows.
pub const DEPTH_RATE: f64 = 0.05;

/// Steps whose depths differ by less than this many tokens say next to nothing about the cost of
/// depth: the noise of their times would look like one.
pub const DEPTHS_SPREAD: f64 = 512.0;

/// Steps at depths away from the mean until the slope is trusted. It then has learned four fifths
/// of the cost of depth.
pub const DEPTH_STEPS: usize = 32;

/// The slope is trusted up to twice the greatest depth that a step had.
pub const DEPTH_BEYOND: f64 = 2.0;

/// The fraction of its error by which a step moves the time of steps with about as many rows. A
/// larger one would follow noise. A smaller one would follow a change of the machine later.
pub const KNOT_RATE: f64 = 0.2;

/// How much of the missing confidence in a knot one step with its rows adds: the confidence is 0.5
/// after one step and 0.75 after two. The first step may have been slow for another reason, such as
/// untouched memory.
pub const KNOT_TELLS: f64 = 0.5;

/// From this confidence on, the time of a knot is exact enough to judge the machine by it.
pub const KNOT_KNOWS: f64 = 0.8;

/// The decay of the confidence in each knot per step. Without steps near it, the confidence halves
/// in 350 steps: the machine may have changed.
pub const KNOT_STALES: f64 = 0.002;

// The compute threads ([`super::thread_choice`])

/// Steps over which the slowdown of a number of threads is averaged. More steps would follow the
/// machine later. Fewer steps would take noise for a busy machine.
pub const SLOWDOWN_STEPS: usize = 16;

/// The slowdown stays 1 until a number of threads had this many steps.
pub const SLOWDOWN_STEPS_MIN: usize = 8;

/// Steps in a row that must all take longer than expected before the slowdown follows these alone.
/// A single one may have met a page fault.
pub const SLOWDOWN_WITNESSES: usize = 3;

/// Times that differ from those alone on the machine by a smaller factor count as equal.
pub const SLOWDOWN_DIFFERS: f64 = 1.15;

/// From this slowdown on the machine counts as busy: other numbers of threads are tried often.
pub const SLOWDOWN_BUSY: f64 = 1.25;

/// Below this slowdown of the candidate that is best alone, the machine counts as free again. It is less than [`SLOWDOWN_BUSY`], so that
/// the state does not flicker.
pub const SLOWDOWN_FREE: f64 = 1.1;

/// Several threads must be faster than one by this factor. A few threads must be faster than all by
/// this factor. Smaller differences are errors of the measurement.
pub const THREADS_WORTH: f64 = 1.1;

/// In steps shorter than [`STEP_SHORT`], several threads must be faster than one by this factor: a
/// thread that was idle must wake up first, and where the front lane shares a core with one of
/// them, its work takes a part of their time. With the built-in model on two cores, a step for a
/// prompt of 64 tokens takes 1.1 ms with two threads and 1.7 ms with one (by hand).
pub const THREADS_WORTH_SHORT: f64 = 1.7;

/// Steps below this time count as short for [`THREADS_WORTH_SHORT`].
pub const STEP_SHORT: Duration = Duration::from_millis(2);

/// From this number of rows on, arithmetic limits a step, and not memory. Twice the threads then
/// take half the time.
pub const ARITHMETIC_ROWS: usize = 16;

/// Most rows of a step in which one thread may lead. The leader computes attention alone, which
/// takes longer in longer prompts.
pub const LED_ROWS_MAX: usize = 64;

/// Step time until another number of threads is tried, after the machine became busy or free. The
/// time doubles with each trial that changes nothing.
pub const TRIAL_SOON: Duration = Duration::from_secs(1);

/// Step time until the first trial after the start.
pub const TRIAL_FIRST: Duration = Duration::from_secs(4);

/// The longest step time until a trial on a busy machine. A shorter one would cost more trials.
/// With a longer one, a change would be missed for longer.
pub const TRIAL_BUSY: Duration = Duration::from_secs(8);

/// The longest step time until a trial on a free machine.
pub const TRIAL_LATE: Duration = Duration::from_secs(64);

/// Steps of a trial whose times are known.
pub const TRIAL_STEPS: usize = SLOWDOWN_STEPS_MIN;

/// A trial ends when it has lost the time of this many steps.
pub const TRIAL_LOSS: f64 = 1.5;

/// The time that a step of a trial counts as lost, in steps, if its expected time is not known.
pub const TRIAL_UNKNOWN_LOSS: f64 = 0.5;

/// A number of threads is not tried if steps with it should take more than this many times as long.
/// It is tried anyway if the machine is busy, or was at the start.
pub const TRIAL_FACTOR_MAX: f64 = 1.4;

/// The least slowdown. A slowdown below 1 means that the machine had other work at the start.
pub const SLOWDOWN_MIN: f64 = 0.1;

/// The greatest slowdown. A step that hung must not forbid its number of threads for good.
pub const SLOWDOWN_MAX: f64 = 100.0;
