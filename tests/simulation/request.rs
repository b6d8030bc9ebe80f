//! Random requests, and the facts about each that its reply follows from.

use std::time::Duration;

use corelane::types::{KeyId, TokenId};
use serde_json::{Map, Value, json};

use crate::support::Random;

/// The chat template of the simulated model.
pub const TEMPLATE: &str =
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}";

/// A regular expression for some texts. Each fourth character is an X, and the text ends after one.
pub const PATTERN: &str = "([ -~]{3}X)*";

/// A grammar for the same texts. It names the token of the X by its id.
const GRAMMAR: &str = "root ::= ([ -~] [ -~] [ -~] <[88]>)*";

/// The paths that generate text.
const PATHS: [&str; 7] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/completion",
    "/generate",
    "/generate_stream",
];

/// A request: its JSON body, and the facts that a correct reply follows from. They are worked out
/// here, beside the code that they check.
pub struct Ask {
    pub path: &'static str,
    pub body: Vec<u8>,
    /// The prompts, as tokens.
    pub prompts: Vec<Vec<TokenId>>,
    /// Choices of each prompt.
    pub n: usize,
    /// The most tokens of each prompt's texts. 0 computes the prompt alone.
    pub max_tokens: Vec<usize>,
    pub stops: Vec<String>,
    /// Scored alternatives for each token, where the request asks for log-probabilities.
    pub logprobs: Option<usize>,
    /// The prompts' tokens are scored, too.
    pub scores: bool,
    pub timeout: Option<Duration>,
    /// The text keeps to [`PATTERN`].
    pub constrained: bool,
    /// Every prompt has room for its tokens. A request without room is a 400.
    pub fits: bool,
    /// The conversation as text, where its response is kept.
    pub kept: Option<String>,
    /// The id of the response that it continues.
    pub continues: Option<String>,
}

/// A response that was kept.
#[derive(Clone)]
pub struct Kept {
    pub id: String,
    pub tenant: KeyId,
    /// The conversation up to its end, as text.
    pub text: String,
}

/// Makes requests. Later ones repeat the beginnings of earlier ones.
pub struct Requests {
    sequence_tokens: usize,
    /// Some texts are constrained.
    constrains: bool,
    /// Most prompts begin like one of [`ROOTS`] long texts.
    returns: bool,
    known: Vec<String>,
    roots: Vec<String>,
}

/// Long texts that prompts return to. Together they are longer than most caches.
const ROOTS: usize = 3;

impl Requests {
    pub fn new(sequence_tokens: usize, constrains: bool, returns: bool) -> Self {
        let (known, roots) = (Vec::new(), Vec::new());
        Self { sequence_tokens, constrains, returns, known, roots }
    }

