//! Every bound in the program, by name, and the asserts that relate them.
//!
//! Every queue, buffer, pool or loop that could grow has its limit here. A request beyond a bound
//! is refused with a status and a sentence, never dropped.

use std::time::Duration;

/// Sequences that can hold KV cells at once: llama.cpp's own bound on
/// sequence ids (`LLAMA_MAX_SEQ`).
pub const SLOTS_MAX: usize = 256;

/// Rows (tokens) of one step.
pub const STEP_ROWS_MAX: usize = 2048;

/// Most steps that the front lane has sent to the decode lane and not yet received back.
pub const STEPS_IN_FLIGHT: usize = 1 // being decoded
    + 1; // planned while that one runs

/// The next step is planned at least this long before the running one is expected to end. It
/// covers the delay of a timer and of a wake-up, with room to spare.
pub const PLAN_MARGIN: Duration = Duration::from_millis(2);

/// Longest time that an idle engine waits for more requests, so that they run together.
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

/// Most threads that pack weights when a model is loaded. More threads would only wait for memory.
pub const PACK_THREADS_MAX: usize = 16;

/// Least bytes of packed weights for each thread that packs.
pub const PACK_BYTES_MIN: usize = 256 * 1024;

/// Most attention masks in one computation of a model that use corelane's kernels. Models have one
/// or two: for all cells, and for a sliding window.
pub const ATTENTION_MASKS_MAX: usize = 16;

/// Sequences waiting for a slot, all requests together.
pub const QUEUE_SEQUENCES: usize = 1024;

/// Prompt tokens of all waiting sequences.
pub const QUEUE_TOKENS: usize = 4 * 1024 * 1024;

/// Sequences known to the scheduler at once.
pub const SEQUENCES_MAX: usize = SLOTS_MAX // running
    + QUEUE_SEQUENCES; // waiting

/// Most API keys. Each has a name, a weight and a share.
pub const KEYS_MAX: usize = 256;

/// Bytes of a line with a key in a key file: a secret fits into a head beside the other fields.
pub const KEY_BYTES_MAX: usize = 4096;

/// Bytes of a key file: all keys, and as much for comments.
pub const KEY_FILE_BYTES_MAX: usize = 2 * KEYS_MAX * KEY_BYTES_MAX;

/// Largest priority number. The smallest is its negative.
pub const PRIORITY_MAX: i32 = 1000;

/// Longest deadline that a request may set.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Fast masks in a row after which a constraint counts as fast.
pub const MASKS_TO_PROVE: u32 = 64;

/// Steps that the page about the lanes shows at most: 4 s of steps of 4 ms.
pub const HISTORY_STEPS: usize = 1024;

/// Turns of the front lane's engine that this page shows at most: one that sends a step, and one that takes it back.
pub const HISTORY_TICKS: usize = 2 * HISTORY_STEPS;

/// Samples a second of a profiled thread, if the client asks for no other number. Not 100, so that
/// they do not fall into step with timers.
pub const PROFILE_HZ: u32 = 99;

/// Most samples a second.
pub const PROFILE_HZ_MAX: u32 = 999;

/// Longest profile.
pub const PROFILE_SECONDS_MAX: u32 = 60;

/// Threads of one profile: those of the largest decode lane, and all others.
pub const PROFILE_THREADS_MAX: usize = 512;

/// Different stacks of one profile; further ones count as lost. Each may have 127 frames.
pub const PROFILE_STACKS_MAX: usize = 64 * 1024;

/// The kernel's buffer of samples for each thread. Without more locked memory, a user may have 516 KiB of
/// such buffers for each processor.
pub const PROFILE_BUFFER_BYTES: usize = 128 * 1024;

/// Bytes of the largest sample: 127 addresses and a head.
pub const PROFILE_SAMPLE_BYTES_MAX: usize = 1040;

/// Time after which the buffers are emptied.
pub const PROFILE_DRAIN_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of folded stacks. The stacks beyond it are lost, so that a profile has a bound.
pub const PROFILE_FOLDED_BYTES_MAX: usize = 1024 * 1024;

