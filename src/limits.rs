//! The bounds that several modules must agree on, and the asserts that relate them. A bound that
//! only one module needs stands in that module.
//!
//! Every queue, buffer, pool or loop that could grow has a bound. A request beyond one is refused
//! with a status and a sentence, never dropped.

use std::time::Duration;

/// Sequences that can hold KV cells at once: llama.cpp's own bound on
/// sequence ids (`LLAMA_MAX_SEQ`).
pub const SLOTS_MAX: usize = 256;

/// Saved states of all slots together.
pub const CHECKPOINTS_MAX: usize = 4096;

/// Pages of the prefix store.
pub const PAGES_MAX: usize = 65_536;

/// Tokens of a page.
pub const PAGE_TOKENS_MAX: usize = 256;

/// Jobs at the disk lane.
pub const FILE_TASKS_MAX: usize = 8;

/// Jobs at the disk lane that write. A read must not wait behind more of them.
pub const FILE_WRITES_MAX: usize = 2;

/// Pages in the prefix store's files.
pub const FILES_MAX: usize = 65_536;

/// Files of slots that are kept open to be read. For a new one, the oldest of the key with the most
/// closes.
pub const SLOT_FILES_OPEN: usize = 32;

/// Files of slots in their folder.
pub const SLOT_FILES_MAX: usize = 10_000;

/// Tasks with files of slots that are not done.
pub const SLOT_TASKS_MAX: usize = 64;

/// Bytes of the name of a slot's file.
pub const SLOT_FILE_NAME_BYTES_MAX: usize = 200;

/// Bytes of the body of a request to save or restore the text of a slot.
pub const SLOT_BODY_BYTES_MAX: usize = 16 * 1024;

/// Pages that the disk lane lists at once.
pub const FILES_LISTED: usize = 64;

/// Pages that a step copies into the prefix store, and as many that it copies back.
pub const PAGES_STEP_MAX: usize = 64;

/// Places in a prompt where later prompts probably part from it, as its conversation says.
pub const BRANCHES_MAX: usize = 3;

/// Rows (tokens) of one step.
pub const STEP_ROWS_MAX: usize = 2048;

/// Most steps that the front lane has sent to the decode lane and not yet received back.
pub const STEPS_IN_FLIGHT: usize = 1 // being decoded
    + 1; // planned while that one runs

/// Batches alive at once.
pub const BATCHES: usize = STEPS_IN_FLIGHT + 1; // being filled or read by the front lane

/// Messages that each ring between two lanes holds.
pub const RING_CAPACITY: usize = 4;

/// KV cells of all sequences together.
pub const CONTEXT_TOKENS_MAX: usize = 1 << 26;

/// The largest number of tokens that a request may ask for. Every parser of JSON can hold it. What
/// does not fit behind the prompt is cut.
pub const LENGTH_MAX: i64 = (1 << 53) - 1;

/// Tokens that one sequence may hold, prompt and generated together. Bounds
/// the decode lane's token history; a model's context is cut to this.
pub const SEQUENCE_TOKENS_MAX: usize = 1 << 20;

/// Sequences waiting for a slot, all requests together.
pub const QUEUE_SEQUENCES: usize = 1024;

/// Prompt tokens of all waiting sequences.
pub const QUEUE_TOKENS: usize = 4 * 1024 * 1024;

/// Sequences known to the scheduler at once.
pub const SEQUENCES_MAX: usize = SLOTS_MAX // running
    + QUEUE_SEQUENCES; // waiting

/// Most API keys. Each has a name, a weight and a share.
pub const KEYS_MAX: usize = 256;

/// Bytes of a line in a key file. A key of that length still fits into a request's head beside the
/// other fields.
pub const KEY_BYTES_MAX: usize = 4096;

/// Bytes of a key file: all keys, and as much for comments.
pub const KEY_FILE_BYTES_MAX: usize = 2 * KEYS_MAX * KEY_BYTES_MAX;

/// Largest priority number. The smallest is its negative.
pub const PRIORITY_MAX: i32 = 1000;

/// Longest deadline that a request may set.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Steps that the page about the lanes shows at most: 4 s of steps of 4 ms.
pub const HISTORY_STEPS: usize = 1024;

