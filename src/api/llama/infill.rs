//! llama-server's `/infill`: fills a gap in a text, for editors.

use crate::api::value::Value;

use super::super::error::ApiError;
use super::super::json::{Fields, read_object, wrong};
use super::super::prompts::Prompt;
use super::super::request::{Excerpt, Gap, GenerationRequest, Infill};
use super::completion::read_settings;
use crate::limits::INFILL_EXTRA_MAX;

/// Reads an `/infill` request. It has all options of `/completion`.
pub fn read_infill(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    read_object(body, |fields| {
        let text = |name| {
            let missing =
                || ApiError::field(name, format!("{name} is missing; it must be a string"));
            fields.string(name)?.ok_or_else(missing)
        };
        let (prefix, suffix) = (text("input_prefix")?, text("input_suffix")?);
        let begun = fields.string("prompt")?.unwrap_or_default();
        let infill = Some(Infill { begun, extra: read_extra(fields)? });
        Ok(GenerationRequest {
            prompts: vec![Prompt::Text(prefix)],
            gap: Some(Box::new(Gap { suffix, infill })),
            ..read_settings(fields)?
        })
    })
}

/// Reads `input_extra`. A file may have no name.
fn read_extra(fields: &Fields<'_, '_>) -> Result<Vec<Excerpt>, ApiError> {
    const NAME: &str = "input_extra";
    const FORM: &str = "an array of objects with filename and text, both strings";
    let Some(value) = fields.get(NAME)? else { return Ok(Vec::new()) };
    let extra = value.as_array().ok_or_else(|| wrong(NAME, FORM, &value))?;
    if extra.len() > INFILL_EXTRA_MAX {
        let message = format!("{NAME} has {} entries; it may have {INFILL_EXTRA_MAX}", extra.len());
        return Err(ApiError::field(NAME, message));
    }
    let excerpt = |value: &Value<'_, '_>| {
        let object = value.as_object().ok_or_else(|| wrong(NAME, FORM, value))?;
        let fields = Fields::new(object)?;
        let filename = fields.string("filename")?.unwrap_or_else(|| "tmp".into()); // as llama-server
        let text = fields.string("text")?.ok_or_else(|| wrong(NAME, FORM, value))?;
        Ok(Excerpt { filename, text })
    };
    let place = |(index, value): (usize, Value<'_, '_>)| {
        let within = |error: ApiError| error.within(NAME, format_args!("{NAME}[{index}]"));
        excerpt(&value).map_err(within)
    };
    extra.iter().enumerate().map(place).collect()
}
