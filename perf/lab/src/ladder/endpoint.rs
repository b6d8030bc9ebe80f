//! Rungs 6 and 7: turn requests in memory into responses in memory, through the server's engine but
//! without sockets.

use time::OffsetDateTime;

use super::measure::{Measured, Watch};
use super::pipe::Waiter;
use super::workload::{STOP, Workload};
use corelane::api::asked::Request;
use corelane::api::openai::CompletionReply;
use corelane::api::prompts::Prompt;
use corelane::api::request::{GenerationRequest, Length};
use corelane::api::route::{self, Route};
use corelane::clock::Micros;
use corelane::engine::Engine;
use corelane::engine::budget::Budget;
use corelane::engine::exchange::SharedExchange;
use corelane::engine::job::Job;
use corelane::http::body::BodyReader;
use corelane::http::head;
use corelane::http::head::Method;
use corelane::http::response::{self, HeadOptions};
use corelane::limits::REQUEST_MEMORY_BYTES;
use corelane::prepare::{self, Envelope, Prepared, ServedModel, Step};
use corelane::types::{CacheScope, KeyId};

/// The form in which a rung passes requests to the engine and takes its replies.
pub enum Interface {
    /// Rung 6: typed requests in, JSON out.
    Endpoint,
    /// Rung 7: HTTP requests in, HTTP responses out. Holds the bytes of each request.
    Handler(Vec<Vec<u8>>),
}

impl Interface {
    /// Rung 7's form, with the requests as a client would write them.
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
        Interface::Handler(workload.prompts.iter().map(wire).collect())
    }

    fn enter(
        &self,
        index: usize,
        workload: &Workload,
        model: &ServedModel,
        received: Micros,
    ) -> Result<Job, String> {
        match self {
            Interface::Endpoint => {
                let request = GenerationRequest {
                    prompts: vec![Prompt::Tokens(workload.prompts[index].clone())],
                    length: Length::AtMost(workload.gen_tokens),
                    sampling: Workload::sampling(),
                    stops: vec![STOP.to_owned()],
                    ..GenerationRequest::new(CompletionReply::new)
                };
                let route = route::find(Method::Post, "/v1/completions").expect("it is served");
                prepared(Request::Generate(Box::new(request)), route, index, model, received)
            }
            Interface::Handler(wires) => {
                let wire = &wires[index];
                let (head, length) = head::parse(wire)
                    .map_err(|error| error.to_string())?
                    .ok_or("the request's head is not complete")?;
                let mut body = BodyReader::new(head.framing);
                body.feed(&wire[length..]).map_err(|error| error.to_string())?;
                let route = route::find(head.method, &head.path).map_err(|error| error.message)?;
                let read = route.action.read_body().ok_or("the route takes no body")?;
                let request = read(&mut body.into_body());
                prepared(request.map_err(|error| error.message)?, route, index, model, received)
            }
        }
    }

    /// The body of a response.
    pub fn body<'a>(&self, response: &'a [u8]) -> Result<&'a [u8], String> {
        if matches!(self, Interface::Endpoint) {
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
            Interface::Endpoint => body,
            Interface::Handler(_) => {
                let options = HeadOptions {
                    origin: None,
                    further: "",
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

fn prepared(
    request: Request,
    route: &'static Route,
    index: usize,
    model: &ServedModel,
    received: Micros,
) -> Result<Job, String> {
    let envelope = Envelope {
        route,
        number: index as u64,
        seed: 0,
        key: KeyId::at(0),
        cache: CacheScope::default(),
        priority_min: i32::MIN,
        timeout: None,
        received,
        created: 0,
    };
    let now = OffsetDateTime::UNIX_EPOCH;
    match prepare::advance(request, &envelope, model, None, usize::MAX, &|| true, now) {
        Ok(Step::Done(Prepared::Job(job))) => Ok(*job),
        Ok(_) => Err("the request was understood as another".into()),
        Err(error) => Err(error.message),
    }
}

/// Runs the workload through the engine. Returns all responses in the order of the requests.
pub fn engine(
    engine: &mut Engine,
    waiter: &mut Waiter,
    interface: &Interface,
    model: &ServedModel,
    workload: &Workload,
) -> Result<(Vec<Vec<u8>>, Measured), String> {
    let mut responses = vec![Vec::new(); workload.prompts.len()];
    let mut running: Vec<(usize, SharedExchange)> = Vec::with_capacity(workload.concurrency);
    let (mut next, mut done) = (0, 0);
    let budget = Budget::new(REQUEST_MEMORY_BYTES, &[1.0]);
    let watch = Watch::start();
    while done < workload.prompts.len() {
        while running.len() < workload.concurrency && next < workload.prompts.len() {
            let now = waiter.now();
            let job = interface.enter(next, workload, model, now)?;
            let submitted = engine.submit(job, budget.hold(Some(KeyId::at(0))), now);
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
                    responses[*request] = interface.leave(std::mem::take(&mut exchange.out));
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

/// The text in a response's body, and the number of generated tokens in its `usage`.
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
        let interface = Interface::Handler(Vec::new());
        let left = interface.leave(b"{}".to_vec());
        assert_eq!(interface.body(&left), Ok(&b"{}"[..]));
        assert_eq!(Interface::Endpoint.body(b"{}"), Ok(&b"{}"[..]));
        assert!(interface.body(b"{}").is_err());
        assert!(interface.body(&left[..left.len() - 1]).is_err(), "a body that is cut off");
        assert!(interface.body(&[b"HTTP/1.1 500", &left[12..]].concat()).is_err());
    }
}