    /// A request. It may continue the response `before`. `stop_of` finds a stop string in the text
    /// that follows a prompt.
    pub fn next(
        &mut self,
        random: &mut Random,
        before: Option<&Kept>,
        stop_of: impl Fn(&mut Random, &[TokenId]) -> Option<String>,
    ) -> Ask {
        let path = match before {
            Some(_) if random.one_in(3) => "/v1/responses",
            _ => PATHS[random.within(0, PATHS.len() - 1)],
        };
        let mut fields = Map::new();
        let is_response = path == "/v1/responses";
        let before = before.filter(|_| is_response);
        let mut prompts = self.prompts(path, random, &mut fields);
        let mut kept = None;
        if is_response {
            let mut text = before.map_or_else(String::new, |before| before.text.clone());
            text.push_str(&prompts[0]);
            prompts[0] = text.clone();
            if random.one_in(4) {
                fields.insert("instructions".into(), "i".into());
                prompts[0].insert_str(0, "[system]i");
            }
            match random.one_in(4) {
                true => drop(fields.insert("store".into(), false.into())),
                false => kept = Some(text),
            }
            if let Some(before) = before {
                fields.insert("previous_response_id".into(), before.id.clone().into());
            }
        }
        let prompts: Vec<Vec<TokenId>> =
            prompts.iter().map(|text| text.bytes().map(TokenId::from).collect()).collect();
        let is_cllm = path.starts_with("/generate");
        let is_messages = path == "/v1/messages";
        let several = !is_cllm && !is_messages && !is_response && random.one_in(4);
        let n = if several { random.within(2, 3) } else { 1 };
        if several {
            fields.insert("n".into(), n.into());
        }
        let (max_tokens, fits) = self.lengths(path, random, &prompts, &mut fields);
        let mut stops: Vec<String> = Vec::new();
        if !is_response && random.one_in(3) {
            stops.extend((0..random.within(1, 3)).filter_map(|_| stop_of(random, &prompts[0])));
        }
        stops.dedup();
        if !stops.is_empty() {
            let name = if is_messages { "stop_sequences" } else { "stop" };
            fields.insert(name.into(), json!(stops));
        }
        if path != "/generate" && path != "/generate_stream" {
            fields.insert("stream".into(), (!random.one_in(3)).into());
        }
        let logprobs = self.logprobs(path, random, &mut fields);
        self.extras(path, random, &mut fields);
        let scores = logprobs.is_some() && fields.contains_key("echo");
        let timeout = random.one_in(6).then(|| Duration::from_millis(random.within(1, 400) as u64));
        if let Some(timeout) = timeout {
            fields.insert("timeout_ms".into(), (timeout.as_millis() as u64).into());
        }
        let takes_patterns = !is_cllm && !is_messages && !is_response && logprobs.is_none();
        let constrained = self.constrains && takes_patterns && random.one_in(2);
        if constrained {
            let (field, form) = match random.one_in(2) {
                true => ("grammar", GRAMMAR),
                false => ("regex", PATTERN),
            };
            fields.insert(field.into(), form.into());
        } else if random.one_in(3) {
            // (A mask that comes too late undoes a row, which the reference does not know.)
            fields.insert("return_progress".into(), true.into());
        }
        let body = serde_json::to_vec(&Value::Object(fields)).unwrap();
        Ask {
            path,
            body,
            prompts,
            n,
            max_tokens,
            stops,
            logprobs,
            scores,
            timeout,
            constrained,
            fits,
            kept,
            continues: before.map(|before| before.id.clone()),
        }
    }

    /// Puts the prompts into the body, in one of the forms that the path takes. Returns their
    /// texts.
    fn prompts(
        &mut self,
        path: &str,
        random: &mut Random,
        fields: &mut Map<String, Value>,
    ) -> Vec<String> {
        if ["/v1/chat/completions", "/v1/messages", "/v1/responses"].contains(&path) {
            let is_response = path == "/v1/responses";
            let mut text = String::new();
            let mut messages = Vec::new();
            for turn in 0..random.within(0, 1) * 2 + 1 {
                let role = if turn % 2 == 0 { "user" } else { "assistant" };
                let content = self.text(random, if is_response { 8 } else { 2 });
                text.push_str(&format!("[{role}]{content}"));
                messages.push(json!({"role": role, "content": content}));
            }
            let name = if is_response { "input" } else { "messages" };
            fields.insert(name.into(), messages.into());
            return vec![text];
        }
        let ids = |text: &String| json!(text.as_bytes());
        let takes_several = path == "/v1/completions" || path == "/completion";
        let several = takes_several && random.one_in(5);
        let texts: Vec<String> = (0..if several { random.within(2, 3) } else { 1 })
            .map(|_| self.text(random, 2))
            .collect();
        let as_ids = takes_several && random.one_in(4);
        let prompt = match (several, as_ids) {
            (false, false) => json!(texts[0]),
            (false, true) => ids(&texts[0]),
            (true, false) => json!(texts),
            (true, true) => texts.iter().map(ids).collect(),
        };
        fields.insert("prompt".into(), prompt);
        texts
    }

    /// The text of a prompt, usually of at most this part of a sequence. It may begin like an earlier
    /// one.
    fn text(&mut self, random: &mut Random, part: usize) -> String {
        if self.returns && !random.one_in(4) {
            return self.returning(random, part);
        }
        let longest =
            if random.one_in(12) { self.sequence_tokens } else { self.sequence_tokens / part };
        let length = random.within(1, longest.max(1));
        let mut text = String::new();
        if !self.known.is_empty() && !random.one_in(3) {
            let other = &self.known[random.within(0, self.known.len() - 1)];
            text.push_str(&other[..random.within(0, other.len())]);
        }
        while text.len() < length {
            text.push(random.within(usize::from(b'a'), usize::from(b'z')) as u8 as char);
        }
        text.truncate(length);
        self.known.push(text.clone());
        if self.known.len() > 20 {
            self.known.swap_remove(random.within(0, 19));
        }
        text
    }

