//! Reads the options of llama.cpp's samplers, with llama-server's names, defaults and meanings.

use crate::api::value::Value;

use super::error::ApiError;
use super::json::{Fields, wrong};
use crate::limits::{SAMPLERS_MAX, SEQUENCE_TOKENS_MAX};
use crate::types::Sampling;
use crate::types::chain::{Chain, DryOptions, Mirostat, SamplerKind};

/// Reads the sampler options, except DRY's breakers. Returns `None` if the request leaves all of them as they are.
/// [`unless_fast`] then compares them with the whole sampling.
pub fn read_chain(fields: &Fields<'_, '_>) -> Result<Option<Chain>, ApiError> {
    Ok(Some(read_all(fields)?).filter(|chain| *chain != Chain::default()))
}

/// Reads all options into a chain of llama.cpp's samplers.
fn read_all(fields: &Fields<'_, '_>) -> Result<Chain, ApiError> {
    let number = |name, range, default: f32| -> Result<f32, ApiError> {
        Ok(fields.number(name, range)?.map_or(default, |value| value as f32))
    };
    let min_keep = fields.integer("min_keep", 0..=i64::from(i32::MAX))?;
    let defaults = Chain::default();
    let chain = Chain {
        samplers: read_samplers(fields)?.unwrap_or(defaults.samplers),
        min_keep: min_keep.unwrap_or(0) as u32, // in range
        typical_p: number("typical_p", 0.0..=1.0, defaults.typical_p)?,
        top_n_sigma: number("top_n_sigma", -1.0..=100.0, defaults.top_n_sigma)?,
        xtc_probability: number("xtc_probability", 0.0..=1.0, defaults.xtc_probability)?,
        xtc_threshold: number("xtc_threshold", 0.0..=1.0, defaults.xtc_threshold)?,
        dynatemp_range: number("dynatemp_range", 0.0..=2.0, defaults.dynatemp_range)?,
        dynatemp_exponent: number("dynatemp_exponent", 0.0..=10.0, defaults.dynatemp_exponent)?,
        dry: read_dry(fields)?,
        mirostat: read_mirostat(fields)?,
        spellings: None,
    };
    if chain.mirostat.is_none() {
        return Ok(chain);
    }
    // Mirostat replaces all samplers that cut tokens off.
    let samplers = [SamplerKind::Penalties, SamplerKind::Dry, SamplerKind::Temperature];
    Ok(Chain { samplers: samplers.into_iter().collect(), dynatemp_range: 0.0, ..chain })
}

