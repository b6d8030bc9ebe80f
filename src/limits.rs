//! Every bound in the program, by name, and the asserts that relate them.
//!
//! A queue, buffer, pool or loop that could grow has its limit here. What a
//! bound refuses is refused with a status and a sentence, never dropped.

use std::time::Duration;

/// Sequences that can hold KV cells at once: llama.cpp's own bound on
/// sequence ids (`LLAMA_MAX_SEQ`).
pub const SLOTS_MAX: usize = 256;

/// Rows (tokens) of one step.
pub const STEP_ROWS_MAX: usize = 2048;

/// Steps that the front lane may have handed to the decode lane and not yet
/// got back.
pub const STEPS_IN_FLIGHT: usize = 1 // being decoded
    + 1; // planned while that one runs

/// The next step is planned at least this long before the running one is
/// expected to end: a timer's and a wake-up's delay, with room to spare.
pub const PLAN_MARGIN: Duration = Duration::from_millis(2);

/// An idle engine waits at most this long for more, so that they run together.
pub const GATHER_MAX: Duration = Duration::from_millis(5);

/// Batches alive at once.
pub const BATCHES: usize = STEPS_IN_FLIGHT + 1; // being filled or read by the front lane

/// Messages that each ring between two lanes holds.
pub const RING_CAPACITY: usize = 4;

/// KV cells of all sequences together.
pub const CONTEXT_TOKENS_MAX: usize = 1 << 26;

/// Tokens that one sequence may hold, prompt and generated together. Bounds
/// the decode lane's token history; a model's context is cut to this.
pub const SEQUENCE_TOKENS_MAX: usize = 1 << 20;

/// Threads that pack weights when a model is loaded: more would wait for the memory.
pub const PACK_THREADS_MAX: usize = 16;

/// Least bytes of packed weights for each thread that packs.
pub const PACK_BYTES_MIN: usize = 256 * 1024;

/// Masks of attention in one computation of a model that have our kernels. Models have one or
/// two: of all cells, and of a window.
pub const ATTENTION_MASKS_MAX: usize = 16;

/// Sequences waiting for a slot, all requests together.
pub const QUEUE_SEQUENCES: usize = 1024;

/// Prompt tokens of all waiting sequences.
pub const QUEUE_TOKENS: usize = 4 * 1024 * 1024;

/// Sequences known to the scheduler at once.
pub const SEQUENCES_MAX: usize = SLOTS_MAX // running
    + QUEUE_SEQUENCES; // waiting

/// API keys, each with a name, a weight and a share of its own.
pub const KEYS_MAX: usize = 256;

/// Priorities go from this, negative, to this.
pub const PRIORITY_MAX: i32 = 1000;

/// What a request may set as its own deadline.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A step with prompt rows may always take this long: somebody waits for the prompt's first
/// token, and nobody sees that a fast stream has become slower. 16 tokens/s are nearly three
/// times as fast as people read (240 words a minute), and what comes within 100 ms is seen as
/// one event (Card, Moran and Newell: The Psychology of Human-Computer Interaction, 1983).
/// With 60 ms, a prompt of 2,000 tokens beside four streams has its first token after 1.4
/// times the time that it takes alone; with 50 ms, after 1.6 times (two Zen 5 cores).
pub const ITL_UNNOTICED: Duration = Duration::from_millis(60);

/// Where slots have caches of their own, prompt rows of a step in which others decode come in
/// multiples of this, and are at least as many, if there is room, however long the step takes:
/// they are a pass of their own over the weights. It is also how many a first step has.
pub const PREFILL_ROWS_STEP: usize = 16;

/// A beginning that the KV cache has is used from so many tokens on: copying a
/// shorter one takes longer than computing it.
pub const REUSE_TOKENS_MIN: usize = 16;

/// A sequence waits for another one to compute what both begin with, if that
/// saves it so many tokens.
pub const FOLLOW_TOKENS_MIN: usize = 32;