    /// A text that begins like a long one, up to a place in its second half. Sometimes a new one
    /// takes the long one's place.
    fn returning(&mut self, random: &mut Random, part: usize) -> String {
        let length = self.sequence_tokens * 7 / 8 / part.div_ceil(2);
        let letters = |random: &mut Random, count: usize| -> String {
            (0..count)
                .map(|_| random.within(usize::from(b'a'), usize::from(b'z')) as u8 as char)
                .collect()
        };
        if self.roots.len() < ROOTS {
            self.roots.push(letters(random, length));
        } else if random.one_in(20) {
            let place = random.within(0, ROOTS - 1);
            self.roots[place] = letters(random, length);
        }
        let root = &self.roots[random.within(0, self.roots.len() - 1)];
        let place = random.within(root.len().min(length) / 2, root.len().min(length));
        format!("{}{}", &root[..place], letters(random, 3))
    }

    /// The most tokens of each prompt's texts, and whether they fit.
    fn lengths(
        &self,
        path: &str,
        random: &mut Random,
        prompts: &[Vec<TokenId>],
        fields: &mut Map<String, Value>,
    ) -> (Vec<usize>, bool) {
        let limit = self.sequence_tokens;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let (name, default) = match path {
            "/v1/completions" => ("max_tokens", Some(16)),
            "/v1/chat/completions" => ("max_completion_tokens", None),
            "/completion" => ("n_predict", None),
            "/v1/messages" => ("max_tokens", None),
            "/v1/responses" => ("max_output_tokens", None),
            _ => ("max_tokens", Some(100)),
        };
        let room = |prompt: &Vec<TokenId>| limit.saturating_sub(prompt.len());
        if path.contains("/completion") && random.one_in(8) {
            fields.insert(name.into(), 0.into());
            return (vec![0; prompts.len()], longest <= limit);
        }
        if path == "/v1/messages" || !random.one_in(4) {
            let most = room(&vec![0; longest]).max(1) + usize::from(random.one_in(8));
            // Room for the turns that may follow.
            let most = if path == "/v1/responses" { most.div_ceil(4) } else { most };
            let asked = random.within(1, most);
            fields.insert(name.into(), asked.into());
            let cut = |prompt| asked.min(room(prompt));
            return (prompts.iter().map(cut).collect(), longest < limit);
        }
        let fitting = |prompt| room(prompt).min(default.unwrap_or(usize::MAX));
        (prompts.iter().map(fitting).collect(), longest < limit)
    }

    fn logprobs(
        &self,
        path: &str,
        random: &mut Random,
        fields: &mut Map<String, Value>,
    ) -> Option<usize> {
        if !random.one_in(5) {
            return None;
        }
        let top = random.within(1, 3);
        match path {
            "/v1/completions" => fields.insert("logprobs".into(), top.into()),
            "/completion" => fields.insert("n_probs".into(), top.into()),
            "/v1/chat/completions" => {
                fields.insert("top_logprobs".into(), top.into());
                fields.insert("logprobs".into(), true.into())
            }
            _ => return None,
        };
        Some(top)
    }

    /// Fields that change the form of the reply, or when and how it is computed.
    fn extras(&self, path: &str, random: &mut Random, fields: &mut Map<String, Value>) {
        // The fake model gives one token a probability of almost 1. These options exclude the others.
        if random.one_in(2) {
            fields.insert("temperature".into(), 0.into());
        } else {
            fields.insert("top_k".into(), 1.into());
        }
        if random.one_in(3) {
            fields.insert("priority".into(), (random.within(0, 4) as i64 - 2).into());
        }
        if random.one_in(6) {
            fields.insert("cache_prompt".into(), false.into());
        }
        let streams = fields.get("stream") == Some(&true.into());
        match path {
            "/v1/completions" | "/v1/chat/completions" if streams && random.one_in(2) => {
                fields.insert("stream_options".into(), json!({"include_usage": true}));
            }
            "/completion" if random.one_in(2) => {
                fields.insert("return_tokens".into(), true.into());
                fields.insert("timings_per_token".into(), true.into());
            }
            _ => {}
        }
        if path != "/v1/messages" && random.one_in(4) {
            fields.insert("speculative.n_max".into(), random.within(0, 4).into());
        }
        if path == "/v1/completions" && random.one_in(4) {
            fields.insert("echo".into(), true.into());
        }
    }
}
