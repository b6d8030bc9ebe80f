//! The trace that a request belongs to: `traceparent` of the W3C's Trace Context.

/// A place in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace's id; not 0.
    pub trace: u128,
    /// The span's id; not 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads `traceparent`: `00-TRACE-SPAN-FLAGS` in lower-case hexadecimal digits. `None` if it is
    /// malformed: such a field counts as absent.
    pub fn read(field: &[u8]) -> Option<Self> {
        let field = str::from_utf8(field).ok()?;
        let (version, rest) = (number(field.get(..2)?)?, field.get(2..)?);
        // A later version may have more after the flags.
        let more = rest.get(53..)?;
        let may_follow = more.is_empty() || version > 0 && more.starts_with('-');
        if version == 0xff || !may_follow {
            return None;
        }
        let part = |from: usize, to| number(rest.get(from..to)?.strip_prefix('-')?);
        let (trace, span, flags) = (part(0, 33)?, part(33, 50)?, part(50, 53)?);
        let span = span as u64; // 16 digits
        (trace != 0 && span != 0).then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// A number in lower-case hexadecimal digits. `None` for a `+` or a capital letter.
fn number(digits: &str) -> Option<u128> {
    let good = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    good.then(|| u128::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

    #[test]
    fn the_example_of_the_standard_is_read() {
        let field = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext { trace: TRACE, span: SPAN, is_sampled: true };
        assert_eq!(TraceContext::read(field), Some(context));
        let not_sampled = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert!(!TraceContext::read(not_sampled).unwrap().is_sampled);
        let later = b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes";
        assert_eq!(TraceContext::read(later), Some(context));
    }

    #[test]
    fn a_malformed_field_counts_as_absent() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
            "+0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(TraceContext::read(&[0xff; 55]), None);
    }
}
