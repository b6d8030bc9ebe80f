//! The server under test: its address and its model.

use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use serde_json::Value;

use super::client::Client;
use super::load::{block_on, path};
use super::reply::{error_message, shown};

/// The location of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL, as given by the user.
    pub url: String,
    /// Address of the server, as `host:port`.
    pub address: String,
    /// The path in the URL, which prefixes every endpoint. Usually empty.
    pub prefix: String,
}

/// The first model of `GET /v1/models`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The model's name.
    pub id: Option<String>,
    /// Size of the vocabulary in tokens. corelane and llama-server report it in `meta.n_vocab`.
    pub n_vocab: Option<u32>,
}

impl Target {
    /// Parses a base URL, such as `http://127.0.0.1:8080`.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{url:?} is not the URL of a server: {why}; one looks like http://127.0.0.1:8080"
            )
        };
        let uri = Uri::try_from(url).map_err(|error| wrong(&error.to_string()))?;
        let Some(authority) = uri.authority() else { return Err(wrong("it has no host")) };
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(wrong("https is not supported"));
            }
            _ => return Err(wrong("it does not begin with http://")),
        }
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(wrong("it may have a host, a port and a path, and nothing else"));
        }
        const HTTP_PORT: u16 = 80;
        let port = match uri.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => HTTP_PORT,
            None => return Err(wrong("its port is not a number from 0 to 65535")),
        };
        Ok(Self {
            url: url.to_owned(),
            address: format!("{}:{port}", authority.host()),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Asks the server which model it serves.
    pub fn model(&self, api_key: Option<&str>, timeout: Duration) -> Result<Model, String> {
        let path = path(&format!("{}/v1/models", self.prefix))?;
        let client = Client::new(&self.address, api_key, timeout)?;
        let answer = block_on(client.get(&path))?;
        let (status, body) = answer.map_err(|failure| format!("{}: {failure}", self.url))?;
        if status != 200 {
            let message = error_message(&body);
            return Err(format!("{}{path} answers {status}: {message}", self.url));
        }
        let models: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("{}{path} answers no JSON: {error}", self.url))?;
        Ok(first_model(&models))
    }
}

fn first_model(models: &Value) -> Model {
    let first = &models["data"][0];
    let n_vocab = first["meta"]["n_vocab"].as_u64().and_then(|n| u32::try_from(n).ok());
    Model {
        id: first["id"].as_str().map(shown).filter(|id| !id.is_empty()),
        n_vocab: n_vocab.filter(|n| *n > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls_are_read() {
        for (url, address, prefix) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", ""),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080", ""),
            ("http://localhost", "localhost:80", ""),
            ("http://[::1]:9/llm/", "[::1]:9", "/llm"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.address.as_str(), target.prefix.as_str()), (address, prefix));
        }
        for (url, why) in [
            ("https://a", "https is not supported"),
            ("127.0.0.1:8080", "does not begin with http://"),
            ("/v1", "no host"),
            ("ftp://a", "does not begin with http://"),
            ("http://me:secret@a", "nothing else"),
            ("http://a/?x=1", "nothing else"),
            ("http://a:99999", "not a number from 0 to 65535"),
            ("http://a b", "not the URL"),
            ("", "not the URL"),
        ] {
            let error = Target::parse(url).expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn models_are_read_as_far_as_they_tell() {
        let llama = json!({"models": [], "object": "list", "data": [
            {"id": "m", "meta": {"n_vocab": 151_936}}, {"id": "other"}]});
        let expected = Model { id: Some("m".into()), n_vocab: Some(151_936) };
        assert_eq!(first_model(&llama), expected);
        let vllm = json!({"data": [{"id": "m", "max_model_len": 2048}]});
        assert_eq!(first_model(&vllm), Model { id: Some("m".into()), n_vocab: None });
        for odd in
            [json!({}), json!([]), json!({"data": {}}), json!({"data": [{"id": 7}]}), json!(1)]
        {
            assert_eq!(first_model(&odd), Model::default());
        }
        for odd in [json!(1u64 << 40), json!(0), json!(-1), json!("many")] {
            let models = json!({"data": [{"id": "m", "meta": {"n_vocab": odd}}]});
            assert_eq!(first_model(&models).n_vocab, None);
        }
    }
}
