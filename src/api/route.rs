//! The table of routes. Each entry holds all facts about a path.
//!
//! A new dialect needs its own file, a `mod` line in `api/mod.rs` and an entry in this table. The
//! dialects do not use the table.

use std::time::Duration;

use super::anthropic::reply::MessagesReply;
use super::chat::ChatRequest;
use super::chat::reply::ChatReply;
use super::cllm::GenerateReply;
use super::embeddings::EmbeddingsRequest;
use super::error::{ApiError, Dialect};
use super::llama::completion::{self, LlamaReply};
use super::llama::tokens::{self, Tokenize};
use super::ollama::models::Loading;
use super::ollama::reply::{Form, OllamaReply};
use super::ollama::request::Asked;
use super::openai::CompletionReply;
use super::reply::MakeReply;
use super::request::GenerationRequest;
use super::{anthropic, chat, cllm, embeddings, ollama, openai};
use crate::http::head::Method;
use crate::types::TokenId;

/// One path, or several with the same meaning.
pub struct Route {
    /// The paths. `{model}` matches the rest of a path.
    pub paths: &'static [&'static str],
    /// The form of its errors.
    pub dialect: Dialect,
    /// Whether it is open to clients without an API key. As in llama-server, load balancers and
    /// client set-up need such paths.
    pub is_public: bool,
    /// The route's action.
    pub action: Action,
}

/// The action of a route.
#[derive(Clone, Copy)]
pub enum Action {
    /// `GET`: shows the state of the server.
    Show(Page),
    /// `POST`: computes an answer from the body.
    Answer(ReadBody),
    /// `POST`: generates text.
    Generate {
        /// Reads the body.
        read: ReadBody,
        /// Prefix of response ids.
        id_prefix: &'static str,
        /// Makes the reply.
        reply: MakeReply,
    },
}

/// Reads a body. Fails with a 400 that names the field.
pub type ReadBody = fn(&mut [u8]) -> Result<Request, ApiError>;

/// The pages that show the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Whether the server is ready, and how busy it is.
    Health,
    /// The list of models.
    Models,
    /// One model.
    Model,
    /// The state of each slot.
    Slots,
    /// The properties of the model.
    Props,
    /// The description of the API in OpenAPI 3.1.
    OpenApi,
    /// Ollama's list of models.
    Tags,
    /// Ollama's list of models in memory.
    Running,
    /// The version, in Ollama's form.
    Version,
}

/// A request body, read and checked.
pub enum Request {
    /// Generate text.
    Generate(Box<GenerationRequest>),
    /// Continue a conversation.
    Chat(Box<ChatRequest>),
    /// Count the tokens of a conversation's prompt.
    CountTokens(Box<ChatRequest>),
    /// Show the prompt that a conversation becomes.
    ApplyTemplate(Box<ChatRequest>),
    /// Compute vectors of texts.
    Embed(Box<EmbeddingsRequest>),
    /// Show the tokens of a text.
    Tokenize(Tokenize),
    /// Show the tokens of a text in cLLM's form.
    Encode(String),
    /// Show the text of tokens.
    Detokenize(Vec<TokenId>),
    /// Load or unload the model, as Ollama's clients ask.
    Loading(Loading),
    /// Show the properties of the model, in Ollama's form.
    ShowModel,
}

impl Request {
    fn generate(request: GenerationRequest) -> Self {
        Request::Generate(Box::new(request))
    }

    fn chat(request: ChatRequest) -> Self {
        Request::Chat(Box::new(request))
    }

    fn embed(request: EmbeddingsRequest) -> Self {
        Request::Embed(Box::new(request))
    }

    /// The time limit that the request sets.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Request::Generate(request) => request.urgency.timeout,
            Request::Chat(chat) => chat.generation.urgency.timeout,
            Request::Embed(request) => request.timeout,
            Request::CountTokens(_)
            | Request::ApplyTemplate(_)
            | Request::Tokenize(_)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => None,
        }
    }

    /// Whether a constraint must be compiled, or the whole vocabulary searched. Both may take long.
    pub fn compiles(&self) -> bool {
        match self {
            Request::Generate(request) => request.compiles(),
            Request::Chat(chat) => {
                chat.generation.compiles() || !chat.conversation.tools.is_empty()
            }
            Request::CountTokens(_)
            | Request::ApplyTemplate(_)
            | Request::Embed(_)
            | Request::Tokenize(_)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => false,
        }
    }
}