/// Steps in a row that a sequence may fail with, before it fails itself.
pub const STEP_RETRIES_MAX: u32 = 3;

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
pub const TOOLS_MAX: usize = 128;
/// Characters of a tool's name, as OpenAI has it.
pub const TOOL_NAME_CHARS_MAX: usize = 64;
/// Bytes of a chat template's source. The longest of known models has 20,000.
pub const CHAT_TEMPLATE_BYTES_MAX: usize = 256 * 1024;
/// Instructions of minijinja that one prompt may take. A message takes 100 to 300 of them.
pub const CHAT_TEMPLATE_FUEL: u64 = 4_000_000;
/// How deep a chat template may nest, as minijinja counts: a loop is 1, the call of a
/// macro 4. Its own bound, for 2 MiB of stack, is 500.
pub const CHAT_TEMPLATE_RECURSION_MAX: usize = 200;
/// Levels of what a chat template writes as JSON: what requests have, and what the
/// template puts around it.
pub const TEMPLATE_JSON_DEPTH_MAX: usize = 256;
/// Levels of JSON that a request's values may nest: schemas, tools, arguments.
pub const JSON_DEPTH_MAX: usize = 64;

/// Stop strings in one request, and the bytes of each. OpenAI allows 4.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string. Also bounds the text held back from a stream.
pub const STOP_BYTES_MAX: usize = 256;

/// Tokens that are told with each generated one, with their log-probabilities:
/// OpenAI's bound.
pub const TOP_LOGPROBS_MAX: usize = 20;
/// A completion's `logprobs` (a chat's go by `TOP_LOGPROBS_MAX`): OpenAI's bound.
pub const COMPLETION_LOGPROBS_MAX: i64 = 5;
/// Entries of one request's `logit_bias`.
pub const LOGIT_BIAS_ENTRIES_MAX: usize = 1024;
/// Bytes of a text among them.
pub const LOGIT_BIAS_TEXT_BYTES_MAX: usize = 256;
/// Tokens that all of them come to: each step adds to so many logits.
pub const LOGIT_BIAS_TOKENS_MAX: usize = 4096;
/// What is added to a logit goes from this, negative, to this. OpenAI allows 100.
pub const LOGIT_BIAS_MAX: f64 = 10_000.0;
/// Samplers in one request's order.
pub const SAMPLERS_MAX: usize = 16;
/// Sequence breakers of one request, for each of which the vocabulary is searched.
pub const DRY_BREAKERS_MAX: usize = 16;
/// Bytes of one of them: llama.cpp's own bound.
pub const DRY_BREAKER_BYTES_MAX: usize = 40;
/// Commas, colons and opening brackets in a body. Texts with more have more tokens than a
/// sequence may have, and objects and arrays with more are slow to parse.
pub const JSON_MARKS_MAX: usize = 1 << 20;
/// Fields of an object of a request that has known ones.
pub const FIELDS_MAX: usize = 1024;
/// The highest temperature, and the largest presence and frequency penalties: OpenAI's.
pub const TEMPERATURE_MAX: f64 = 2.0;
/// See [`TEMPERATURE_MAX`].
pub const PENALTY_MAX: f64 = 2.0;
/// The same on llama-server's path, which has no bounds.
pub const LLAMA_SAMPLING_MAX: f64 = 100.0;
/// Bytes of a JSON schema or a grammar that a request constrains its output by.
pub const CONSTRAINT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a regular expression that does so, or that a schema has in it.
pub const REGEX_BYTES_MAX: usize = 4 * 1024;
/// CPU time; a constraint that took more to compile is refused. It is known afterwards
/// only, so that what is compiled is bounded besides.
pub const CONSTRAINT_COMPILE_TIME_MAX: Duration = Duration::from_secs(1);
/// llguidance's work on a constraint's regular expressions while it is compiled;
/// its authors say 50,000 a millisecond.
pub const CONSTRAINT_COMPILE_FUEL: u64 = 500_000;
/// Symbols in llguidance's grammar of a constraint.
pub const CONSTRAINT_SYMBOLS_MAX: usize = 50_000;
/// llguidance's work on regular expressions for one mask; its authors say 14,000
/// a millisecond.
pub const CONSTRAINT_STEP_FUEL: u64 = 100_000;
/// Earley items that llguidance makes for one mask; its authors say 20,000 a
/// millisecond.
pub const CONSTRAINT_STEP_ITEMS_MAX: usize = 50_000;
/// Earley items of one place in a text: how many ways a grammar may have to go on. A mask
/// takes time by their square: 20 to 50 ms for these, by hand on two cores of a 2.5 GHz
/// Xeon.
pub const CONSTRAINT_ROW_ITEMS_MAX: usize = 1000;
/// States of one constraint's lexer, of about a kilobyte each. A string with a
/// `maxLength` takes about ten for each of its characters.
pub const CONSTRAINT_LEXER_STATES_MAX: usize = 1 << 16;
/// Bytes of a token that a constrained text may have; longer ones (runs of spaces
/// in some vocabularies) are never chosen there. llguidance's tables hold no more.
pub const CONSTRAINT_TOKEN_BYTES_MAX: usize = 1000;
/// Bytes of an error message of llguidance's that are passed on.
pub const CONSTRAINT_ERROR_BYTES_MAX: usize = 1000;
/// Compiled constraints that are remembered.
pub const CONSTRAINTS_CACHED_MAX: usize = 32;
/// Bytes of the sources of compiled constraints that are remembered.
pub const CONSTRAINTS_CACHED_BYTES_MAX: usize = 1024 * 1024;
/// Spaces that a line of constrained JSON may be indented by.
pub const JSON_INDENT_MAX: u32 = 20;
/// Subschemas in one another, references followed.
pub const SCHEMA_DEPTH_MAX: usize = 128;
/// Subschemas of a JSON schema.
pub const SCHEMAS_MAX: usize = 2048;
/// Properties of one subschema. llguidance's time to compile grows with their square, and
/// each optional one is a few items of a row.
pub const SCHEMA_PROPERTIES_MAX: usize = 256;
/// Values in one `enum`.
pub const SCHEMA_VALUES_MAX: usize = 1024;
/// Subschemas in one `anyOf`, `oneOf`, `allOf` or tuple.
pub const SCHEMA_ALTERNATIVES_MAX: usize = 128;
/// References that are followed in a row, to see whether two subschemas exclude each other.
pub const SCHEMA_REFERENCES_IN_A_ROW_MAX: usize = 16;
/// Comparisons of values, to see that no two of `oneOf` have one in common.
pub const SCHEMA_COMPARISONS_MAX: usize = 1_000_000;
/// Regular expressions in a JSON schema.
pub const SCHEMA_PATTERNS_MAX: usize = 128;
/// Patterns in one `patternProperties`; they are compared with one another.
pub const SCHEMA_PATTERN_PROPERTIES_MAX: usize = 16;
/// What `minLength` and its like may be. No sequence has so many characters.
pub const SCHEMA_COUNT_MAX: u64 = 1 << 31;
/// Rules of a GBNF grammar.
pub const GBNF_RULES_MAX: usize = 512;
/// Groups in one another in a GBNF grammar.
pub const GBNF_DEPTH_MAX: usize = 64;
/// The numbers in `{m,n}` in a GBNF grammar.
pub const GBNF_REPEAT_MAX: u32 = 1 << 16;
/// Steps of the search for the words of a GBNF grammar, of some nanoseconds each.
pub const GBNF_WORK_MAX: usize = 2_000_000;