/// Time that a client has to read a profile, beside [`OPS_IDLE_TIMEOUT`].
pub const PROFILE_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after which a connection that waits for a profile looks whether it is done.
pub const PROFILE_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for a profile's names and its picture, after the recording.
pub const PROFILE_DRAW_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest profile that `corelane profile` takes.
pub const PROFILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Spans of ended requests that wait for the lane that sends them. Further ones are dropped.
pub const SPANS_QUEUED_MAX: usize = 2048;

/// Spans sent at once.
pub const SPANS_BATCH_MAX: usize = 512;

/// Time between two batches, unless there are more spans than fit into one.
pub const SPANS_INTERVAL: Duration = Duration::from_secs(1);

/// Time that a collector has to take a batch.
pub const SPANS_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for the last spans after the front lane has ended.
pub const SPANS_END_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest answer of a collector.
pub const SPANS_ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Time between two lines in the log about a collector that takes no spans.
pub const SPANS_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of the owner, the repository or the quant in a model's name. huggingface.co allows 96.
pub const HUB_NAME_BYTES_MAX: usize = 96;

/// Bytes of a file's path in a repository.
pub const HUB_PATH_BYTES_MAX: usize = 512;

/// Bytes of a hub's list of files. One file takes about 400 bytes.
pub const HUB_ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Files of a repository. The largest ones with GGUF files have some hundreds.
pub const HUB_FILES_MAX: usize = 10_000;

/// Bytes of an answer with an error that are read for the hub's own words.
pub const HUB_ERROR_BYTES_MAX: u64 = 64 * 1024;

/// Characters of these words that are shown.
pub const HUB_SAID_CHARS_MAX: usize = 300;

/// Redirections of one request. huggingface.co makes one to its storage, and one for a repository
/// with a new name.
pub const HUB_REDIRECTS_MAX: usize = 5;

/// Time to connect to a hub.
pub const HUB_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a hub's answer.
pub const HUB_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the answer whether a model that is in the cache has changed. A start waits for it.
pub const HUB_ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Silence in the middle of a file after which the connection counts as broken.
pub const HUB_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Tries in a row that bring nothing.
pub const HUB_TRIES_MAX: u32 = 6;

/// A try that brought at least this many bytes brought something.
pub const HUB_PROGRESS_BYTES: u64 = 1024 * 1024;

/// Time before the second try. Each further one waits twice as long.
pub const HUB_FIRST_DELAY: Duration = Duration::from_secs(1);

/// The longest time that a hub may ask to wait. huggingface.co counts requests in 5 minutes.
pub const HUB_RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Bytes of a file that are read and hashed at once.
pub const HUB_READ_BYTES: usize = 256 * 1024;

/// Time between two lines in the log about a download.
pub const HUB_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Constrained texts that the mask lane may hold: those with slots, and as many that have ended and
/// wait for their memory to be freed.
pub const MASK_TASKS_MAX: usize = 2 * SLOTS_MAX;

/// Tokens that the mask lane follows at once. One takes up to 5 ms.
pub const WALK_TOKENS_MAX: usize = 16;

/// The mask lane is stuck if it does nothing for this long. One mask takes 50 ms.
pub const MASK_LANE_TIMEOUT: Duration = Duration::from_secs(30);

/// Keys whose first sequence does not fit, and which others may overtake in a step.
pub const OVERTAKEN_KEYS_MAX: usize = 16;

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
/// Most minijinja instructions for one prompt. A message takes 100 to 300.
pub const CHAT_TEMPLATE_FUEL: u64 = 4_000_000;
/// Deepest nesting of a chat template, as minijinja counts it: a loop is 1, the call of a macro 4.
/// minijinja's own bound, for 2 MiB of stack, is 500.
pub const CHAT_TEMPLATE_RECURSION_MAX: usize = 200;
/// Deepest nesting of JSON that a chat template writes: the nesting of requests, and the levels
/// that the template adds.
pub const TEMPLATE_JSON_DEPTH_MAX: usize = 256;
/// Deepest nesting of JSON in a request's values: schemas, tools, arguments.
pub const JSON_DEPTH_MAX: usize = 64;