impl From<Asked> for Request {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Load(loading) => Request::Loading(loading),
            Asked::Chat(chat) => Request::Chat(chat),
            Asked::Generate(request) => Request::Generate(request),
        }
    }
}

/// A route of OpenAI's dialect that needs a key.
const fn route(paths: &'static [&'static str], action: Action) -> Route {
    Route { paths, dialect: Dialect::OpenAi, is_public: false, action }
}

impl Route {
    const fn public(self) -> Self {
        Self { is_public: true, ..self }
    }

    const fn of(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// The methods of the route, besides `OPTIONS`.
    pub fn methods(&self) -> &'static str {
        match self.action {
            Action::Show(_) => "GET, HEAD",
            Action::Answer(_) | Action::Generate { .. } => "POST",
        }
    }
}

/// Every route.
pub static ROUTES: &[Route] = &[
    route(&["/health", "/v1/health"], Action::Show(Page::Health)).public(),
    route(&["/models", "/v1/models"], Action::Show(Page::Models)).public(),
    route(&[MODEL_PATH], Action::Show(Page::Model)).public(),
    route(&["/openapi.json"], Action::Show(Page::OpenApi)).public(),
    route(&["/slots"], Action::Show(Page::Slots)),
    route(&["/props"], Action::Show(Page::Props)),
    route(
        &["/v1/completions"],
        Action::Generate {
            read: |body| openai::read_completion(body).map(Request::generate),
            id_prefix: "cmpl-",
            reply: |options, context| Box::new(CompletionReply::new(options, context)),
        },
    ),
    route(
        &["/chat/completions", "/v1/chat/completions"],
        Action::Generate {
            read: |body| chat::openai::read_chat(body).map(Request::chat),
            id_prefix: "chatcmpl-",
            reply: |options, context| Box::new(ChatReply::new(options, context)),
        },
    ),
    route(
        &["/v1/messages"],
        Action::Generate {
            read: |body| anthropic::read_messages(body).map(Request::chat),
            id_prefix: "msg_",
            reply: |options, context| Box::new(MessagesReply::new(options, context)),
        },
    )
    .of(Dialect::Anthropic),
    route(
        &["/completion", "/completions"],
        Action::Generate {
            read: |body| completion::read_completion(body).map(Request::generate),
            id_prefix: "cmpl-",
            reply: |options, context| Box::new(LlamaReply::new(options, context)),
        },
    ),
    route(
        &["/generate"],
        Action::Generate {
            read: |body| cllm::read_generate(body).map(Request::generate),
            id_prefix: "gen-",
            reply: |options, context| Box::new(GenerateReply::new(options, context)),
        },
    )
    .of(Dialect::Cllm),
    route(
        &["/generate_stream"],
        Action::Generate {
            read: |body| cllm::read_generate_stream(body).map(Request::generate),
            id_prefix: "gen-",
            reply: |options, context| Box::new(GenerateReply::new(options, context)),
        },
    )
    .of(Dialect::Cllm),
    route(
        &["/api/chat"],
        Action::Generate {
            read: |body| ollama::request::read_chat(body).map(Request::from),
            id_prefix: "",
            reply: |options, context| Box::new(OllamaReply::new(Form::Chat, options, context)),
        },
    )
    .of(Dialect::Ollama),
    route(
        &["/api/generate"],
        Action::Generate {
            read: |body| ollama::request::read_generate(body).map(Request::from),
            id_prefix: "",
            reply: |options, context| Box::new(OllamaReply::new(Form::Generate, options, context)),
        },
    )
    .of(Dialect::Ollama),
    route(
        &["/api/embed"],
        Action::Answer(|body| ollama::embed::read_embed(body).map(Request::embed)),
    )
    .of(Dialect::Ollama),
    route(
        &["/api/embeddings"],
        Action::Answer(|body| ollama::embed::read_embeddings(body).map(Request::embed)),
    )
    .of(Dialect::Ollama),
    route(
        &["/api/show"],
        Action::Answer(|body| ollama::models::read_show(body).map(|()| Request::ShowModel)),
    )
    .of(Dialect::Ollama),
    route(&["/api/tags"], Action::Show(Page::Tags)).of(Dialect::Ollama).public(),
    route(&["/api/ps"], Action::Show(Page::Running)).of(Dialect::Ollama),
    route(&["/api/version"], Action::Show(Page::Version)).of(Dialect::Ollama).public(),
    route(&["/v1/embeddings"], Action::Answer(|body| embeddings::read(body).map(Request::embed))),
    route(
        &["/v1/messages/count_tokens"],
        Action::Answer(|body| anthropic::read_count(body).map(Box::new).map(Request::CountTokens)),
    )
    .of(Dialect::Anthropic),
    route(
        &["/apply-template"],
        Action::Answer(|body| {
            chat::openai::read_chat(body).map(Box::new).map(Request::ApplyTemplate)
        }),
    ),
    route(
        &["/tokenize"],
        Action::Answer(|body| tokens::read_tokenize(body).map(Request::Tokenize)),
    ),
    route(
        &["/detokenize"],
        Action::Answer(|body| tokens::read_detokenize(body).map(Request::Detokenize)),
    ),
    route(&["/encode"], Action::Answer(|body| cllm::read_encode(body).map(Request::Encode)))
        .of(Dialect::Cllm),
];

