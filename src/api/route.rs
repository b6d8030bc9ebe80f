//! The table of routes. Each entry holds all facts about a path.
//!
//! The dialects do not use the table. `docs/architecture.md` has the steps to add one.

use super::asked::Request;
use super::error::{ApiError, Dialect};
use super::llama::{completion, embedding, infill, tokens};
use super::{anthropic, chat, cllm, embeddings, ollama, openai, rank, responses};
use crate::http::head::Method;

/// One path, or several with the same meaning.
pub struct Route {
    /// The paths. `{id}` matches a part of a path, and `{model}` all of its rest.
    pub paths: &'static [&'static str],
    /// The form of its errors.
    pub dialect: &'static Dialect,
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
    Show(StatePage),
    /// `POST`: computes an answer from the body.
    Answer(ReadBody),
    /// `POST`: generates text.
    Generate {
        /// Reads the body.
        read: ReadBody,
        /// What it does, in the words of OpenTelemetry's conventions for generative models.
        operation: &'static str,
        /// Prefix of response ids.
        id_prefix: &'static str,
    },
    /// Does something with a response that is kept.
    Stored(OnStored),
    /// `POST`: saves, restores or erases the text of a slot.
    Slot,
}

impl Action {
    /// Reads a body; `None` if the action takes none.
    pub fn read_body(&self) -> Option<ReadBody> {
        match self {
            Action::Answer(read) | Action::Generate { read, .. } => Some(*read),
            Action::Show(_) | Action::Stored(_) | Action::Slot => None,
        }
    }
}

/// What can be done with a response that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStored {
    /// `GET`: shows it.
    Show,
    /// `GET`: shows its input.
    Items,
    /// `DELETE`: forgets it.
    Delete,
    /// `POST`: refuses to cancel it, for it has ended.
    Cancel,
}

/// Reads a body. Fails with a 400 that names the field.
pub type ReadBody = fn(&mut [u8]) -> Result<Request, ApiError>;

/// The pages that show the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePage {
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
    /// The metrics, as text.
    Metrics,
    /// The lanes at work.
    Lanes,
    /// The server, for SGLang's gateway.
    ServerInfo,
    /// The model, for SGLang's gateway.
    ModelInfo,
    /// How busy the server is, for SGLang's gateway.
    Load,
}

impl StatePage {
    /// The type of its content.
    pub fn content_type(self) -> &'static str {
        match self {
            StatePage::Metrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            _ => "application/json",
        }
    }
}

/// A route of OpenAI's dialect that needs a key.
const fn route(paths: &'static [&'static str], action: Action) -> Route {
    Route { paths, dialect: &openai::DIALECT, is_public: false, action }
}

impl Route {
    const fn public(self) -> Self {
        Self { is_public: true, ..self }
    }

    const fn of(self, dialect: &'static Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// The methods of the route, besides `OPTIONS`.
    pub fn methods(&self) -> &'static str {
        match self.action {
            Action::Show(_) | Action::Stored(OnStored::Show | OnStored::Items) => "GET, HEAD",
            Action::Answer(_)
            | Action::Generate { .. }
            | Action::Slot
            | Action::Stored(OnStored::Cancel) => "POST",
            Action::Stored(OnStored::Delete) => "DELETE",
        }
    }

    fn takes(&self, method: Method) -> bool {
        let name = match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Options | Method::Other => return false,
        };
        self.methods().split(", ").any(|taken| taken == name)
    }

    fn is_at(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| *pattern == path || parameter(pattern, path).is_some())
    }
}

