//! The files of the web page.

use super::{Connection, Gone, Incoming, takes_no_body};
use crate::api::error::ApiError;
use crate::http::head::Method;
use crate::http::response::{self, HeadOptions};
use crate::page::File;

/// Header lines that restrict the page: it runs only its own scripts and fetches nothing from other
/// servers, even if the text of an answer contains HTML that tries to.
const PROTECTION: &str = "content-security-policy: default-src 'none'; script-src 'self'; \
    style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n\
    x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n";

impl Connection {
    /// Answers with a file. The request needs no key and no loaded model.
    pub(super) async fn answer_file(
        &mut self,
        incoming: &Incoming,
        file: &'static File,
    ) -> Result<bool, Gone> {
        let head = &incoming.head;
        if !matches!(head.method, Method::Get | Method::Head) {
            let error = ApiError::wrong_method(file.path, "GET, HEAD, OPTIONS");
            return self.answer_unread(incoming, &error).await;
        }
        if let Err(error) = takes_no_body(head, "GET") {
            return self.answer_unread(incoming, &error).await;
        }
        let (body, coding) = match head.takes_gzip {
            true => (&*file.gzip, "content-encoding: gzip\r\n"),
            false => (file.content, ""),
        };
        let etag = &file.etag;
        let further = format!(
            "etag: {etag}\r\ncache-control: no-cache\r\nvary: accept-encoding\r\n{coding}{PROTECTION}"
        );
        let known = head.if_none_match.as_deref().is_some_and(|known| file.is_among(known));
        let status = if known { 304 } else { 200 };
        let keep_alive = head.keep_alive;
        let options = HeadOptions {
            further: &further,
            ..self.options(incoming, file.content_type, keep_alive)
        };
        self.front.counters().responses.count(file.path, status);
        response::push_head(&mut self.output, status, &options, body.len());
        self.flush().await?;
        if status == 200 && head.method == Method::Get {
            // Sent from static memory. Copies for many connections, which need no key, could take
            // much memory.
            self.send(body).await?;
        }
        Ok(keep_alive)
    }
}