/// The path of one model. The rest of the path is the model's name.
const MODEL_PATH: &str = "/v1/models/{model}";

/// Finds the route of a path.
fn at(path: &str) -> Option<&'static Route> {
    let known = if model_of(path).is_some() { MODEL_PATH } else { path };
    ROUTES.iter().find(|route| route.paths.contains(&known))
}

/// Finds the route of a path that takes a method.
///
/// # Errors
/// 404 for an unknown path, 405 for a method that the path does not take.
pub fn find(method: Method, path: &str) -> Result<&'static Route, ApiError> {
    let Some(route) = at(path) else { return Err(ApiError::not_found(path)) };
    match (method, route.action) {
        (Method::Get | Method::Head, Action::Show(_)) => Ok(route),
        (Method::Post, Action::Answer(_) | Action::Generate { .. }) => Ok(route),
        (_, Action::Show(_)) => Err(ApiError::wrong_method(path, "GET, HEAD, OPTIONS")),
        _ => Err(ApiError::wrong_method(path, "POST, OPTIONS")),
    }
}

/// The dialect in which a path's errors are written: OpenAI's for an unknown path.
pub fn dialect(path: &str) -> Dialect {
    at(path).map_or(Dialect::OpenAi, |route| route.dialect)
}

/// The model's name in the path of one model, still percent-encoded.
pub fn model_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/models/").filter(|name| !name.is_empty())
}

/// Every path.
pub fn paths() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().flat_map(|route| route.paths.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_paths_and_methods_are_told_apart() {
        let paths = |method, path| find(method, path).map(|route| route.paths);
        assert_eq!(paths(Method::Post, "/v1/completions"), Ok(&["/v1/completions"][..]));
        assert_eq!(paths(Method::Head, "/health"), Ok(&["/health", "/v1/health"][..]));
        assert_eq!(paths(Method::Get, "/v1/models/a%2Fb"), Ok(&[MODEL_PATH][..]));
        assert_eq!(paths(Method::Get, "/v1/models/").unwrap_err().status, 404);
        assert_eq!(paths(Method::Post, "/nope").unwrap_err().status, 404);
        let error = paths(Method::Get, "/generate").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("POST, OPTIONS")));
        let error = paths(Method::Other, "/v1/models").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("GET, HEAD, OPTIONS")));
    }
}