/// Every route.
pub static ROUTES: &[Route] = &[
    route(&["/health", "/v1/health"], Action::Show(StatePage::Health)).public(),
    route(&["/models", "/v1/models"], Action::Show(StatePage::Models)).public(),
    route(&[MODEL_PATH], Action::Show(StatePage::Model)).public(),
    route(&["/openapi.json"], Action::Show(StatePage::OpenApi)).public(),
    route(&["/slots"], Action::Show(StatePage::Slots)),
    route(&["/slots/{id_slot}"], Action::Slot),
    route(&["/props"], Action::Show(StatePage::Props)),
    route(&["/metrics"], Action::Show(StatePage::Metrics)),
    route(&["/lanes"], Action::Show(StatePage::Lanes)),
    route(&["/server_info", "/get_server_info"], Action::Show(StatePage::ServerInfo)),
    route(&["/model_info", "/get_model_info"], Action::Show(StatePage::ModelInfo)),
    route(&["/get_load"], Action::Show(StatePage::Load)),
    route(
        &["/v1/completions"],
        Action::Generate {
            operation: "text_completion",
            read: |body| openai::read_completion(body).map(Request::generate),
            id_prefix: "cmpl-",
        },
    ),
    route(
        &["/chat/completions", "/v1/chat/completions"],
        Action::Generate {
            operation: "chat",
            read: |body| chat::openai::read_chat(body).map(Request::chat),
            id_prefix: "chatcmpl-",
        },
    ),
    route(
        &["/v1/messages"],
        Action::Generate {
            operation: "chat",
            read: |body| anthropic::read_messages(body).map(Request::chat),
            id_prefix: "msg_",
        },
    )
    .of(&anthropic::DIALECT),
    route(
        &["/completion", "/completions"],
        Action::Generate {
            operation: "text_completion",
            read: |body| completion::read_completion(body).map(Request::generate),
            id_prefix: "cmpl-",
        },
    ),
    route(
        &["/infill"],
        Action::Generate {
            operation: "text_completion",
            read: |body| infill::read_infill(body).map(Request::generate),
            id_prefix: "cmpl-",
        },
    ),
    route(
        &["/generate"],
        Action::Generate {
            operation: "text_completion",
            read: |body| cllm::read_generate(body).map(Request::generate),
            id_prefix: "gen-",
        },
    )
    .of(&cllm::DIALECT),
    route(
        &["/generate_stream"],
        Action::Generate {
            operation: "text_completion",
            read: |body| cllm::read_generate_stream(body).map(Request::generate),
            id_prefix: "gen-",
        },
    )
    .of(&cllm::DIALECT),
    route(
        &["/api/chat"],
        Action::Generate { operation: "chat", read: ollama::request::read_chat, id_prefix: "" },
    )
    .of(&ollama::DIALECT),
    route(
        &["/api/generate"],
        Action::Generate {
            operation: "text_completion",
            read: ollama::request::read_generate,
            id_prefix: "",
        },
    )
    .of(&ollama::DIALECT),
    route(
        &["/api/embed"],
        Action::Answer(|body| ollama::embed::read_embed(body).map(Request::embed)),
    )
    .of(&ollama::DIALECT),
    route(
        &["/api/embeddings"],
        Action::Answer(|body| ollama::embed::read_embeddings(body).map(Request::embed)),
    )
    .of(&ollama::DIALECT),
    route(
        &["/api/show"],
        Action::Answer(|body| ollama::models::read_show(body).map(|()| Request::ShowModel)),
    )
    .of(&ollama::DIALECT),
    route(&["/api/tags"], Action::Show(StatePage::Tags)).of(&ollama::DIALECT).public(),
    route(&["/api/ps"], Action::Show(StatePage::Running)).of(&ollama::DIALECT),
    route(&["/api/version"], Action::Show(StatePage::Version)).of(&ollama::DIALECT).public(),
    route(
        &["/v1/responses", "/responses"],
        Action::Generate {
            operation: "chat",
            read: |body| responses::request::read(body).map(Request::chat),
            id_prefix: "resp_",
        },
    ),
    route(
        &["/v1/responses/input_tokens", "/responses/input_tokens"],
        Action::Answer(|body| {
            let chat = responses::request::read(body)?;
            Ok(Request::CountTokens(Box::new(chat), responses::request::push_count))
        }),
    ),
    route(
        &["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"],
        Action::Answer(|body| {
            let chat = chat::openai::read_chat(body)?;
            Ok(Request::CountTokens(Box::new(chat), responses::request::push_count))
        }),
    ),
    route(&[RESPONSE_PATH], Action::Stored(OnStored::Show)),
    route(&[RESPONSE_PATH], Action::Stored(OnStored::Delete)),
    route(&["/v1/responses/{id}/input_items"], Action::Stored(OnStored::Items)),
    route(&["/v1/responses/{id}/cancel"], Action::Stored(OnStored::Cancel)),
    route(&["/v1/embeddings"], Action::Answer(|body| embeddings::read(body).map(Request::embed))),
    route(
        &["/embedding", "/embeddings"],
        Action::Answer(|body| embedding::read_embedding(body).map(Request::embed)),
    ),
    route(
        &["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"],
        Action::Answer(|body| rank::read_rerank(body).map(Request::rank)),
    ),
    route(
        &["/v1/score", "/score"],
        Action::Answer(|body| rank::read_score(body).map(Request::rank)),
    ),
    route(
        &["/v1/messages/count_tokens"],
        Action::Answer(|body| {
            let chat = anthropic::read_count(body)?;
            Ok(Request::CountTokens(Box::new(chat), anthropic::push_count))
        }),
    )
    .of(&anthropic::DIALECT),
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
        .of(&cllm::DIALECT),
];