/// Default samples a second of a profiled thread. Not 100, so that samples do not fall into step
/// with timers.
pub const PROFILE_HZ: u32 = 99;

/// Most samples a second.
pub const PROFILE_HZ_MAX: u32 = 999;

/// Longest profile.
pub const PROFILE_SECONDS_MAX: u32 = 60;

/// The kernel's buffer of samples for each thread. By default, the kernel allows a user 516 KiB of
/// such buffers for each processor.
pub const PROFILE_BUFFER_BYTES: usize = 128 * 1024;

/// Bytes of the largest sample: 127 addresses and a head.
pub const PROFILE_SAMPLE_BYTES_MAX: usize = 1040;

/// Time after which the buffers are emptied.
pub const PROFILE_DRAIN_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of a profile's folded stacks. Further stacks are lost.
pub const PROFILE_FOLDED_BYTES_MAX: usize = 1024 * 1024;

/// Time to find a profile's symbols and to draw it, after the recording.
pub const PROFILE_DRAW_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest profile that `corelane profile` takes.
pub const PROFILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Spans of ended requests that wait for the lane that sends them. Further ones are dropped.
pub const SPANS_QUEUED_MAX: usize = 2048;

/// Spans sent at once.
pub const SPANS_BATCH_MAX: usize = 512;

/// Time that a collector has to take a batch.
pub const SPANS_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for the last spans after the front lane has ended.
pub const SPANS_END_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of a hub's list of files. One file takes about 400 bytes.
pub const HUB_ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Files of a repository. The largest ones with GGUF files have some hundreds.
pub const HUB_FILES_MAX: usize = 10_000;

/// Redirections of one request. huggingface.co makes one to its storage, and one for a repository
/// with a new name.
pub const HUB_REDIRECTS_MAX: usize = 5;

/// Tries in a row without a new byte, after which a download fails.
pub const HUB_TRIES_MAX: u32 = 6;

/// Time between two lines in the log about a download.
pub const HUB_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Most tasks of the mask lane: constrained texts with slots, and as many that have ended and wait
/// for their memory to be freed.
pub const MASK_TASKS_MAX: usize = 2 * SLOTS_MAX;

/// Tokens that a constraint takes in without a pause on the mask lane. One usually
/// takes less than 5 ms.
pub const WALK_TOKENS_MAX: usize = 16;

/// Prompts in one request.
pub const PROMPTS_MAX: usize = 128;

/// Choices for one prompt (`n`).
pub const CHOICES_MAX: usize = 128;
/// Texts that `guided_choice` may name.
pub const GUIDED_CHOICES_MAX: usize = 256;
/// Messages of one conversation.
pub const MESSAGES_MAX: usize = 4096;
/// Parts of one message's content.
pub const PARTS_MAX: usize = 1024;
/// Tools of one request, as OpenAI has it.
pub const TOOLS_MAX: usize = 4096;
/// Characters of a tool's name, as OpenAI has it.
pub const TOOL_NAME_CHARS_MAX: usize = 128;

/// Bytes of a request's `cache_salt`.
pub const CACHE_SALT_BYTES_MAX: usize = 256;
/// Stop strings in one request, and the bytes of each. OpenAI allows 4.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string. Also bounds the text held back from a stream.
pub const STOP_BYTES_MAX: usize = 256;
/// Names in `response_fields`.
pub const RESPONSE_FIELDS_MAX: usize = 64;
/// Bytes of a name in `response_fields`.
pub const RESPONSE_FIELD_BYTES_MAX: usize = 256;

/// Rows of a step that score tokens of prompts. Each has logits, which take 0.6 MB for a vocabulary
/// of 151,936 tokens.
pub const SCORED_ROWS_MAX: usize = 32;