/// Bytes of a request's `cache_salt`.
pub const CACHE_SALT_BYTES_MAX: usize = 256;
/// Stop strings in one request, and the bytes of each. OpenAI allows 4.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string. Also bounds the text held back from a stream.
pub const STOP_BYTES_MAX: usize = 256;
/// Addresses to listen on.
pub const HOSTS_MAX: usize = 16;
/// Names in `response_fields`.
pub const RESPONSE_FIELDS_MAX: usize = 64;
/// Bytes of a name in `response_fields`.
pub const RESPONSE_FIELD_BYTES_MAX: usize = 256;

/// Rows of a step that score tokens of prompts. Each has logits, which take 0.6 MB for a vocabulary
/// of 151,936 tokens.
pub const SCORED_ROWS_MAX: usize = 32;

/// Most tokens that one text guesses in a step.
pub const GUESSES_MAX: usize = 16;
/// Bytes that are searched for the text that a constraint forces.
pub const FORCED_BYTES_MAX: usize = 64;
/// Earley items of that search at one place. Slow grammars have more, and no guesses.
pub const FORCED_ITEMS_MAX: usize = 5_000;
/// Guessed tokens of a step. Each has logits, like the rows above.
pub const GUESSED_ROWS_MAX: usize = 32;
/// Samples of a step: one for each sequence, and one for each guess that came true.
pub const SAMPLES_MAX: usize = SLOTS_MAX + GUESSED_ROWS_MAX;
/// Tokens that the draft model reads of texts that it has not read in time, in one step.
pub const DRAFT_READ_ROWS: usize = 16;
/// Texts that run while the draft model works. Among more, few guesses pay.
pub const DRAFT_TEXTS_MAX: usize = 8;
/// Tokens by which the vocabulary of a draft model may be larger or smaller. Files of one family
/// differ in tokens that no text has.
pub const DRAFT_VOCAB_DIFFERENCE_MAX: usize = 128;
/// Tokens that must be the same for a guess from an earlier place of the text. Behind fewer, more
/// guesses are wrong; with more, right ones are missed.
pub const NGRAM: usize = 2;
/// Equal tokens after which nearly all guesses are right.
pub const LOOKUP_LONG: usize = 6;
/// Earlier places of which the best one is chosen.
pub const LOOKUP_CANDIDATES: usize = 16;
/// Tokens that are compared at each of them.
pub const LOOKUP_MATCH_MAX: usize = 32;
/// Tokens that the index of a text takes in one step, so that no step waits for a long prompt.
pub const LOOKUP_TOKENS: usize = 2048;

