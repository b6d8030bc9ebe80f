//! Keep-alive connections to one server, and requests over them.
//!
//! Built on hyper's HTTP/1 connections and a single-threaded tokio runtime. hyper lets the client
//! hold and choose each connection. A pooling client hides when it connects, and a load generator
//! must know that. One thread without locks leaves the rest of the machine to the server under
//! test.
//!
//! **Invariant:** no response causes a panic, an unbounded wait, or unbounded memory use. Every
//! malformed response becomes a [`Failure`].

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{Failure, FailureKind};
use super::reply;
use super::response::RESPONSE_BYTES_MAX;
use super::response::{StreamReader, read_whole};
use super::result::{PreparedRequest, RequestResult};

/// Largest delay of tokio's timers, which count whole milliseconds.
pub const TIMER_LATE_MAX: Duration = Duration::from_millis(2);

/// A connection of the load generator must be established within this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a response may take to end after its `[DONE]`. After it the connection is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

type Connection = SendRequest<Full<Bytes>>;

/// A server, and the open idle connections to it.
pub struct Client {
    addresses: Vec<SocketAddr>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    /// Time limit of one request, from its write to the end of its response.
    timeout: Duration,
    idle: RefCell<Vec<Connection>>,
    opened: Cell<u64>,
    resent: Cell<u64>,
}