/// Most tokens that one text guesses in a step.
pub const GUESSES_MAX: usize = 16;
/// Earley items at one position, beyond which the search for tokens that a constraint forces stops.
/// Slow grammars have more, and get no such guesses.
pub const FORCED_ITEMS_MAX: usize = 5_000;
/// Guessed tokens of a step. Each has logits, like a scored row.
pub const GUESSED_ROWS_MAX: usize = 32;
/// Samples of a step: one for each sequence, and one for each guess that came true.
pub const SAMPLES_MAX: usize = SLOTS_MAX + GUESSED_ROWS_MAX;
/// Tokens of unread texts that the draft model reads in one step, for all texts together.
pub const DRAFT_READ_ROWS: usize = 16;
/// Most running texts with which the draft model is used. With more, few guesses pay.
pub const DRAFT_TEXTS_MAX: usize = 8;
/// Tokens that must be equal for a guess from an earlier place of the text. With a smaller number,
/// more guesses are wrong. With a larger one, right guesses are missed.
pub const NGRAM: usize = 2;
/// Most tokens that are compared at each earlier place.
pub const LOOKUP_MATCH_MAX: usize = 32;

/// Most alternatives with log-probabilities for each generated token: OpenAI's bound.
pub const TOP_LOGPROBS_MAX: usize = 20;
/// Largest `logprobs` of a completion: OpenAI's bound. For chats it is `TOP_LOGPROBS_MAX`.
pub const COMPLETION_LOGPROBS_MAX: i64 = 5;
/// Parts of other files in an infill request. Editors send some dozens.
pub const INFILL_EXTRA_MAX: usize = 1024;
/// Largest indentation that a request may require of a line.
pub const INDENT_MAX: i64 = 1024;
/// Entries of one request's `logit_bias`.
pub const LOGIT_BIAS_ENTRIES_MAX: usize = 1024;
/// Bytes of a text in `logit_bias`.
pub const LOGIT_BIAS_TEXT_BYTES_MAX: usize = 256;
/// Largest bias, positive or negative. OpenAI allows 100.
pub const LOGIT_BIAS_MAX: f64 = 10_000.0;
/// Samplers in one request's order: each of them at most once.
pub const SAMPLERS_MAX: usize = 10;
/// Sequence breakers of one request. The vocabulary is searched for each.
pub const DRY_BREAKERS_MAX: usize = 16;
/// Bytes of a sequence breaker: llama.cpp's own bound.
pub const DRY_BREAKER_BYTES_MAX: usize = 40;
/// Commas, colons and opening brackets in a body. A prompt with more would exceed the longest
/// sequence, and JSON with more is slow to parse.
pub const JSON_MARKS_MAX: usize = 1 << 20;
/// The highest temperature, and the largest presence and frequency penalties: OpenAI's.
pub const TEMPERATURE_MAX: f64 = 2.0;
/// See [`TEMPERATURE_MAX`].
pub const PENALTY_MAX: f64 = 2.0;
/// The bound on temperature and penalties for llama-server's paths. llama-server has none.
pub const LLAMA_SAMPLING_MAX: f64 = 100.0;

