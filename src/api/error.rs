//! An error as a client sees it: a status and a sentence, in the form of its dialect.

/// Bytes of an error's message.
const ERROR_BYTES_MAX: usize = 1024;

/// The facts of a dialect that all its paths share. Its module has the value.
#[derive(Debug)]
pub struct Dialect {
    /// The `Content-Type` of a stream.
    pub stream_type: &'static str,
    /// Whether a stream may have comments, which tell a client that it goes on. Lines of JSON have
    /// none.
    pub has_comments: bool,
    /// Writes the body of an error.
    pub push_error: fn(&mut Vec<u8>, &ApiError),
    /// Writes the event that ends a stream with an error, after its head has been sent.
    pub push_error_event: fn(&mut Vec<u8>, &ApiError),
}

/// An error: what was wrong, and what would be right.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// OpenAI's `type`: the class of the error.
    pub kind: &'static str,
    /// A sentence for a person.
    pub message: String,
    /// The wrong field of the request.
    pub param: Option<&'static str>,
    /// A word for a program.
    pub code: Option<&'static str>,
    /// Seconds to wait before the next try.
    pub retry_after: Option<u64>,
    /// The methods that the path takes.
    pub allow: Option<&'static str>,
    /// The tokens of a prompt that is too long, and the most that a request may have.
    pub tokens: Option<Box<(usize, u32)>>, // boxed, for few errors have them
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        // A message may quote the request, so its length is bounded.
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(ERROR_BYTES_MAX));
        let (param, code) = (None, None);
        Self { status, kind, message, param, code, retry_after: None, allow: None, tokens: None }
    }

    /// 400: the request cannot be served as it is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// 400: a field is wrong.
    pub fn field(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::invalid(message) }
    }

    /// 400: a field asks for something that this server does not support.
    pub fn unsupported(param: &'static str, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::field(param, message) }
    }

    /// 400: a prompt of `prompt_tokens` leaves no room for an answer within `limit`. The `qualifier`
    /// is `at least ` if the tokens were not counted to the end. The kind and the numbers are
    /// llama-server's, the code OpenAI's. Agents look for these words, and then shorten the
    /// conversation.
    pub fn too_long(
        param: &'static str,
        prompt_tokens: usize,
        qualifier: &str,
        limit: u32,
    ) -> Self {
        let message = format!(
            "the prompt has {qualifier}{prompt_tokens} tokens and exceeds the available context size: \
             a request may have {limit} tokens, and its answer at least one of them"
        );
        Self {
            param: Some(param),
            code: Some("context_length_exceeded"),
            tokens: Some(Box::new((prompt_tokens, limit))),
            ..Self::new(400, "exceed_context_size_error", message)
        }
    }

    /// The same error, found at a place within a field: `messages[3]`.
    pub fn within(self, param: &'static str, place: impl std::fmt::Display) -> Self {
        Self { param: Some(param), message: format!("{place}: {}", self.message), ..self }
    }

    /// 401: no key, or a wrong one.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self { code: Some("invalid_api_key"), ..Self::new(401, "authentication_error", message) }
    }

    /// 401: the key of this request was removed before the request began.
    pub fn key_removed() -> Self {
        Self::unauthorized("the API key was removed")
    }

    /// 404: no such path.
    pub fn not_found(path: &str) -> Self {
        Self::no_such(format!("there is nothing at {path}"))
    }

    /// 501: the operator has not switched a page on. As in llama-server.
    pub fn not_shown(message: impl Into<String>) -> Self {
        Self::new(501, "not_supported_error", message)
    }

    /// 404: there is no such thing.
    pub fn no_such(message: impl Into<String>) -> Self {
        Self { code: Some("not_found"), ..Self::new(404, "not_found_error", message) }
    }

    /// 404: the model is not the one being served.
    pub fn no_such_model(asked: &str, served: &str) -> Self {
        let message = format!("there is no model {asked:?}; this server has {served:?}");
        Self { code: Some("model_not_found"), ..Self::new(404, "not_found_error", message) }
    }

    /// 405: the path takes other methods.
    pub fn wrong_method(path: &str, allow: &'static str) -> Self {
        let message = format!("{path} does not have this method; it has {allow}");
        Self { allow: Some(allow), ..Self::new(405, "invalid_request_error", message) }
    }

    /// 415: not JSON.
    pub fn not_json(content_type: &str) -> Self {
        Self::new(
            415,
            "invalid_request_error",
            format!("the body must be application/json; Content-Type says {content_type:?}"),
        )
    }

    /// 415: a body that is compressed.
    pub fn compressed(coding: &str) -> Self {
        let message = format!(
            "the body must not be compressed; Content-Encoding says {coding:.64?}, and identity is \
             read"
        );
        Self::new(415, "invalid_request_error", message)
    }

    /// 403: a web page or a name that may not use the server.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "permission_error", message)
    }

    /// 408: the request did not arrive in time.
    pub fn request_timeout(what: &str, seconds: u64) -> Self {
        let message = format!("the request's {what} did not arrive within {seconds} s");
        Self::new(408, "timeout_error", message)
    }

    /// 429: no room at the moment.
    pub fn busy(message: impl Into<String>, retry_after: u64) -> Self {
        Self {
            code: Some("rate_limit_exceeded"),
            retry_after: Some(retry_after),
            ..Self::new(429, "rate_limit_error", message)
        }
    }

    /// 503: not ready, or shutting down.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(503, "unavailable_error", message) }
    }

    /// 504: the time limit passed before the first token.
    pub fn deadline() -> Self {
        let message = "the request's time was over before its first token; give it more with \
                       timeout_ms, or send it when less is waiting";
        Self { code: Some("timeout"), ..Self::new(504, "timeout_error", message) }
    }

    /// 500: a bug in corelane.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }

    /// 507: there is no room on the disk, or in what the operator allows.
    pub fn no_storage(message: impl Into<String>) -> Self {
        Self::new(507, "server_error", message)
    }

    /// The request was not valid HTTP.
    pub fn http(error: &crate::http::HttpError) -> Self {
        Self::new(error.status(), "invalid_request_error", error.to_string())
    }
}