/// Most alternatives with log-probabilities for each generated token: OpenAI's bound.
pub const TOP_LOGPROBS_MAX: usize = 20;
/// Largest `logprobs` of a completion: OpenAI's bound. For chats it is `TOP_LOGPROBS_MAX`.
pub const COMPLETION_LOGPROBS_MAX: i64 = 5;
/// Tokens that the infill sampler compares with each other, the most probable ones.
pub const INFILL_TOKENS_MAX: usize = 128;
/// Parts of other files in a request to fill in a gap. Editors send some dozens.
pub const INFILL_EXTRA_MAX: usize = 1024;
/// Largest indentation that a request may require of a line.
pub const INDENT_MAX: i64 = 1024;
/// Entries of one request's `logit_bias`.
pub const LOGIT_BIAS_ENTRIES_MAX: usize = 1024;
/// Bytes of a text in `logit_bias`.
pub const LOGIT_BIAS_TEXT_BYTES_MAX: usize = 256;
/// Tokens of all entries of `logit_bias`. Each step adds to as many logits.
pub const LOGIT_BIAS_TOKENS_MAX: usize = 4096;
/// Largest bias, positive or negative. OpenAI allows 100.
pub const LOGIT_BIAS_MAX: f64 = 10_000.0;
/// Samplers in one request's order: each of them at most once.
pub const SAMPLERS_MAX: usize = 10;
/// Sequence breakers of one request. The vocabulary is searched for each.
pub const DRY_BREAKERS_MAX: usize = 16;
/// Bytes of a sequence breaker: llama.cpp's own bound.
pub const DRY_BREAKER_BYTES_MAX: usize = 40;
/// Commas, colons and opening brackets in a body. A text with more has more tokens than a sequence
/// may have, and JSON with more is slow to parse.
pub const JSON_MARKS_MAX: usize = 1 << 20;
/// Fields of one object in a request.
pub const FIELDS_MAX: usize = 1024;
/// The highest temperature, and the largest presence and frequency penalties: OpenAI's.
pub const TEMPERATURE_MAX: f64 = 2.0;
/// See [`TEMPERATURE_MAX`].
pub const PENALTY_MAX: f64 = 2.0;
/// The bound for both on llama-server's path. llama-server has none.
pub const LLAMA_SAMPLING_MAX: f64 = 100.0;
/// Bytes of a JSON schema or a grammar that constrains the output.
pub const CONSTRAINT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a regular expression that constrains the output or is part of a schema.
pub const REGEX_BYTES_MAX: usize = 4 * 1024;
/// Most processor time to compile a constraint in the server: that of a trial, and of its first mask,
/// with room for a slower run.
pub const CONSTRAINT_COMPILE_TIME_MAX: Duration = Duration::from_secs(1);
/// Processor time of a trial of a constraint.
pub const TRIAL_TIME_MAX: Duration = Duration::from_millis(400);
/// Time of a trial on the clock; a busy machine gives it little processor time.
pub const TRIAL_WALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval at which a trial's time is looked at.
pub const TRIAL_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Memory of a trial, with its stack.
pub const TRIAL_DATA_BYTES_MAX: u64 = 192 * 1024 * 1024;
/// Bytes that a trial reads: a constraint and the tokens that it may name, as JSON.
pub const TRIAL_INPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Stack of each thread that compiles constraints.
pub const COMPILE_STACK_BYTES: usize = 16 * 1024 * 1024;
/// Stack of a trial. It is smaller, so that whatever passes the trial fits.
pub const TRIAL_STACK_BYTES: usize = COMPILE_STACK_BYTES / 2;
/// Schemas, values, names and parts of regular expressions of a constraint that is cheap to compile.
pub const CHEAP_POINTS_MAX: usize = 2000;
/// A `format`, or a bound on a number, counts as this many of them: it becomes a regular expression.
pub const CHEAP_FORM_POINTS: usize = CHEAP_POINTS_MAX / 64;
/// Characters and classes of one of its regular expressions, with repetitions written out.
pub const CHEAP_REGEX_POINTS_MAX: usize = 300;
/// Bytes of a grammar for tools, without schemas.
pub const CHEAP_GRAMMAR_BYTES_MAX: usize = 16 * 1024;
/// Its largest repetition.
pub const CHEAP_REPEAT_MAX: u64 = 32;
/// Its largest `minItems` and `maxItems`.
pub const CHEAP_ITEMS_MAX: u64 = 64;
/// Its largest `minLength` and `maxLength`.
pub const CHEAP_COUNT_MAX: u64 = 4096;
/// The deepest nesting of its schemas.
pub const CHEAP_DEPTH_MAX: usize = 24;
/// Processor time to follow one token of a constrained text, and to compute a mask. The text ends
/// if either takes longer, at most a [`SWEEP_INTERVAL`] later.
pub const CONSTRAINT_TOKEN_TIME_MAX: Duration = Duration::from_millis(250);
/// Threads whose work on constraints is watched. A server has four of them.
pub const CONSTRAINT_WORKERS_MAX: usize = 16;
/// llguidance's work on a constraint's regular expressions while it is compiled;
/// its authors say 50,000 a millisecond.
pub const CONSTRAINT_COMPILE_FUEL: u64 = 500_000;
/// Symbols in llguidance's grammar of a constraint.
pub const CONSTRAINT_SYMBOLS_MAX: usize = 50_000;
/// llguidance's work on regular expressions for one mask; its authors say 14,000 a millisecond.
pub const CONSTRAINT_STEP_FUEL: u64 = 100_000;
/// Earley items that llguidance makes for one mask; its authors say 20,000 a millisecond.
pub const CONSTRAINT_STEP_ITEMS_MAX: usize = 50_000;
/// Earley items at one place in a text: the ways in which the grammar may go on. The time of a
/// mask grows with their square. This number usually takes 20 to 50 ms (by hand, on two cores of a
/// 2.5 GHz Xeon), and 400 ms where every item follows from every other.
pub const CONSTRAINT_ROW_ITEMS_MAX: usize = 1000;
/// States of one constraint's lexer, of about a kilobyte each. A string with a
/// `maxLength` takes about ten for each of its characters.
pub const CONSTRAINT_LEXER_STATES_MAX: usize = 1 << 16;
/// Bytes of a token in a constrained text. Longer tokens (runs of spaces in some vocabularies) are
/// never chosen there, because llguidance's tables hold no more.
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
/// Properties of one subschema. llguidance's time to compile them grows with their square, and
/// each optional one adds a few items to a row.
pub const SCHEMA_PROPERTIES_MAX: usize = 256;
/// Values in one `enum`.
pub const SCHEMA_VALUES_MAX: usize = 1024;
/// Subschemas in one `anyOf`, `oneOf`, `allOf` or tuple.
pub const SCHEMA_ALTERNATIVES_MAX: usize = 128;
/// References followed in a row to decide whether two subschemas exclude each other.
pub const SCHEMA_REFERENCES_IN_A_ROW_MAX: usize = 16;
/// Comparisons of values to decide whether two alternatives of `oneOf` share one.
pub const SCHEMA_COMPARISONS_MAX: usize = 1_000_000;
/// Regular expressions in a JSON schema.
pub const SCHEMA_PATTERNS_MAX: usize = 128;
/// Patterns in one `patternProperties`. Each is compared with every other.
pub const SCHEMA_PATTERN_PROPERTIES_MAX: usize = 16;
/// Largest `minLength` and similar numbers. No sequence has more characters.
pub const SCHEMA_COUNT_MAX: u64 = 1 << 31;
/// Rules of a GBNF grammar.
pub const GBNF_RULES_MAX: usize = 512;
/// Deepest nesting of groups in a GBNF grammar.
pub const GBNF_DEPTH_MAX: usize = 64;
/// Deepest nesting of a GBNF grammar with the rules that it names in their places. llguidance calls
/// itself for each level, and a mask takes longer with each.
pub const GBNF_WHOLE_DEPTH_MAX: usize = 256;
/// The numbers in `{m,n}` in a GBNF grammar.
pub const GBNF_REPEAT_MAX: u32 = 1 << 16;
/// Steps of the search for the words of a GBNF grammar, of some nanoseconds each.
pub const GBNF_WORK_MAX: usize = 2_000_000;