/// Most bytes of the server's system prompt.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a JSON schema or a grammar that constrains the output.
pub const CONSTRAINT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a regular expression that constrains the output or is part of a schema.
pub const REGEX_BYTES_MAX: usize = 4 * 1024;
/// Stack of each thread that compiles constraints.
pub const COMPILE_STACK_BYTES: usize = 16 * 1024 * 1024;
/// Schemas, values, names and parts of regular expressions of a constraint that is cheap to
/// compile.
pub const CHEAP_POINTS_MAX: usize = 2000;
/// Processor time in which a constraint takes in one token, and in which a mask is computed. If
/// either takes longer, the text ends, at most one [`SWEEP_INTERVAL`] later.
pub const CONSTRAINT_TOKEN_TIME_MAX: Duration = Duration::from_millis(250);
/// llguidance's fuel (work on regular expressions) for one mask. Its authors state 14,000 units a
/// millisecond.
pub const CONSTRAINT_STEP_FUEL: u64 = 100_000;
/// Earley items that llguidance may make for one mask. Its authors state 20,000 a millisecond.
pub const CONSTRAINT_STEP_ITEMS_MAX: usize = 50_000;
/// Bytes of a token in a constrained text. Longer tokens (runs of spaces in some vocabularies) are
/// never chosen there, because llguidance's tables do not hold them.
pub const CONSTRAINT_TOKEN_BYTES_MAX: usize = 1000;
/// Bytes of llguidance's error messages that are shown to clients.
pub const CONSTRAINT_ERROR_BYTES_MAX: usize = 1000;
/// Compiled constraints in the cache.
pub const CONSTRAINTS_CACHED_MAX: usize = 32;
/// Bytes of the compiled constraints in the cache, with their sources.
pub const CONSTRAINTS_CACHED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Spaces of indentation of a line of constrained JSON.
pub const JSON_INDENT_MAX: u32 = 20;
/// Deepest nesting of subschemas, with references followed.
pub const SCHEMA_DEPTH_MAX: usize = 128;
/// Subschemas of a JSON schema.
pub const SCHEMAS_MAX: usize = 2048;
/// Properties of one subschema. llguidance's time to compile them grows with the square of their
/// number, and each optional one adds a few Earley items at a position.
pub const SCHEMA_PROPERTIES_MAX: usize = 256;
/// Values in one `enum`.
pub const SCHEMA_VALUES_MAX: usize = 1024;
/// Subschemas in one `anyOf`, `oneOf`, `allOf` or tuple.
pub const SCHEMA_ALTERNATIVES_MAX: usize = 128;
/// Comparisons of values to decide whether two alternatives of `oneOf` share a value.
pub const SCHEMA_COMPARISONS_MAX: usize = 1_000_000;
/// Regular expressions in a JSON schema.
pub const SCHEMA_PATTERNS_MAX: usize = 128;
/// Largest `minLength` and similar numbers. No sequence has more characters.
pub const SCHEMA_COUNT_MAX: u64 = 1 << 31;
/// Rules of a GBNF grammar.
pub const GBNF_RULES_MAX: usize = 512;
/// Deepest nesting of groups in a GBNF grammar.
pub const GBNF_DEPTH_MAX: usize = 64;
/// The numbers in `{m,n}` in a GBNF grammar.
pub const GBNF_REPEAT_MAX: u32 = 1 << 16;
/// Steps of the search for the words of a GBNF grammar. A step takes some nanoseconds.
pub const GBNF_WORK_MAX: usize = 2_000_000;

/// Default of the most open client connections. `perf/study idle` measures the memory of an idle one.
pub const CONNECTIONS: usize = 16 * 1024;
/// The largest number of connections that the user may set.
pub const CONNECTIONS_MAX: usize = 1 << 20;
/// Connections beyond the bound that are let in for public paths, while none of the others is idle.
/// Further ones are closed.
pub const SPARE_CONNECTIONS_MAX: usize = 64;
/// A connection that has been idle for less than this does not give way to a new one.
pub const IDLE_GRACE: Duration = Duration::from_millis(200);
/// A server that refuses every request for this long, and serves none, is not healthy.
pub const REFUSING_TIME_MAX: Duration = Duration::from_secs(10);
/// File descriptors that client connections leave free, or a quarter of the limit if that is less.
pub const DESCRIPTORS_RESERVED: usize = 2 * OPS_CONNECTIONS_MAX // two for each connection
    + SPARE_CONNECTIONS_MAX
    + SLOT_FILES_OPEN
    + 32; // everything else that opens a file

/// Bytes of a request line and its headers together.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Header fields of one request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of one request body.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Default memory of all requests outside the KV cache: bodies, prompts and answers.
pub const REQUEST_MEMORY_BYTES: usize = 512 * 1024 * 1024;
/// Stored responses may take one byte, in addition, for each of this many bytes of the requests'
/// memory.
pub const RESPONSES_SHARE: usize = 8;
/// Bytes of the id of a response, an item or a tool call in the Responses API: OpenAI's bound.
pub const ID_BYTES_MAX: usize = 64;
/// Bytes of an answer about a stored response up to which the front lane writes it itself.
pub const RANGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response's metadata, as JSON.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// The least memory for requests that the user may set: a body of any size, and the answers of two
/// keys.
pub const REQUEST_MEMORY_BYTES_MIN: usize = 4 * BODY_BYTES_MAX;
/// The requests' memory is counted in units of this many bytes.
pub const HOLD_BYTES_STEP: usize = 4 * 1024;
/// Bytes of later requests that are read while a request runs. Further bytes stay in the kernel's
/// buffer.
pub const PIPELINE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a client's own `x-request-id` that are echoed.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Bytes read from a socket at once.
pub const READ_BYTES: usize = 64 * 1024;