/// Open client connections; the next one is answered 503 and closed.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections beyond that bound that are told so; any more are just closed.
pub const REFUSED_CONNECTIONS_MAX: usize = 64;
/// Connections that the kernel queues before `accept`.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Bytes of a request line and its headers together.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Header fields of one request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of one request body.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of all request bodies held at once.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of the trailer fields after a chunked body.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of one chunk-size line, extensions included.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes that a client may send ahead of the answer to its running request.
pub const PIPELINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a client's own `x-request-id` that are echoed.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Bytes read from a socket at once.
pub const READ_BYTES: usize = 64 * 1024;
/// Bytes of a stream that its client has not read; beyond, it is cancelled.
pub const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of capacity that an idle connection's buffers keep.
pub const IDLE_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Bodies of at most this many bytes are parsed and tokenised on the front
/// lane (well under a millisecond); longer ones go to the prepare lane.
pub const PREPARE_INLINE_BYTES_MAX: usize = 1024;
/// Bytes of one text to be tokenised.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Stack that tokenising may take for each byte of a text. llama.cpp splits
/// texts for some vocabularies (bloom, gpt-4o, tekken) with `std::regex`, which
/// recurses for each letter of a word: 20,000 letters overflow 2 MiB.
const TOKENISE_STACK_PER_BYTE: usize = 512;
/// Stack of the prepare lane. Mapped, and not touched before it is needed.
pub const PREPARE_STACK_BYTES: usize = TEXT_BYTES_MAX * TOKENISE_STACK_PER_BYTE;
/// Stack of every other lane; the front lane tokenises short texts.
pub const LANE_STACK_BYTES: usize = 4 * 1024 * 1024;
/// Texts whose embeddings are computed at once.
pub const EMBEDDING_TEXTS_MAX: usize = 32;
/// Tokens of all texts of one request for embeddings: OpenAI's bound.
pub const EMBEDDING_REQUEST_TOKENS_MAX: usize = 300_000;
/// Texts of one request for embeddings: OpenAI's bound.
pub const EMBEDDING_INPUTS_MAX: usize = 2048;
/// Tokens of texts whose embeddings are computed at once, and so of one text. Their
/// keys and values have to be somewhere: 235 MB for Qwen3-0.6B.
pub const EMBEDDING_TOKENS_MAX: usize = 2048;
/// Jobs at the prepare lane, or at the embed lane, waiting or done.
pub const WORK_MAX: usize = 256;