/// Most open client connections, if the user sets none. perf/idle.py measures what an idle one takes.
pub const CONNECTIONS: usize = 16 * 1024;
/// The most that the user may set.
pub const CONNECTIONS_MAX: usize = 1 << 20;
/// Connections beyond the bound that are let in for public paths, while none of the others is idle.
/// Any more are only closed.
pub const SPARE_CONNECTIONS_MAX: usize = 64;
/// A connection that has been idle for less than this does not give way to a new one.
pub const IDLE_GRACE: Duration = Duration::from_millis(200);
/// A server that refuses every request for this long, and serves none, is not healthy.
pub const REFUSING_TIME_MAX: Duration = Duration::from_secs(10);
/// Descriptors that client connections leave free, or a quarter of all if that is less.
pub const DESCRIPTORS_RESERVED: usize = 2 * OPS_CONNECTIONS_MAX // each of the ops lane's has two
    + SPARE_CONNECTIONS_MAX
    + 32; // everything else that opens a file
/// The time until the listener tries again after it could not accept.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
/// Connections that the kernel queues before `accept`.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Bytes of a request line and its headers together.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Header fields of one request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of one request body.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The memory of all requests outside the KV cache, if the user sets none: bodies, prompts and
/// answers.
pub const REQUEST_MEMORY_BYTES: usize = 512 * 1024 * 1024;
/// The part of that memory which kept responses may take beside it: one in this many bytes.
pub const RESPONSES_SHARE: usize = 8;
/// Responses that are kept, of all keys together. A new one may push out all of a key's, on the front
/// lane.
pub const RESPONSES_MAX: usize = 1024;
/// Bytes of the id of a response, an item or a tool call in the Responses API: OpenAI's bound.
pub const ID_BYTES_MAX: usize = 64;
/// Bytes of the fields of a request that its response repeats, as JSON. Most of them are parts of the
/// prompt, so they are bounded like its text.
pub const ECHO_BYTES_MAX: usize = TEXT_BYTES_MAX;
/// Bytes of `user` and similar fields, which change nothing and which a response repeats.
pub const HINT_BYTES_MAX: usize = 512;
/// Bytes of an answer about a response that the front lane writes itself.
pub const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response's metadata, as JSON.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// The least that the user may set: a body of any size, and the answers of two keys.
pub const REQUEST_MEMORY_BYTES_MIN: usize = 4 * BODY_BYTES_MAX;
/// Bytes of requests whose client has not shown a key: heads of more than a few lines.
pub const KEYLESS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Blocks of at least this many bytes come from the kernel and go back to it: glibc's own first
/// value.
pub const MMAP_BYTES_MIN: usize = 128 * 1024;
/// Bytes in which that memory is counted.
pub const HOLD_BYTES_STEP: usize = 4 * 1024;
/// Bytes of the trailer fields after a chunked body.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of one chunk-size line, extensions included.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes that are read ahead of the answer to a running request. More stay in the kernel's buffer.
pub const PIPELINE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a client's own `x-request-id` that are echoed.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Bytes read from a socket at once.
pub const READ_BYTES: usize = 64 * 1024;
/// Bytes of a stream that its client has not read. A stream with more is cancelled.
pub const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of capacity that each buffer of an idle connection keeps.
pub const IDLE_BUFFER_BYTES_MAX: usize = 1024;
/// Bytes of an answer that is copied behind its head, and of a body that is skipped.
pub const SHORT_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bodies of at most this many bytes are parsed and tokenised on the front
/// lane (well under a millisecond); longer ones go to a prepare lane.
pub const PREPARE_INLINE_BYTES_MAX: usize = 1024;
/// Bodies of at most this many bytes go to the first prepare lane, longer ones to the second.
pub const PREPARE_SHORT_BYTES_MAX: usize = 64 * 1024;
/// Texts of at least this many bytes are prepared on the second prepare lane.
pub const PREPARE_LONG_BYTES_MIN: usize = PREPARE_SHORT_BYTES_MAX + 1;
/// A read that brings fewer bytes of a head or a body is short.
pub const DRIP_BYTES: usize = 512;
/// Short reads of one head or body before the connection pauses between them.
pub const DRIPS_MAX: u32 = 16;
/// The pause between two short reads.
pub const DRIP_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of texts after which a piece of a task of a prepare lane ends: a few milliseconds.
pub const PIECE_BYTES: usize = 64 * 1024;
/// The same on the front lane, which tokenises a text again for each of its documents.
pub const PIECE_INLINE_BYTES: usize = 4 * 1024;
/// Bytes of one text to be tokenised.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// White-space characters in a row that the model's tokenizer gets at once.
pub const SPACES_MAX: usize = 4096;
/// Digits in a row that tokenizers get at once whose time grows with the square of them.
pub const DIGITS_MAX: usize = 96;
/// Stack that tokenising may take for each byte of a text. llama.cpp splits
/// texts for some vocabularies (bloom, gpt-4o, tekken) with `std::regex`, which
/// recurses for each letter of a word: 20,000 letters overflow 2 MiB.
const TOKENISE_STACK_PER_BYTE: usize = 512;
/// Stack of the first prepare lane.
pub const PREPARE_SHORT_STACK_BYTES: usize =
    LANE_STACK_BYTES + PREPARE_SHORT_BYTES_MAX * TOKENISE_STACK_PER_BYTE;
