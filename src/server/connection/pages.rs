//! The pages that show the state of the server.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::{Connection, Gone, Incoming};
use crate::api::error::ApiError;
use crate::api::model::Model;
use crate::api::ollama::models as ollama;
use crate::api::route::{OnStored, StatePage, parameter_of};
use crate::api::state::{Load, SlotStatus};
use crate::api::stored::{self, Stored};
use crate::api::{OPENAPI, lanes, llama, model, sglang};
use crate::clock::{Micros, unix_seconds};
use crate::engine::budget::Hold;
use crate::http::head::{Head, Method};
use crate::limits::RANGE_BYTES_MAX;
use crate::prepare::lane::PrepareTask;
use crate::prepare::{Lane, Prepared, Step};
use crate::types::{KeyId, Threads};

impl Connection {
    /// The body of a page.
    ///
    /// # Errors
    /// 400 for a query that the page does not understand, 403 for a page that this key may not see,
    /// 404 for a model that is not served, 501 for a page that is not switched on, and 503 if the
    /// query asks for a free slot and there is none.
    pub(super) fn page(
        &self,
        page: StatePage,
        head: &Head,
        key: KeyId,
    ) -> Result<Cow<'static, [u8]>, ApiError> {
        match page {
            StatePage::Health => self.health(head).map(Cow::from),
            StatePage::Models => Ok(self.models().into()),
            StatePage::Model => self.model(&head.path).map(Cow::from),
            StatePage::Slots => self.slots(&head.query, key).map(Cow::from),
            StatePage::Props => Ok(self.props().into()),
            StatePage::Metrics => self.metrics().map(Cow::from),
            StatePage::ServerInfo | StatePage::ModelInfo | StatePage::Load => {
                Ok(self.sglang(page, key).into())
            }
            StatePage::Lanes => self.lanes(&head.query, key).map(Cow::from),
            StatePage::OpenApi => Ok(OPENAPI.as_bytes().into()),
            StatePage::Tags => Ok(self.ollama(ollama::push_tags).into()),
            StatePage::Running => Ok(self.ollama(ollama::push_running).into()),
            StatePage::Version => Ok(self.ollama(|body, _| ollama::push_version(body)).into()),
        }
    }

    /// Answers a request about a stored response. `hold` counts the answer's memory.
    pub(super) async fn on_stored(
        &mut self,
        incoming: &Incoming,
        action: OnStored,
        key: KeyId,
        hold: &mut Hold,
    ) -> Result<bool, Gone> {
        let id = percent_decode_str(parameter_of(&incoming.head.path).unwrap_or_default());
        let id = id.decode_utf8_lossy();
        let response = self.front.responses.borrow().get(key, &id).cloned();
        let Some(response) = response else {
            return self.answer_error(incoming, &stored::not_found(&id)).await;
        };
        // The response may be deleted while a slow client reads the answer. Only counted bytes may
        // stay in memory that long, so the response itself is dropped first.
        let answer = match action {
            OnStored::Show => {
                let body = response.body.clone();
                drop(response);
                return match hold.resize(body.len()) {
                    Ok(()) => self.answer_json(incoming, &body).await,
                    Err(error) => self.answer_error(incoming, &error).await,
                };
            }
            OnStored::Items => return self.items(incoming, response, key, hold).await,
            OnStored::Cancel => {
                drop(response);
                Err(stored::not_cancellable(&id))
            }
            OnStored::Delete => {
                drop(response);
                self.front.responses.borrow_mut().delete(key, &id);
                let mut body = Vec::new();
                stored::push_deleted(&mut body, &id);
                Ok(body)
            }
        };
        match answer {
            Ok(answer) => self.answer_json(incoming, &answer).await,
            Err(error) => self.answer_error(incoming, &error).await,
        }
    }

    /// Answers with a range of a stored response's input. A range of more than [`RANGE_BYTES_MAX`]
    /// bytes is written by a lane.
    async fn items(
        &mut self,
        incoming: &Incoming,
        response: Arc<Stored>,
        key: KeyId,
        hold: &mut Hold,
    ) -> Result<bool, Gone> {
        let range = match response.range(&incoming.head.query) {
            Ok(range) => range,
            Err(error) => return self.answer_error(incoming, &error).await,
        };
        let bytes = response.range_bytes(&range);
        if incoming.head.method == Method::Head {
            drop(response);
            return self.answer_head(incoming, bytes).await;
        }
        let is_long = bytes > RANGE_BYTES_MAX;
        // The response stays in memory until the lane has written the range, so count it, too.
        let held = hold.resize(if is_long { bytes + response.bytes() } else { bytes });
        if let Err(error) = held {
            return self.answer_error(incoming, &error).await;
        }
        let mut body = Vec::new();
        if is_long {
            let task = PrepareTask::Items(response, range);
            let answer =
                self.work(None, |service| service.send_task(task, Lane::Long, key, None)).await?;
            match answer.and_then(|step| hold.resize(bytes).map(|()| step)) {
                Ok(Step::Done(Prepared::Answer(answer))) => body = answer,
                Ok(_) => unreachable!("a range is an answer"),
                Err(error) => return self.answer_error(incoming, &error).await,
            }
        } else {
            response.push_range(&mut body, &range);
            drop(response);
        }
        self.answer_json(incoming, &body).await
    }

    fn models(&self) -> Vec<u8> {
        match &*self.front.service.borrow() {
            Some(service) => model::list(&service.model.facts(), unix_seconds()).to_string().into(),
            None => Vec::new(),
        }
    }

    /// A page of Ollama's API about the model.
    fn ollama(&self, push: fn(&mut Vec<u8>, &Model<'_>)) -> Vec<u8> {
        let mut body = Vec::with_capacity(1024);
        if let Some(service) = &*self.front.service.borrow() {
            push(&mut body, &service.model.facts());
        }
        body
    }

    /// The page about the model. 404 if the path has none of its names.
    fn model(&self, path: &str) -> Result<Vec<u8>, ApiError> {
        let asked = percent_decode_str(parameter_of(path).unwrap_or_default());
        let asked = asked.decode_utf8_lossy();
        let service = self.front.service.borrow();
        let Some(service) = &*service else { return Ok(Vec::new()) };
        let facts = service.model.facts();
        if asked != facts.name && facts.aliases.iter().all(|alias| *alias != asked) {
            return Err(ApiError::no_such_model(&asked, facts.name));
        }
        Ok(model::object(&facts, unix_seconds()).to_string().into())
    }

    /// A page for SGLang's gateway. The load is that of all keys, or only this key's if it may not
    /// see that of others.
    fn sglang(&self, page: StatePage, key: KeyId) -> Vec<u8> {
        let service = self.front.service.borrow();
        let Some(service) = &*service else { return Vec::new() };
        let (model, facts) = (&service.model, service.model.facts());
        let path = model.shown_path();
        let counters = self.front.counters();
        let used = counters.kv_tokens_used.get();
        let answer = match page {
            StatePage::ServerInfo => {
                sglang::server_info(&facts, &path, model.slots, model.context_tokens)
            }
            StatePage::ModelInfo => sglang::model_info(&facts, &path),
            _ if !self.front.shows_all() => sglang::load(service.engine.load(key)),
            _ => sglang::load(Load {
                running: counters.running.get(),
                waiting: counters.waiting.get(),
                tokens: used.saturating_sub(counters.kv_tokens_kept.get()),
            }),
        };
        answer.to_string().into()
    }

    /// The metrics. An error if this port does not show them, or if this key may not see them.
    fn metrics(&self) -> Result<Vec<u8>, ApiError> {
        let config = &self.front.config;
        if config.metrics_page.is_some() {
            self.check_shows_all("Metrics", "count what each of them sends")?;
        }
        match config.metrics_page {
            Some(page) => Ok(page(&config.metrics).into()),
            None => {
                let message = "this port shows no metrics; start the server with --metrics, or \
                               ask at the address of --ops-addr";
                Err(ApiError::not_shown(message))
            }
        }
    }

    /// The page about the lanes. An error if this key may not see it.
    fn lanes(&self, query: &str, key: KeyId) -> Result<Vec<u8>, ApiError> {
        self.check_shows_all("Lanes", "show when each of them is used")?;
        let since = lanes::read_since(query)?;
        let service = self.front.service.borrow();
        let Some(service) = &*service else { return Ok(Vec::new()) };
        let (model, now) = (&service.model, self.front.clock.now());
        let lanes = service.engine.lanes(now, since, key, &model.name, model.info.kernels.name);
        Ok(serde_json::to_vec(&lanes)
            .expect("there are no maps, and writing to memory cannot fail"))
    }

    /// Refuses a page that would show one key the activity of other keys. `why` is a part of the
    /// message.
    fn check_shows_all(&self, what: &str, why: &str) -> Result<(), ApiError> {
        if self.front.shows_all() {
            return Ok(());
        }
        let tenants = self.front.keys.borrow().tenants();
        Err(ApiError::forbidden(format!(
            "{what} are hidden: this server has had {tenants} keys, and they {why}. --share-cache shows \
             them, and lets keys share cached prompts"
        )))
    }

    /// The server's health, in the detail that `level` in the query asks for. The path needs no
    /// key. Unless the request has a key that may see everything, the number of tokens is rounded:
    /// the exact one would show the lengths of prompts.
    fn health(&self, head: &Head) -> Result<Vec<u8>, ApiError> {
        let given = head.query.split('&').find_map(|pair| pair.strip_prefix("level="));
        let level = match given {
            None | Some("basic") => return Ok(llama::HEALTHY.to_vec()),
            Some("detailed") => llama::Level::Detailed,
            Some("full") => llama::Level::Full,
            Some(other) => {
                let message = format!("level must be basic, detailed or full, not {other:?}");
                return Err(ApiError::field("level", message));
            }
        };
        let mut body = Vec::with_capacity(512);
        // This must come before the service is borrowed, because it borrows the service to take
        // over new keys.
        let is_exact = self.shows_key(head) && self.front.shows_all();
        if let Some(service) = &*self.front.service.borrow() {
            let front = self.front.counters();
            let running = front.running.get();
            let capacity = front.kv_tokens_capacity.get();
            let used = front.kv_tokens_used.get();
            let health = llama::Health {
                model: &service.model.name,
                uptime_s: self.front.clock.now().seconds_since(Micros(0)),
                slots_idle: (service.model.slots as u64).saturating_sub(running),
                slots_processing: running,
                requests_waiting: front.waiting.get(),
                kv_tokens_used: if is_exact { used } else { llama::in_eighths(used, capacity) },
                kv_tokens_capacity: capacity,
                connections: front.connections.get(),
            };
            llama::push_health(&mut body, &health, level);
        }
        Ok(body)
    }

    /// Whether a request on a path that needs no key has a valid one.
    fn shows_key(&self, head: &Head) -> bool {
        self.front.take_keys();
        let keys = self.front.keys.borrow();
        head.api_key.as_ref().is_some_and(|given| keys.find(given).is_some())
    }

    fn props(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(4096);
        let counters = self.front.counters();
        if let Some(service) = &*self.front.service.borrow() {
            let model = &service.model;
            let props = llama::Props {
                model: &model.name,
                info: &model.info,
                io: self.front.config.io,
                slots: model.slots,
                calibration: &model.calibration,
                threads: Threads {
                    count: counters.compute_threads.get() as u16, // at most THREADS_MAX
                    led: counters.products_led.get() > 0,
                },
                slowdown: counters.slowdown_permille.get() as f64 / 1e3,
                n_ctx: model.sequence_tokens,
                path: &model.shown_path(),
                chat: model.chat.as_ref(),
                shows_metrics: self.front.config.metrics_page.is_some(),
                defaults: model.sampling,
                system_prompt: model.system_prompt.as_deref(),
                bos: &model.vocab.bos_text(),
                eos: &model.vocab.eos_text(),
            };
            llama::push_props(&mut body, &props);
        }
        body
    }

    /// The state of each slot. For slots of other keys, only whether they are busy. With
    /// `fail_on_no_slot=1` in the query, having no free slot is an error (503), which load
    /// balancers for llama-server rely on.
    fn slots(&self, query: &str, key: KeyId) -> Result<Vec<u8>, ApiError> {
        let given = query.split('&').find_map(|pair| pair.strip_prefix("fail_on_no_slot="));
        let wants_one = match given {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                let message = format!("fail_on_no_slot must be 0 or 1, not {other:?}");
                return Err(ApiError::field("fail_on_no_slot", message));
            }
        };
        let mut body = Vec::with_capacity(4096);
        if let Some(service) = &*self.front.service.borrow() {
            let slots = service.engine.slots(self.front.clock.now(), key);
            if wants_one && slots.iter().all(SlotStatus::is_busy) {
                let message = format!("none of the {} slots is free", slots.len());
                return Err(ApiError::unavailable(message, 1));
            }
            llama::push_slots(&mut body, service.model.sequence_tokens, &slots);
        }
        Ok(body)
    }
}
