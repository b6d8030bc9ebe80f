//! Saves, restores and erases the texts of slots.

use std::path::PathBuf;

use super::{Connection, Gone, Incoming};
use crate::api::error::ApiError;
use crate::api::llama::slots::{self, SlotFile};
use crate::api::route::parameter_of;
use crate::engine::budget::Hold;
use crate::limits::SLOT_BODY_BYTES_MAX;
use crate::prepare::{Envelope, Prepared, Step};
use crate::types::{CacheScope, SlotAction, SlotId};

impl Connection {
    /// Does what a client asks for with the text of a slot, and answers.
    pub(super) async fn on_slot(
        &mut self,
        incoming: &Incoming,
        envelope: &Envelope,
        body: Vec<u8>,
        hold: &mut Hold,
    ) -> Result<bool, Gone> {
        let (what, file, scope) = match self.read_slot(incoming, envelope, body) {
            Ok(read) => read,
            Err(error) => return self.answer_error(incoming, &error).await,
        };
        // The texts of each key are in a folder of their own.
        let folder = match envelope.cache.tenant {
            0 => PathBuf::new(),
            tenant => format!("{tenant:032x}").into(),
        };
        let path = folder.join(&file.filename);
        let (key, now) = (envelope.key, self.front.clock.now());
        self.front.kick();
        let answer = self.work(envelope.deadline(None), |service| {
            service.ask_slot(what, (file.filename, path), scope, key, now)
        });
        let body = match answer.await? {
            Ok(Step::Done(Prepared::Answer(body))) => Ok(body),
            Ok(_) => unreachable!("the outcome of a task with a slot is an answer"),
            Err(error) => Err(error),
        };
        match body.and_then(|body| hold.resize(body.len()).map(|()| body)) {
            Ok(body) => self.answer_json(incoming, &body).await,
            Err(error) => self.answer_error(incoming, &error).await,
        }
    }

    fn read_slot(
        &self,
        incoming: &Incoming,
        envelope: &Envelope,
        mut body: Vec<u8>,
    ) -> Result<((SlotId, SlotAction), SlotFile, CacheScope), ApiError> {
        let head = &incoming.head;
        let slots = match &*self.front.service.borrow() {
            Some(service) => service.model.slots,
            None => return Err(ApiError::unavailable("the model is being loaded", 2)),
        };
        let id = parameter_of(&head.path).unwrap_or_default();
        let what = slots::read_action(id, &head.query, slots)?;
        if what.1 == SlotAction::Erase {
            return Ok((what, SlotFile::default(), envelope.cache));
        }
        if !self.front.config.saves_slots {
            let message = "this server saves no texts of slots; its operator can allow it with \
                           --slot-save-path DIR";
            return Err(ApiError::not_shown(message));
        }
        if body.len() > SLOT_BODY_BYTES_MAX {
            let message = format!(
                "the body has {} bytes; with the name of a file it may have {SLOT_BODY_BYTES_MAX}",
                body.len()
            );
            return Err(ApiError::invalid(message));
        }
        let file = slots::read_file(&mut body)?;
        let scope = envelope.scope(file.cache_salt.as_deref());
        Ok((what, file, scope))
    }
}
