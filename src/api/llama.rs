//! llama-server's dialect: `/health`.

/// The answer to `/health` of a server that is ready.
pub const HEALTHY: &[u8] = b"{\"status\":\"ok\"}";