/// Bytes of a tool call before its arguments: its marker, its name and what else a model
/// writes there. So much of a stream is held back until it is known to be a call.
pub const TOOL_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of white space before a marker of a chat model that belong to it.
pub const MARKER_SPACE_BYTES_MAX: usize = 64;

/// A request's head must be complete this long after its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's body must be complete this long after its head.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without a request is closed after this.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// A client must take some of what is written to it within this.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream that has been silent for this long sends a comment line.
pub const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How often the front lane looks for passed timeouts while it has connections.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// A connection refused in mid-request is read from for at most this long, so
/// that the client sees the answer and not a reset.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections of the ops lane; the next one is closed. One that has just ended counts
/// until the lane, which comes last, has noticed.
pub const OPS_CONNECTIONS_MAX: usize = 64;
/// Requests on one of them, after which it is closed: its client may ask and
/// never read the answers.
pub const OPS_REQUESTS_MAX: u32 = 50;
/// One of them without a whole request for this long is closed. Between the
/// usual intervals of scrapers (5, 10, 15 s), so that none is closed just when
/// it is used.
pub const OPS_IDLE_TIMEOUT: Duration = Duration::from_secs(8);
/// Bytes that one of them may send in all: its requests are a kilobyte each.
pub const OPS_RECEIVED_BYTES_MAX: u64 = 1024 * 1024;
/// How often the ops lane looks for such connections while it has any.
pub const OPS_WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a path that the ops lane reads.
pub const OPS_PATH_BYTES_MAX: usize = 1024;
/// Bytes of a body that the ops lane skips; it needs none.
pub const OPS_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes that one page of metrics stays below, for the arithmetic below and the room to
/// send one.
pub const OPS_PAGE_BYTES: usize = 64 * 1024;
/// Stack of each connection of the ops lane. Mapped, touched as needed.
pub const OPS_STACK_BYTES: usize = 256 * 1024;

/// Log lines waiting to be written; more are lost.
pub const LOG_LINES_MAX: usize = 8 * 1024;
/// Bytes of what an error says.
pub const ERROR_BYTES_MAX: usize = 1024;
/// Bytes of a request's path that are logged.
pub const LOG_PATH_BYTES_MAX: usize = 128;

/// How long a task of the front lane lets go of it, so that the lane looks at its sockets
/// and the decode lane: as good as no time.
pub const LOOK_UP: Duration = Duration::from_micros(1);
/// How often it does so while it polls, on a core of its own: what a socket waits for is
/// told to the kernel only then, and each time costs a dozen small allocations of
/// glommio's.
pub const LOOK_UP_EVERY: Duration = Duration::from_micros(50);
/// When glommio would interrupt the tasks of the front lane: never. Its timer may pass
/// before any of them has run, and then glommio 0.9 takes that for nothing to do, and
/// sleeps (its pull request 53 ends that, and is in no release yet). Tasks that could
/// go on for long look up by themselves.
pub const PREEMPT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// How long a lane on a core of its own polls before it parks.
pub const SPIN_BEFORE_PARK: Duration = Duration::from_micros(200);

/// Blocks of a synthetic model: llama.cpp's own bound (`LLAMA_MAX_LAYERS`).
pub const SYNTH_LAYERS_MAX: u32 = 512;
/// Numbers in a synthetic model's hidden state.
pub const SYNTH_WIDTH_MAX: u32 = 1 << 16;
/// Numbers in a synthetic model's feed-forward layer.
pub const SYNTH_FFN_MAX: u32 = 1 << 18;
/// Heads of a synthetic model.
pub const SYNTH_HEADS_MAX: u32 = 512;
/// Numbers in a head of a synthetic model.
pub const SYNTH_HEAD_SIZE_MAX: u32 = 1024;
/// Tokens of a synthetic model's vocabulary.
pub const SYNTH_VOCAB_MAX: u32 = 1 << 20;
/// Numbers of a synthetic model that a thread draws and writes at once.
pub const SYNTH_PIECE_ELEMENTS: u64 = 1 << 20;
/// Bytes of a tensor that the quantiser holds at once.
pub const SYNTH_QUANT_BUFFER_BYTES: usize = 256 * 1024 * 1024;

