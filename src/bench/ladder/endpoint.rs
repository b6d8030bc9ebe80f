//! Rungs 6 and 7: requests in memory to responses in memory, through the
//! engine that the server has, without its sockets.

use std::sync::Arc;

use time::OffsetDateTime;

use super::measure::{Measured, Watch};
use super::pipe::Waiter;
use super::workload::{STOP, Workload};
use crate::api::{self, GenerationRequest, Prompt, Reply, ReplyContext, Route};
use crate::clock::Micros;
use crate::front::engine::{Engine, Submission};
use crate::front::exchange::SharedExchange;
use crate::front::prepare::{self, Parsed, Prepared, PreparedGeneration, Serving};
use crate::http::body::BodyReader;
use crate::http::head;
use crate::http::response::{self, HeadOptions};
use crate::types::KeyId;

/// What a rung hands to the engine for a request, and takes of its reply.
pub enum Door {
    /// Rung 6: typed requests in, JSON out.
    Endpoint,
    /// Rung 7: HTTP requests in, HTTP responses out; one wire image a request.
    Handler(Vec<Vec<u8>>),
}

impl Door {
    /// Rung 7's door: the requests as a client would write them.
    pub fn handler(workload: &Workload) -> Self {
        let wire = |prompt: &Vec<i32>| {
            let body = format!(
                "{{\"prompt\":{prompt:?},\"max_tokens\":{},\"temperature\":0,\"ignore_eos\":true,\
                 \"stop\":{}}}",
                workload.gen_tokens,
                serde_json::Value::from(STOP)
            );
            let head = format!(
                "POST /v1/completions HTTP/1.1\r\nhost: ladder\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            (head + &body).into_bytes()
        };
        Door::Handler(workload.prompts.iter().map(wire).collect())
    }

    fn enter(
        &self,
        request: usize,
        workload: &Workload,
        serving: &Serving,
    ) -> Result<PreparedGeneration, String> {
        match self {
            Door::Endpoint => {
                let request = GenerationRequest {
                    prompts: vec![Prompt::Tokens(workload.prompts[request].clone())],
                    max_tokens: Some(workload.gen_tokens),
                    sampling: Workload::sampling(),
                    stops: vec![STOP.to_owned()],
                    ..GenerationRequest::default()
                };
                prepared(Parsed::Generation(Box::new(request), workload.gen_tokens), serving)
            }
            Door::Handler(wires) => {
                let wire = &wires[request];
                let (head, length) = head::parse(wire)
                    .map_err(|error| error.to_string())?
                    .ok_or("the request's head is not complete")?;
                let mut body = BodyReader::new(head.framing);
                body.feed(&wire[length..]).map_err(|error| error.to_string())?;
                let route =
                    api::route(head.method, &head.path).map_err(|error| error.message.clone())?;
                let parsed = prepare::read(route, body.into_body());
                prepared(parsed.map_err(|error| error.message)?, serving)
            }
        }
    }

    /// The body of a response that left by this door.
    ///
    /// # Errors
    /// A sentence, when a client would not find one there.
    pub fn body<'a>(&self, response: &'a [u8]) -> Result<&'a [u8], String> {
        if matches!(self, Door::Endpoint) {
            return Ok(response);
        }
        let head = response.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
        let (head, body) = response.split_at(head.ok_or("a response has no end of its head")?);
        let length = format!("\r\ncontent-length: {}\r\n", body.len());
        let has_length = String::from_utf8_lossy(head).contains(&length);
        if !head.starts_with(b"HTTP/1.1 200 OK\r\n") || !has_length {
            return Err(format!("a response begins with {:?}", String::from_utf8_lossy(head)));
        }
        Ok(body)
    }

    fn leave(&self, body: Vec<u8>) -> Vec<u8> {
        match self {
            Door::Endpoint => body,
            Door::Handler(_) => {
                let options = HeadOptions {
                    content_type: "application/json",
                    request_id: "ladder",
                    keep_alive: true,
                    retry_after: None,
                    allow: None,
                };
                let mut response = Vec::with_capacity(body.len() + 512);
                response::push_head(&mut response, 200, &options, body.len());
                response.extend_from_slice(&body);
                response
            }
        }
    }
}

fn prepared(parsed: Parsed, serving: &Serving) -> Result<PreparedGeneration, String> {
    match prepare::finish(parsed, serving, None, OffsetDateTime::UNIX_EPOCH) {
        Ok(Prepared::Generation(generation)) => Ok(*generation),
        Ok(_) => Err("the request was understood as another".into()),
        Err(error) => Err(error.message),
    }
}

/// Runs the workload through the engine; gives back every response, in the
/// order of the requests.
pub fn engine(
    engine: &mut Engine,
    waiter: &mut Waiter,
    door: &Door,
    serving: &Arc<Serving>,
    workload: &Workload,
) -> Result<(Vec<Vec<u8>>, Measured), String> {
    let mut responses = vec![Vec::new(); workload.prompts.len()];
    let mut running: Vec<(usize, SharedExchange)> = Vec::with_capacity(workload.concurrency);
    let (mut next, mut done) = (0, 0);
    let watch = Watch::start();
    while done < workload.prompts.len() {
        while running.len() < workload.concurrency && next < workload.prompts.len() {
            let mut generation = door.enter(next, workload, serving)?;
            let context = ReplyContext {
                id: format!("cmpl-{next:016x}"),
                model: serving.name.clone(),
                created: 0,
                started: Micros(0),
                prompt_tokens: 0,
            };
            let options = std::mem::take(&mut generation.reply);
            let reply = Reply::new(Route::Completions, options, context);
            let now = waiter.now();
            let submission = Submission {
                id: String::new(),
                reply,
                seed: 0,
                key: KeyId(0),
                priority: 0,
                timeout: None,
                received: now,
            };
            let submitted = engine.submit(generation, submission, now);
            running.push((next, submitted.map_err(|error| error.message)?));
            next += 1;
        }
        engine.pump(waiter.now());
        let before = running.len();
        let mut failure = None;
        running.retain(|(request, exchange)| {
            let mut exchange = exchange.borrow_mut();
            match exchange.outcome.take() {
                None => return true,
                Some(Err(error)) => failure = Some(error.message),
                Some(Ok(())) => {
                    responses[*request] = door.leave(std::mem::take(&mut exchange.out));
                }
            }
            done += 1;
            false
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if running.len() == before {
            waiter.wait(engine.wake_at(), || engine.is_ready());
        }
    }
    Ok((responses, watch.stop()))
}

/// The text in a response's body, and the generated tokens that its `usage` counts.
pub fn text_and_tokens(response: &[u8]) -> Result<(String, u64), String> {
    let value: serde_json::Value = serde_json::from_slice(response)
        .map_err(|error| format!("a response is not JSON: {error}"))?;
    let text = value["choices"][0]["text"].as_str().ok_or("a response has no text")?;
    let count = value["usage"]["completion_tokens"].as_u64();
    let count = count.ok_or("a response has no usage.completion_tokens")?;
    Ok((text.to_owned(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_without_its_head_is_refused() {
        let door = Door::Handler(Vec::new());
        let left = door.leave(b"{}".to_vec());
        assert_eq!(door.body(&left), Ok(&b"{}"[..]));
        assert_eq!(Door::Endpoint.body(b"{}"), Ok(&b"{}"[..]));
        assert!(door.body(b"{}").is_err());
        assert!(door.body(&left[..left.len() - 1]).is_err(), "a body that is cut off");
        assert!(door.body(&[b"HTTP/1.1 500", &left[12..]].concat()).is_err());
    }
}