/// Bodies of at most this many bytes are parsed and tokenised on the front
/// lane (well under a millisecond); longer ones go to a prepare lane.
pub const PREPARE_INLINE_BYTES_MAX: usize = 1024;
/// Bodies of at most this many bytes go to the first prepare lane, longer ones to the second.
pub const PREPARE_SHORT_BYTES_MAX: usize = 64 * 1024;
/// Texts of at least this many bytes are prepared on the second prepare lane.
pub const PREPARE_LONG_BYTES_MIN: usize = PREPARE_SHORT_BYTES_MAX + 1;
/// Bytes of text in one piece of a prepare lane's task: a few milliseconds.
pub const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of text that the front lane prepares in one turn. A query counts once for each of its
/// documents, because it is tokenised again with each.
pub const PIECE_INLINE_BYTES: usize = 4 * 1024;
/// Bytes of one text to be tokenised.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of stack that tokenising may need for each byte of a text. llama.cpp splits texts for some
/// vocabularies (bloom, gpt-4o, tekken) with `std::regex`, which recurses for each letter of a
/// word: 20,000 letters overflow 2 MiB.
pub const TOKENISE_STACK_PER_BYTE: usize = 512;
/// Stack of every lane but the prepare lanes; the front lane tokenises short texts.
pub const LANE_STACK_BYTES: usize = 4 * 1024 * 1024;
/// Texts in a measured step at the start, with one token each.
pub const CALIBRATION_TEXTS: usize = 8;
/// Most candidates for the compute threads of a step, including the one in which a thread leads.
pub const THREAD_CANDIDATES_MAX: usize = 8;
/// The time that an idle compute thread polls for work, for each level of `--poll`: 2 ms with the
/// default of 50. While requests run, the time between two steps is shorter than that.
pub const POLL_LEVEL: Duration = Duration::from_micros(40);
/// Texts of one request for embeddings: OpenAI's bound.
pub const EMBEDDING_INPUTS_MAX: usize = 2048;
/// Tokens of texts whose embeddings are computed in one pass, and so the longest text. Their keys
/// and values take 235 MB for Qwen3-0.6B.
pub const EMBEDDING_TOKENS_MAX: usize = 2048;
/// Tasks at the worker lanes, waiting or done.
pub const WORK_MAX: usize = 256;

/// Bytes of a tool call before its arguments, such as its marker and its name. Up to this many
/// bytes of a stream are held back until they are known to be a call.
pub const TOOL_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of white space before a chat model's marker that are part of the marker.
pub const MARKER_SPACE_BYTES_MAX: usize = 64;

/// A request's head must be complete this long after its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's body must be complete this long after its head.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The head of a request on a connection beyond the bound must be complete this long after the
/// connection was accepted.
pub const SPARE_TIMEOUT: Duration = Duration::from_secs(1);
/// The time within which a client must take some of the bytes that are written to it.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream that has been silent for this long sends a comment line, unless `--sse-ping-interval`
/// or the request says otherwise.
pub const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which the front lane checks timeouts while it has connections.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes that are read from a closing connection, so that the client gets its answer instead of a
/// reset.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// Time within which all other lanes must end after the front lane.
pub const LANES_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Most connections of the ops lane. The next one is closed. A connection that has just ended
/// counts until the lane notices.
pub const OPS_CONNECTIONS_MAX: usize = 64;
/// Requests on one such connection. It is then closed, because its client may never read the
/// answers.
pub const OPS_REQUESTS_MAX: u32 = 50;
/// Such a connection is closed if it sends no whole request for this long. The time is between the
/// usual intervals of scrapers (5, 10, 15 s), so that no connection is closed just when it is used.
pub const OPS_IDLE_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval at which the ops lane checks for connections to close.
pub const OPS_WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Bound on the bytes of a page of metrics. It sizes the send buffer.
pub const OPS_PAGE_BYTES: usize = 64 * 1024;

/// Log lines waiting to be written. Further lines are lost.
pub const LOG_LINES_MAX: usize = 8 * 1024;

/// The longest `Retry-After` that is sent, in seconds.
pub const RETRY_AFTER_S_MAX: u64 = 60;