fn read_dry(fields: &Fields<'_, '_>) -> Result<DryOptions, ApiError> {
    let defaults = DryOptions::default();
    let multiplier = fields.number("dry_multiplier", 0.0..=100.0)?;
    let base = fields.number("dry_base", 1.0..=100.0)?;
    let allowed_length = fields.integer("dry_allowed_length", 0..=SEQUENCE_TOKENS_MAX as i64)?;
    let last_n = fields.integer("dry_penalty_last_n", -1..=i64::from(i32::MAX))?;
    Ok(DryOptions {
        multiplier: multiplier.map_or(defaults.multiplier, |value| value as f32),
        base: base.map_or(defaults.base, |value| value as f32),
        allowed_length: allowed_length.map_or(defaults.allowed_length, |n| n as u32), // in range
        // -1 means the whole text.
        last_n: last_n.map_or(defaults.last_n, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        breakers: defaults.breakers,
    })
}

fn read_mirostat(fields: &Fields<'_, '_>) -> Result<Option<Mirostat>, ApiError> {
    let version = fields.integer("mirostat", 0..=2)?.unwrap_or(0) as u8; // in range
    let tau = fields.number("mirostat_tau", 0.0..=100.0)?.unwrap_or(5.0) as f32;
    let eta = fields.number("mirostat_eta", 0.0..=10.0)?.unwrap_or(0.1) as f32;
    Ok((version > 0).then_some(Mirostat { version, tau, eta }))
}

/// The chain without the samplers that change nothing. Returns `None` if the decode lane's fast sampler gives the same
/// result: only its own samplers change anything, in its own order. Then those that the chain leaves out are switched
/// off in `sampling`.
pub fn unless_fast(mut chain: Chain, sampling: &mut Sampling) -> Option<Chain> {
    const FAST: [SamplerKind; 5] = [
        SamplerKind::Penalties,
        SamplerKind::TopK,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::Temperature,
    ];
    let all = chain.samplers.iter().copied();
    chain.samplers = all.filter(|kind| chain.is_on(*kind, sampling)).collect();
    let has = |kind| chain.samplers.contains(&kind);
    let mut fast = FAST.iter();
    let in_order = chain.samplers.iter().all(|kind| fast.any(|next| next == kind));
    let moves = chain.dynatemp_range > 0.0 && has(SamplerKind::Temperature);
    if !in_order || moves || chain.min_keep > 1 || chain.mirostat.is_some() {
        return Some(chain);
    }
    let off = Sampling::default();
    if !has(SamplerKind::Penalties) {
        sampling.repeat_penalty = off.repeat_penalty;
        sampling.presence_penalty = off.presence_penalty;
        sampling.frequency_penalty = off.frequency_penalty;
    }
    if !has(SamplerKind::TopK) {
        sampling.top_k = off.top_k;
    }
    if !has(SamplerKind::TopP) {
        sampling.top_p = off.top_p;
    }
    if !has(SamplerKind::MinP) {
        sampling.min_p = off.min_p;
    }
    if !has(SamplerKind::Temperature) {
        sampling.temperature = off.temperature;
    }
    None
}

/// Reads `samplers`, their order: an array of names or a string of letters.
fn read_samplers(
    fields: &Fields<'_, '_>,
) -> Result<Option<heapless::Vec<SamplerKind, SAMPLERS_MAX>>, ApiError> {
    const FORMS: &str = "an array of penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, \
                         xtc, temperature and infill, or a string of their letters edskypmxti";
    let Some(value) = fields.get("samplers")? else { return Ok(None) };
    let mut samplers = heapless::Vec::<SamplerKind, SAMPLERS_MAX>::new();
    let mut push = |kind: Option<SamplerKind>, given: &Value<'_, '_>| {
        let kind = kind.ok_or_else(|| wrong("samplers", FORMS, given))?;
        if samplers.contains(&kind) {
            return Err(ApiError::field("samplers", "samplers has an entry twice; once is enough"));
        }
        samplers.push(kind).expect("there are as many places as samplers");
        Ok(())
    };
    if let Some(letters) = value.as_str() {
        for letter in letters.chars() {
            push(sampler_by_letter(letter), &value)?;
        }
    } else if let Some(names) = value.as_array() {
        for name in names.iter() {
            push(name.as_str().and_then(sampler_by_name), &name)?;
        }
    } else {
        return Err(wrong("samplers", FORMS, &value));
    }
    Ok(Some(samplers))
}

/// Finds a sampler by llama.cpp's name, with or without `_` and `-` between its parts.
fn sampler_by_name(name: &str) -> Option<SamplerKind> {
    let plain = name.to_ascii_lowercase().replace(['_', '-'], "");
    Some(match plain.as_str() {
        "penalties" => SamplerKind::Penalties,
        "dry" => SamplerKind::Dry,
        "topnsigma" => SamplerKind::TopNSigma,
        "topk" => SamplerKind::TopK,
        "typp" | "typ" | "typical" | "typicalp" => SamplerKind::Typical,
        "topp" | "nucleus" => SamplerKind::TopP,
        "minp" => SamplerKind::MinP,
        "xtc" => SamplerKind::Xtc,
        "temperature" | "temp" => SamplerKind::Temperature,
        "infill" => SamplerKind::Infill,
        _ => return None,
    })
}

/// Finds a sampler by llama.cpp's letter.
fn sampler_by_letter(letter: char) -> Option<SamplerKind> {
    Some(match letter {
        'e' => SamplerKind::Penalties,
        'd' => SamplerKind::Dry,
        's' => SamplerKind::TopNSigma,
        'k' => SamplerKind::TopK,
        'y' => SamplerKind::Typical,
        'p' => SamplerKind::TopP,
        'm' => SamplerKind::MinP,
        'x' => SamplerKind::Xtc,
        't' => SamplerKind::Temperature,
        'i' => SamplerKind::Infill,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;
    use crate::api::request::read_sampling;

    /// Returns the chain of a body, and OpenAI's default sampling as it changed them.
    fn read(body: &str) -> Result<(Option<Chain>, Sampling), ApiError> {
        read_object(&mut body.as_bytes().to_vec(), |fields| {
            let mut sampling = read_sampling(fields, Sampling::default())?;
            let chain = read_chain(fields)?;
            Ok((chain.and_then(|chain| unless_fast(chain, &mut sampling)), sampling))
        })
    }

    fn chain(body: &str) -> Chain {
        read(body).unwrap().0.expect("not for the fast route")
    }

    #[test]
    fn what_changes_nothing_takes_the_fast_route() {
        for body in [
            "{}",
            r#"{"temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.1,"presence_penalty":1}"#,
            r#"{"typical_p":1.0,"top_n_sigma":-1,"min_keep":0,"xtc_probability":0}"#,
            r#"{"xtc_probability":1,"xtc_threshold":0.51,"dry_multiplier":0.0,"dry_base":1.75}"#,
            r#"{"mirostat":0,"mirostat_tau":5.0,"dynatemp_range":0,"dynatemp_exponent":1}"#,
            // llama-server's whole default order.
            r#"{"samplers":["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc",
                "temperature"],"top_k":40,"top_p":0.9,"temperature":0.7}"#,
            r#"{"samplers":"edskypmxt","min_p":0.1,"repeat_penalty":1.1}"#,
        ] {
            assert_eq!(read(body).expect(body).0, None, "{body}");
        }
    }

    #[test]
    fn the_fast_route_leaves_out_what_the_order_leaves_out() {
        let all = r#""top_k":40,"top_p":0.9,"min_p":0.1,"temperature":0.5,"frequency_penalty":1"#;
        let (chain, s) = read(&format!(r#"{{"samplers":["top_k","min_p"],{all}}}"#)).unwrap();
        assert_eq!(chain, None);
        assert_eq!(s, Sampling { top_k: 40, min_p: 0.1, ..Sampling::default() });
        let (chain, s) = read(&format!(r#"{{"samplers":"ept",{all}}}"#)).unwrap();
        let (temperature, top_p, frequency_penalty) = (0.5, 0.9, 1.0);
        let expected = Sampling { temperature, top_p, frequency_penalty, ..Sampling::default() };
        assert_eq!((chain, s), (None, expected));
        let (chain, s) = read(&format!(r#"{{"samplers":[],{all}}}"#)).unwrap();
        assert_eq!((chain, s), (None, Sampling::default()));
    }

    #[test]
    fn another_order_is_a_chain_without_what_changes_nothing() {
        use SamplerKind::{MinP, Temperature, TopK, TopP, Typical, Xtc};
        let order = |body| chain(body).samplers;
        assert_eq!(order(r#"{"samplers":"tk","top_k":4,"temperature":0.5}"#), [Temperature, TopK]);
        assert_eq!(order(r#"{"samplers":["min-p","topP"],"top_p":0.5,"min_p":0.1}"#), [MinP, TopP]);
        assert_eq!(order(r#"{"typical_p":0.9,"top_k":4}"#), [TopK, Typical]);
        assert_eq!(order(r#"{"xtc_probability":0.5,"temperature":0}"#), [Xtc, Temperature]);
        assert_eq!(order(r#"{"min_keep":2,"top_p":0.9}"#), [TopP]);
        assert_eq!(order(r#"{"dynatemp_range":0.5}"#), [Temperature]);
    }

    #[test]
    fn mirostat_takes_the_place_of_all_that_cuts_off() {
        let body = r#"{"mirostat":2,"mirostat_tau":3,"top_k":5,"typical_p":0.5,
            "temperature":0.7,"dynatemp_range":0.5,"presence_penalty":1,"samplers":["xtc"]}"#;
        let chain = chain(body);
        assert_eq!(chain.samplers, [SamplerKind::Penalties, SamplerKind::Temperature]);
        assert_eq!(chain.mirostat, Some(Mirostat { version: 2, tau: 3.0, eta: 0.1 }));
        assert_eq!(chain.dynatemp_range, 0.0);
    }

    #[test]
    fn dry_has_llama_cpps_defaults() {
        let dry = chain(r#"{"dry_multiplier":0.8}"#).dry;
        assert_eq!((dry.base, dry.allowed_length, dry.last_n), (1.75, 2, 64));
        let body = r#"{"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,
            "dry_penalty_last_n":-1}"#;
        let dry = chain(body).dry;
        assert_eq!((dry.multiplier, dry.base, dry.allowed_length), (0.8, 2.0, 3));
        assert_eq!(dry.last_n, u32::MAX, "the whole text");
    }

    #[test]
    fn what_is_wrong_names_the_field_and_what_would_be_right() {
        for (field, value, says) in [
            ("typical_p", "1.5", "a number from 0 to 1, not 1.5"),
            ("typical_p", "\"a\"", "a number from 0 to 1, not the string"),
            ("typical_p", "[]", "a number from 0 to 1, not an array"),
            ("top_n_sigma", "-2", "a number from -1 to 100"),
            ("xtc_probability", "-0.1", "a number from 0 to 1"),
            ("xtc_threshold", "true", "a number from 0 to 1, not true"),
            ("dynatemp_range", "3", "a number from 0 to 2"),
            ("dynatemp_exponent", "-1", "a number from 0 to 10"),
            ("mirostat", "3", "a whole number from 0 to 2"),
            ("mirostat_tau", "-1", "a number from 0 to 100"),
            ("mirostat_eta", "{}", "a number from 0 to 10, not an object"),
            ("dry_multiplier", "1e39", "a number from 0 to 100"),
            ("dry_base", "0.5", "a number from 1 to 100"),
            ("dry_allowed_length", "-1", "a whole number from 0 to 1048576"),
            ("dry_penalty_last_n", "-2", "a whole number from -1 to 2147483647"),
            ("min_keep", "-1", "a whole number from 0"),
            ("samplers", "\"kq\"", "edskypmxti, not the string \"kq\""),
            ("samplers", "[\"top_k\",\"top_q\"]", "not the string \"top_q\""),
            ("samplers", "[1]", "edskypmxti, not 1"),
            ("samplers", "7", "edskypmxti, not 7"),
            ("samplers", "\"kpk\"", "an entry twice"),
        ] {
            let body = format!("{{\"{field}\":{value}}}");
            let error = read(&body).map(|_| ()).expect_err(&body);
            assert_eq!((error.status, error.param), (400, Some(field)), "{body}");
            assert!(error.message.contains(says), "{body}: {}", error.message);
        }
        let error = read(r#"{"mirostat":1,"mirostat":2}"#).map(|_| ()).expect_err("twice");
        assert_eq!(error.message, "mirostat is given twice");
    }
}
