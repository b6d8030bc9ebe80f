//! The ids of tool calls in the forms that some templates want.

use super::conversation::Message;

/// Shortens a call's id: Mistral's templates accept only ids of nine letters and digits. The result
/// depends only on the id, so that a call and its result still match.
pub(super) fn short_id(id: &str) -> String {
    const LENGTH: usize = 9;
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // The hash is FNV-1a.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digit = |place: u32| ALPHABET[(hash / 62u64.pow(place) % 62) as usize] as char;
    (0..LENGTH as u32).map(digit).collect()
}

/// Gives calls the ids that Kimi K2 expects, `functions.name:0`, with their number in the
/// conversation. Its template shows a call's id instead of its name.
pub(super) fn name_calls(messages: &mut [Message]) {
    let mut ids: Vec<(String, String)> = Vec::new();
    for message in messages {
        for call in &mut message.tool_calls {
            let id = format!("functions.{}:{}", call.name, ids.len());
            ids.push((std::mem::replace(&mut call.id, id.clone()), id));
        }
        let answered = message.tool_call_id.as_mut();
        // The last call with this id: a client may use an id again.
        let answered = answered.and_then(|id| {
            let (_, new) = ids.iter().rev().find(|(old, _)| old == id)?;
            Some((id, new))
        });
        if let Some((id, new)) = answered {
            id.clone_from(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_long_as_mistral_wants_them() {
        assert_eq!(short_id("call00001"), "call00001");
        let (one, other) =
            (short_id("call_0123456789abcdef_0_0"), short_id("call_0123456789abcdef_0_1"));
        assert_ne!(one, other);
        for id in [one, other, short_id(""), short_id("a-b-c-d-e")] {
            assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        }
    }
}