const _: () = assert!(BATCHES <= RING_CAPACITY, "all batches fit into one ring");
const _: () = assert!(SLOTS_MAX <= STEP_ROWS_MAX, "every running sequence can decode in one step");
const _: () = assert!(SLOTS_MAX <= u16::MAX as usize, "SlotId is 16 bits wide");
const _: () = assert!(SAMPLES_MAX <= u16::MAX as usize, "so is the index of log-probabilities");
const _: () = assert!(STEPS_IN_FLIGHT * GUESSES_MAX <= u8::MAX as usize, "counts are 8 bits wide");
const _: () = assert!(GUESSES_MAX <= GUESSED_ROWS_MAX && NGRAM <= LOOKUP_MATCH_MAX);
const _: () = assert!(SEQUENCE_TOKENS_MAX <= CONTEXT_TOKENS_MAX);
const _: () = assert!(CONTEXT_TOKENS_MAX <= i32::MAX as usize, "llama_pos is an i32");
const _: () = assert!(PROMPTS_MAX <= QUEUE_SEQUENCES, "one request always fits an empty queue");
const _: () = assert!(2 * KEY_BYTES_MAX <= HEAD_BYTES_MAX, "a head has room for a key");
const _: () = assert!(HEAD_BYTES_MAX <= READ_BYTES, "a head arrives in one read");
const _: () = assert!(
    REFUSING_TIME_MAX.as_millis() > 4 * (IDLE_GRACE.as_millis() + SPARE_TIMEOUT.as_millis()),
    "clients alone are not refused for so long: connections that idle give way before"
);
const _: () = assert!(PREPARE_INLINE_BYTES_MAX < TEXT_BYTES_MAX);
const _: () = assert!(PREPARE_INLINE_BYTES_MAX * TOKENISE_STACK_PER_BYTE <= LANE_STACK_BYTES / 4);
const _: () = assert!(PIECE_INLINE_BYTES * TOKENISE_STACK_PER_BYTE <= LANE_STACK_BYTES / 2);
const _: () =
    assert!(PIECE_BYTES <= PREPARE_SHORT_BYTES_MAX, "a rendered prompt is tokenised there");
const _: () = assert!(MARKER_SPACE_BYTES_MAX < TOOL_HEAD_BYTES_MAX);
const _: () = assert!(TEXT_BYTES_MAX < BODY_BYTES_MAX, "a text fits into a body");
const _: () = assert!(FORCED_ITEMS_MAX < CONSTRAINT_STEP_ITEMS_MAX);
const _: () = assert!(REGEX_BYTES_MAX <= CONSTRAINT_BYTES_MAX);
const _: () = assert!(CONSTRAINT_BYTES_MAX <= CONSTRAINTS_CACHED_BYTES_MAX, "one fits");
const _: () = assert!(CONSTRAINT_BYTES_MAX < BODY_BYTES_MAX, "a constraint fits into a body");
const _: () = assert!(
    (SEQUENCE_TOKENS_MAX * CONSTRAINT_TOKEN_BYTES_MAX) as u64 <= SCHEMA_COUNT_MAX,
    "an upper bound beyond it bounds nothing"
);
const _: () = assert!(
    OPS_CONNECTIONS_MAX * OPS_REQUESTS_MAX as usize * OPS_PAGE_BYTES <= 256 * 1024 * 1024,
    "pages that clients of the ops lane leave unread"
);
const _: () = assert!(
    PROFILE_HZ_MAX as u128 * PROFILE_SAMPLE_BYTES_MAX as u128 * PROFILE_DRAIN_INTERVAL.as_millis()
        <= 1000 * PROFILE_BUFFER_BYTES as u128,
    "no sample is lost while buffers are emptied in time"
);
const _: () = assert!(
    OPS_CONNECTIONS_MAX * PROFILE_FOLDED_BYTES_MAX <= 64 * 1024 * 1024,
    "a connection has one profile at most, so this is all that clients of the ops lane leave unread"
);
const _: () = assert!(TOP_LOGPROBS_MAX <= u8::MAX as usize, "their number is 8 bits wide");
const _: () = assert!(DRY_BREAKERS_MAX * DRY_BREAKER_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(
    2 * SPANS_TIMEOUT.as_secs() + SPANS_END_TIMEOUT.as_secs() < LANES_END_TIMEOUT.as_secs(),
    "one batch is under way when the front lane ends, and one when the time for the last ones has passed"
);
const _: () = assert!(usize::BITS == 64, "indexes are 64 bits wide");