/// Stack of the second prepare lane. Mapped, and not touched before it is needed.
pub const PREPARE_STACK_BYTES: usize = TEXT_BYTES_MAX * TOKENISE_STACK_PER_BYTE;
/// Stack of every other lane; the front lane tokenises short texts.
pub const LANE_STACK_BYTES: usize = 4 * 1024 * 1024;
/// About the time that measuring the machine at the start takes; more if one step takes longer.
pub const CALIBRATION_TIME: Duration = Duration::from_millis(700);
/// Texts of which a token each is computed in a measured step.
pub const CALIBRATION_TEXTS: usize = 8;
/// Tokens of the measured prompt.
pub const CALIBRATION_PROMPT_ROWS: usize = 64;
/// Numbers of compute threads to choose from, with one for a thread that leads.
pub const THREAD_CANDIDATES_MAX: usize = 8;
/// The time that an idle compute thread polls for work, for each level of `--poll`: with the default
/// of 50, 2 ms. Two steps are less apart while requests run.
pub const POLL_LEVEL: Duration = Duration::from_micros(40);
/// Stack of a compute thread.
pub const COMPUTE_STACK_BYTES: usize = 2 * 1024 * 1024;
/// Threads of a pool: ggml's bound (`GGML_MAX_N_THREADS`).
pub const COMPUTE_THREADS_MAX: usize = 512;
/// Texts whose embeddings are computed at once.
pub const EMBEDDING_TEXTS_MAX: usize = 32;
/// The time that a call of the model for embeddings shall take. Texts of other keys wait for it.
pub const EMBEDDING_CALL_TIME: Duration = Duration::from_millis(50);
/// The least tokens of such a call, if there are as many. A shorter call takes almost as long, because
/// it reads all weights, too.
pub const EMBEDDING_CALL_TOKENS_MIN: usize = 64;
/// About the bytes of one number of a vector: itself, and in the answer.
pub const EMBEDDING_NUMBER_BYTES: usize = 16;
/// About the bytes of one score of a document: itself, and its entry in the answer without the text.
pub const RANK_BYTES: usize = 96;
/// Tokens of all texts of one request for embeddings: OpenAI's bound.
pub const EMBEDDING_REQUEST_TOKENS_MAX: usize = 300_000;
/// Texts of one request for embeddings: OpenAI's bound.
pub const EMBEDDING_INPUTS_MAX: usize = 2048;
/// Tokens of texts whose embeddings are computed at once, and so of one text. Their keys and
/// values take 235 MB for Qwen3-0.6B.
pub const EMBEDDING_TOKENS_MAX: usize = 2048;
/// The part of a processor that embeddings have while streams run. With it, the slowest steps take a
/// sixth longer.
pub const EMBED_SHARE: f64 = 0.05;
/// The processor time after which they look whether it was more.
pub const EMBED_SLICE: Duration = Duration::from_millis(1);
/// The time after which they look whether streams still run.
pub const EMBED_PAUSE: Duration = Duration::from_millis(10);
/// Tasks at the worker lanes, waiting or done.
pub const WORK_MAX: usize = 256;
/// A piece of a task of a worker lane that takes longer is given up. After as long again the
/// process ends.
pub const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a tool call before its arguments, such as its marker and its name. Up to this much of
/// a stream is held back until it is known to be a call.
pub const TOOL_HEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of white space before a chat model's marker that are part of the marker.
pub const MARKER_SPACE_BYTES_MAX: usize = 64;