impl Client {
    /// Creates a client without connections.
    pub fn new(address: &str, api_key: Option<&str>, timeout: Duration) -> Result<Self, String> {
        let addresses: Vec<SocketAddr> = address
            .to_socket_addrs()
            .map_err(|error| format!("{address:?} is not the address of a server: {error}"))?
            .collect();
        let host = HeaderValue::from_str(address)
            .map_err(|_| format!("{address:?} does not fit into a Host header"))?;
        let authorization = api_key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| "the API key has characters that a header cannot carry".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Self {
            addresses,
            host,
            authorization: authorization.transpose()?,
            timeout,
            idle: RefCell::default(),
            opened: Cell::new(0),
            resent: Cell::new(0),
        })
    }

    /// Number of requests sent again so far.
    pub fn resent(&self) -> u64 {
        self.resent.get()
    }

    /// Number of connections opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// Opens connections until `count` are idle.
    ///
    /// # Errors
    /// The first connection failure.
    pub async fn open(&self, count: usize) -> Result<(), Failure> {
        self.idle.borrow_mut().retain(|connection| !connection.is_closed());
        let missing = count.saturating_sub(self.idle.borrow().len());
        for _ in 0..missing {
            let connection = self.connect().await?;
            self.idle.borrow_mut().push(connection);
        }
        Ok(())
    }

    /// Waits for the request's arrival time, sends the request, and reads the response.
    ///
    /// Times are relative to `origin`. Calls `on_event` with the arrival time of each event with a
    /// choice.
    pub async fn complete(
        &self,
        path: &Uri,
        request: &PreparedRequest,
        origin: Instant,
        mut on_event: impl FnMut(Instant),
    ) -> RequestResult {
        let mut result = RequestResult::of(request);
        let arrival = origin + request.arrival;
        if arrival > Instant::now() {
            tokio::time::sleep_until(arrival.into()).await;
            // A late timer does not count as client queueing, up to TIMER_LATE_MAX. A longer
            // delay means that this thread was busy, and does count.
            result.arrival = origin.elapsed().min(request.arrival + TIMER_LATE_MAX);
        }
        let attempt = self.attempt(path, request, origin, &mut result, &mut on_event);
        let failure = match timeout(self.timeout, attempt).await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(Failure::timeout(self.timeout)),
        };
        if let Some(failure) = failure {
            result.fail(&failure);
        }
        result
    }

    async fn attempt(
        &self,
        path: &Uri,
        request: &PreparedRequest,
        origin: Instant,
        result: &mut RequestResult,
        on_event: &mut impl FnMut(Instant),
    ) -> Result<(), Failure> {
        let post = self.request(Method::POST, path, request.body.clone());
        let mut started = origin;
        let (connection, response) = self
            .send(post, |now| {
                started = now;
                result.started = now.saturating_duration_since(origin);
            })
            .await?;
        let status = response.status();
        if status != hyper::StatusCode::OK {
            let body = whole_body(response).await;
            if body.is_ok() {
                self.idle.borrow_mut().push(connection);
            }
            let message = reply::error_message(&body.unwrap_or_default());
            return Err(Failure::new(FailureKind::Status(status.as_u16()), message));
        }
        if !request.stream {
            let body = whole_body(response).await?;
            read_whole(&body, started.elapsed(), result)?;
            self.idle.borrow_mut().push(connection);
            return Ok(());
        }
        let mut body = response.into_body();
        let mut reader = StreamReader::new(started);
        while !reader.is_done()
            && let Some(piece) = next_piece(&mut body).await?
        {
            reader.read(&piece, Instant::now(), result, on_event)?;
        }
        reader.end(result)?;
        // Nothing should follow [DONE]. Once the body has ended, the connection can be reused.
        let drain = async { while let Ok(Some(_)) = next_piece(&mut body).await {} };
        if timeout(DRAIN_TIMEOUT, drain).await.is_ok() {
            self.idle.borrow_mut().push(connection);
        }
        Ok(())
    }

    /// Sends a GET request. Returns the status, whatever it is, and the body.
    ///
    /// # Errors
    /// The reason why no complete response came.
    pub async fn get(&self, path: &Uri) -> Result<(u16, Vec<u8>), Failure> {
        let get = async {
            let request = self.request(Method::GET, path, Bytes::new());
            let (_, response) = self.send(request, |_| ()).await?;
            let status = response.status().as_u16();
            Ok((status, whole_body(response).await?))
        };
        timeout(self.timeout, get).await.unwrap_or_else(|_| Err(Failure::timeout(self.timeout)))
    }

    fn request(&self, method: Method, path: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }

    /// Writes a request on an idle connection, or on a new one, and waits for the head of the
    /// response.
    ///
    /// Calls `on_write` with the time just before the first write. That time excludes the first
    /// connect. It includes a second attempt, with its connect.
    ///
    /// A request is sent again when a reused connection closes without an answer, as curl does.
    /// Servers close idle connections without notice, and llama-server also closes those that
    /// carried a stream. Each repeated request is counted.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        on_write: impl FnOnce(Instant),
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let mut on_write = Some(on_write);
        loop {
            let idle = self.idle.borrow_mut().pop();
            let is_reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            if connection.ready().await.is_err() && is_reused {
                continue; // the server has closed this idle connection, as it may
            }
            if let Some(on_write) = on_write.take() {
                on_write(Instant::now());
            }
            match connection.try_send_request(request.clone()).await {
                Ok(response) => return Ok((connection, response)),
                // Ends, because each iteration removes one idle connection.
                Err(error) if is_reused && !error.error().is_parse() => {
                    self.resent.set(self.resent.get() + 1);
                }
                Err(error) => return Err(Failure::of_connection(error.error())),
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let failed = |detail: String| Failure::new(FailureKind::Connect, detail);
        let connect = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.addresses[..]));
        let stream = connect
            .await
            .map_err(|_| failed(format!("not connected within {} s", CONNECT_TIMEOUT.as_secs())))?;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let (connection, driver) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::of_connection(&error))?;
        // This task ends with the connection. Errors reach the request.
        tokio::spawn(async move {
            let _ = driver.await;
        });
        self.opened.set(self.opened.get() + 1);
        Ok(connection)
    }
}

/// The next piece of a body as it came from the network, or `None` at the end.
async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| Failure::of_connection(&error))?.into_data() {
            Ok(piece) => return Ok(Some(piece)),
            Err(_trailers) => {}
        }
    }
    Ok(None)
}

async fn whole_body(response: Response<Incoming>) -> Result<Vec<u8>, Failure> {
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(piece) = next_piece(&mut body).await? {
        if whole.len() + piece.len() > RESPONSE_BYTES_MAX {
            let detail = format!("more than {RESPONSE_BYTES_MAX} bytes");
            return Err(Failure::new(FailureKind::BadResponse, detail));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}
