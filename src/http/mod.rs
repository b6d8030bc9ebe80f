//! HTTP/1.1 as bytes. In: request heads and bodies. Out: response heads and frames.
//!
//! Nothing here does I/O or reads a clock: the connection passes bytes in and takes bytes out.
//! Ambiguous requests are refused (two lengths, a length and chunks, a lone carriage return).
//! Requests are smuggled through such ambiguities, where two parsers read the same bytes
//! differently.

pub mod body;
pub mod head;
pub mod response;
pub mod trace_context;

/// Why a request cannot be read. Each error has a status. The connection is closed after it,
/// because the following bytes may not be the start of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The request is not HTTP/1.1, or is ambiguous.
    #[error("{0}")]
    Malformed(String),
    /// The version is not 1.0 or 1.1.
    #[error("HTTP version not supported: this server speaks HTTP/1.1 and HTTP/1.0")]
    Version,
    /// The request line and headers are too large.
    #[error("the request line and headers are larger than {} bytes", crate::limits::HEAD_BYTES_MAX)]
    HeadTooLarge,
    /// There are too many header fields.
    #[error("the request has more than {} header fields", crate::limits::HEADERS_MAX)]
    TooManyHeaders,
    /// The body is too large.
    #[error("the request body is larger than {} bytes", crate::limits::BODY_BYTES_MAX)]
    BodyTooLarge,
    /// `Expect` asks for something other than `100-continue`.
    #[error("the only expectation this server meets is 100-continue")]
    Expectation,
    /// The transfer coding is not `chunked`.
    #[error("the only transfer coding this server reads is chunked")]
    TransferCoding,
}

impl HttpError {
    /// The status of the response.
    pub fn status(&self) -> u16 {
        match self {
            HttpError::Malformed(_) => 400,
            HttpError::Version => 505,
            HttpError::HeadTooLarge | HttpError::TooManyHeaders => 431,
            HttpError::BodyTooLarge => 413,
            HttpError::Expectation => 417,
            HttpError::TransferCoding => 501,
        }
    }

    /// An error for an ambiguous or malformed request.
    fn malformed(what: impl Into<String>) -> Self {
        HttpError::Malformed(what.into())
    }
}