/// A request's head must be complete this long after its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's body must be complete this long after its head.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without a request is closed after this.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The head of a request on a connection beyond the bound must be complete this long after the
/// connection was accepted.
pub const SPARE_TIMEOUT: Duration = Duration::from_secs(1);
/// A client must take some of what is written to it within this.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// And at least this many bytes a second after it.
pub const WRITE_BYTES_PER_S_MIN: usize = 16 * 1024;
/// Where the next server takes over the listening sockets, a connection has this long to bring a
/// request: from its last response, and at least from the beginning of the drain.
pub const HAND_OVER_TIME: Duration = Duration::from_millis(500);
/// Memory of the front lane's ring for buffers of files, which the lane does not use: glommio's
/// least. Its own choice, 10 MiB, exceeds the 8 MiB that users may usually lock.
pub const IO_MEMORY_BYTES: usize = 64 * 1024;
/// A stream that has been silent for this long sends a comment line, unless `--sse-ping-interval`
/// or the request says otherwise.
pub const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How often the front lane looks for passed timeouts while it has connections.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// A connection that was refused in the middle of a request is read for at most this long, so that
/// the client sees the answer instead of a reset.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// And for at most this many bytes.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// Every lane has ended this long after the front lane.
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
/// Bytes that such a connection may send in all. Requests have about a kilobyte.
pub const OPS_RECEIVED_BYTES_MAX: u64 = 1024 * 1024;
/// Interval at which the ops lane looks for connections to close.
pub const OPS_WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a path that the ops lane reads.
pub const OPS_PATH_BYTES_MAX: usize = 1024;
/// Bytes of a body that the ops lane skips; it needs none.
pub const OPS_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bound on the bytes of a page of metrics. It sizes the send buffer.
pub const OPS_PAGE_BYTES: usize = 64 * 1024;
/// Stack of each connection of the ops lane. Mapped, touched as needed.
pub const OPS_STACK_BYTES: usize = 256 * 1024;