/// The longest `Retry-After` that is sent, in seconds.
pub const RETRY_AFTER_S_MAX: u64 = 60;

/// Prompt tokens of one run of the load generator, warm-ups included: its
/// prompts are drawn and its bodies written before it begins.
pub const BENCH_PROMPT_TOKENS_MAX: u64 = 64 * 1024 * 1024;
/// Requests of one run of the load generator.
pub const BENCH_REQUESTS_MAX: usize = 1 << 20;
/// Connections that the load generator opens before it begins; where it needs
/// more, it opens them on the way.
pub const BENCH_CONNECTIONS_AHEAD_MAX: usize = 512;
/// A connection of the load generator must be established within this.
pub const BENCH_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a response may take to end after its `[DONE]`; then its
/// connection is given up.
pub const BENCH_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of one event that a measured server may send.
pub const BENCH_EVENT_BYTES_MAX: usize = 1024 * 1024;
/// How late a timer of tokio's may end, which counts whole milliseconds.
pub const BENCH_TIMER_LATE_MAX: Duration = Duration::from_millis(2);
/// Bytes of one whole (not streamed) response of a measured server.
pub const BENCH_RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Events of one response of a measured server.
pub const BENCH_EVENTS_MAX: usize = 1 << 20;
/// Characters of a measured server's error message that are kept.
pub const BENCH_MESSAGE_CHARS_MAX: usize = 300;
/// Rounds of one comparison.
pub const BENCH_ROUNDS_MAX: usize = 1000;

const _: () = assert!(BATCHES <= RING_CAPACITY, "all batches fit into one ring");
const _: () = assert!(SLOTS_MAX <= STEP_ROWS_MAX, "every running sequence can decode in one step");
const _: () = assert!(SLOTS_MAX <= u16::MAX as usize, "SlotId is 16 bits wide");
const _: () = assert!(SEQUENCE_TOKENS_MAX <= CONTEXT_TOKENS_MAX);
const _: () = assert!(CONTEXT_TOKENS_MAX <= i32::MAX as usize, "llama_pos is an i32");
const _: () = assert!(PROMPTS_MAX <= QUEUE_SEQUENCES, "one request always fits an empty queue");
const _: () = assert!(HEAD_BYTES_MAX <= READ_BYTES, "a head arrives in one read");
const _: () = assert!(PREPARE_INLINE_BYTES_MAX < TEXT_BYTES_MAX);
const _: () = assert!(PREPARE_INLINE_BYTES_MAX * TOKENISE_STACK_PER_BYTE <= LANE_STACK_BYTES / 4);
const _: () = assert!(MARKER_SPACE_BYTES_MAX < TOOL_HEAD_BYTES_MAX);
const _: () = assert!(TEXT_BYTES_MAX < BODY_BYTES_MAX, "a text fits into a body");
const _: () = assert!(REGEX_BYTES_MAX <= CONSTRAINT_BYTES_MAX);
const _: () = assert!(CONSTRAINT_BYTES_MAX <= CONSTRAINTS_CACHED_BYTES_MAX, "one fits");
const _: () = assert!(CONSTRAINT_BYTES_MAX < BODY_BYTES_MAX, "a constraint fits into a body");
const _: () = assert!(
    (SEQUENCE_TOKENS_MAX * CONSTRAINT_TOKEN_BYTES_MAX) as u64 <= SCHEMA_COUNT_MAX,
    "an upper bound beyond it bounds nothing"
);
const _: () = assert!(SYNTH_HEADS_MAX * SYNTH_HEAD_SIZE_MAX <= 1 << 20, "rows stay small");
const _: () = assert!(SYNTH_PIECE_ELEMENTS.is_multiple_of(2), "weights are drawn in pairs");
const _: () = assert!(
    OPS_CONNECTIONS_MAX * OPS_REQUESTS_MAX as usize * OPS_PAGE_BYTES <= 256 * 1024 * 1024,
    "what clients of the ops lane leave unread"
);
const _: () = assert!(BENCH_EVENT_BYTES_MAX <= BENCH_RESPONSE_BYTES_MAX);
const _: () = assert!(TOP_LOGPROBS_MAX <= u8::MAX as usize, "their number is 8 bits wide");
const _: () = assert!(DRY_BREAKERS_MAX * DRY_BREAKER_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(usize::BITS == 64, "indexes are 64 bits wide");