/// The path of one model.
const MODEL_PATH: &str = "/v1/models/{model}";
/// The path of a response that is kept.
const RESPONSE_PATH: &str = "/v1/responses/{id}";

/// The routes of a path. A path without parameters comes before one that has some.
fn at(path: &str) -> impl Iterator<Item = &'static Route> {
    let exact = ROUTES.iter().any(|route| route.paths.contains(&path));
    ROUTES.iter().filter(
        move |route| {
            if exact { route.paths.contains(&path) } else { route.is_at(path) }
        },
    )
}

/// Finds the route of a path that takes a method.
///
/// # Errors
/// 404 for an unknown path, 405 for a method that the path does not take.
pub fn find(method: Method, path: &str) -> Result<&'static Route, ApiError> {
    if let Some(route) = at(path).find(|route| route.takes(method)) {
        return Ok(route);
    }
    let methods: Vec<&str> = at(path).map(Route::methods).collect();
    match methods[..] {
        [] => Err(ApiError::not_found(path)),
        ["GET, HEAD"] => Err(ApiError::wrong_method(path, "GET, HEAD, OPTIONS")),
        ["POST"] => Err(ApiError::wrong_method(path, "POST, OPTIONS")),
        _ => Err(ApiError::wrong_method(path, "GET, HEAD, DELETE, OPTIONS")),
    }
}

/// The dialect in which a path's errors are written. For an unknown path, that of the paths that
/// begin like it, or else OpenAI's.
pub fn dialect(path: &str) -> &'static Dialect {
    match at(path).next() {
        Some(route) => route.dialect,
        None if path.starts_with("/api/") => &ollama::DIALECT,
        None if path.starts_with("/v1/messages/") => &anthropic::DIALECT,
        None => &openai::DIALECT,
    }
}

/// The path as the table has it, with the names of its parameters; an unknown one as it is.
pub fn pattern(path: &str) -> &str {
    let Some(route) = at(path).next() else { return path };
    route.paths.iter().find(|pattern| parameter(pattern, path).is_some()).copied().unwrap_or(path)
}

/// Whether a path shows the server's state, as programs ask for it again and again.
pub fn is_probe(path: &str) -> bool {
    at(path).any(|route| matches!(route.action, Action::Show(StatePage::Health)))
}

/// The parameter in a path, still percent-encoded.
pub fn parameter_of(path: &str) -> Option<&str> {
    parameter(pattern(path), path)
}

/// The text that stands for the parameter of a pattern, if the path fits it.
fn parameter<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let (before, rest) = pattern.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    let text = path.strip_prefix(before)?.strip_suffix(after)?;
    let fits = !text.is_empty() && (name == "model" || !text.contains('/'));
    fits.then_some(text)
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
        assert_eq!(paths(Method::Delete, "/v1/responses/a"), Ok(&[RESPONSE_PATH][..]));
        let items = "/v1/responses/a/input_items";
        assert_eq!(parameter_of(items), Some("a"));
        assert_eq!((pattern(items), pattern("/x")), ("/v1/responses/{id}/input_items", "/x"));
        let error = paths(Method::Post, "/v1/responses/a").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("GET, HEAD, DELETE, OPTIONS")));
        let error = paths(Method::Get, "/v1/responses/input_tokens").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("POST, OPTIONS")));
        for path in super::paths() {
            let mut methods: Vec<&str> = at(path).map(Route::methods).collect();
            methods.push("OPTIONS");
            let error = find(Method::Other, path).err().unwrap();
            assert_eq!(error.allow, Some(&*methods.join(", ")), "{path}");
        }
        let error = paths(Method::Other, "/v1/models").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("GET, HEAD, OPTIONS")));
    }
}