/// Log lines waiting to be written. Further lines are lost.
pub const LOG_LINES_MAX: usize = 8 * 1024;
/// Bytes of an error's message.
pub const ERROR_BYTES_MAX: usize = 1024;
/// Bytes of a request's path that are logged.
pub const LOG_PATH_BYTES_MAX: usize = 128;

/// Time for which a task of the front lane yields, so that the lane looks at its sockets and its
/// links. It is as good as none.
pub const LOOK_UP: Duration = Duration::from_micros(1);
/// Interval at which a polling task on a core of its own yields. Only then glommio submits socket
/// operations to the kernel. Each time costs a dozen small allocations in glommio.
pub const LOOK_UP_EVERY: Duration = Duration::from_micros(50);
/// Interval at which glommio interrupts tasks of the front lane: as good as never. If its timer
/// expires before any task has run, glommio 0.9 believes that there is nothing to do, and sleeps
/// (its pull request 53 fixes that, and is in no release yet). Long tasks yield by themselves.
pub const PREEMPT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Time that a lane on a core of its own polls before it parks.
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

/// Prompt tokens of one run of the load generator, with warm-ups. It draws all prompts and writes
/// all bodies before it begins.
pub const BENCH_PROMPT_TOKENS_MAX: u64 = 64 * 1024 * 1024;
/// Requests of one run of the load generator.
pub const BENCH_REQUESTS_MAX: usize = 1 << 20;
/// Connections that the load generator opens before it begins. It opens more when it needs them.
pub const BENCH_CONNECTIONS_AHEAD_MAX: usize = 512;
/// A connection of the load generator must be established within this.
pub const BENCH_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a response may take to end after its `[DONE]`. After it the connection is closed.
pub const BENCH_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of one event that a measured server may send.
pub const BENCH_EVENT_BYTES_MAX: usize = 1024 * 1024;
/// Largest delay of tokio's timers, which count whole milliseconds.
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
const _: () = assert!(SYNTH_HEADS_MAX * SYNTH_HEAD_SIZE_MAX <= 1 << 20, "rows stay small");
const _: () = assert!(SYNTH_PIECE_ELEMENTS.is_multiple_of(2), "weights are drawn in pairs");
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
const _: () = assert!(BENCH_EVENT_BYTES_MAX <= BENCH_RESPONSE_BYTES_MAX);
const _: () = assert!(TOP_LOGPROBS_MAX <= u8::MAX as usize, "their number is 8 bits wide");
const _: () = assert!(DRY_BREAKERS_MAX * DRY_BREAKER_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(
    2 * SPANS_TIMEOUT.as_secs() + SPANS_END_TIMEOUT.as_secs() < LANES_END_TIMEOUT.as_secs(),
    "one batch is under way when the front lane ends, and one when the time for the last ones has passed"
);
const _: () = assert!(usize::BITS == 64, "indexes are 64 bits wide");
