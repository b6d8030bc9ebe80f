//! The server's sampling for requests that do not say.

/// The fields of [`Sampling`](super::Sampling) that an operator or a model's file may set, as requests name them.
pub const SAMPLING_FIELDS: [&str; 8] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
];

/// Values for the fields of [`Sampling`](super::Sampling) that a request leaves out. `None` leaves a field to the API.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// See [`Sampling::temperature`](super::Sampling::temperature).
    pub temperature: Option<f32>,
    /// See [`Sampling::top_k`](super::Sampling::top_k).
    pub top_k: Option<u32>,
    /// See [`Sampling::top_p`](super::Sampling::top_p).
    pub top_p: Option<f32>,
    /// See [`Sampling::min_p`](super::Sampling::min_p).
    pub min_p: Option<f32>,
    /// See [`Sampling::repeat_penalty`](super::Sampling::repeat_penalty).
    pub repeat_penalty: Option<f32>,
    /// See [`Sampling::repeat_last_n`](super::Sampling::repeat_last_n).
    pub repeat_last_n: Option<u32>,
    /// See [`Sampling::presence_penalty`](super::Sampling::presence_penalty).
    pub presence_penalty: Option<f32>,
    /// See [`Sampling::frequency_penalty`](super::Sampling::frequency_penalty).
    pub frequency_penalty: Option<f32>,
}

/// Which of [`SAMPLING_FIELDS`] a request gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given(u8);

const _: () = assert!(SAMPLING_FIELDS.len() <= u8::BITS as usize);

impl Given {
    /// Notes that a request gives the field of this number.
    pub fn add(&mut self, field: usize) {
        self.0 |= 1 << field;
    }

    fn has(self, field: usize) -> bool {
        self.0 >> field & 1 == 1
    }
}

impl SamplingDefaults {
    /// These values, and those of `other` where there is none.
    pub fn or(self, other: Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repeat_penalty: self.repeat_penalty.or(other.repeat_penalty),
            repeat_last_n: self.repeat_last_n.or(other.repeat_last_n),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
        }
    }

    /// Those for the fields that a request leaves out.
    pub fn without(self, given: Given) -> Self {
        fn left<T>(value: Option<T>, is_given: bool) -> Option<T> {
            value.filter(|_| !is_given)
        }
        Self {
            temperature: left(self.temperature, given.has(0)),
            top_k: left(self.top_k, given.has(1)),
            top_p: left(self.top_p, given.has(2)),
            min_p: left(self.min_p, given.has(3)),
            repeat_penalty: left(self.repeat_penalty, given.has(4)),
            repeat_last_n: left(self.repeat_last_n, given.has(5)),
            presence_penalty: left(self.presence_penalty, given.has(6)),
            frequency_penalty: left(self.frequency_penalty, given.has(7)),
        }
    }

    /// The value of a field as JSON; `None` if there is none.
    pub fn json(&self, field: &str) -> Option<String> {
        let float = |value: Option<f32>| value.map(|value| format!("{value:?}"));
        let whole = |value: Option<u32>| value.map(|value| value.to_string());
        match field {
            "temperature" => float(self.temperature),
            "top_k" => whole(self.top_k),
            "top_p" => float(self.top_p),
            "min_p" => float(self.min_p),
            "repeat_penalty" => float(self.repeat_penalty),
            "repeat_last_n" => whole(self.repeat_last_n),
            "presence_penalty" => float(self.presence_penalty),
            "frequency_penalty" => float(self.frequency_penalty),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sampling;
    use super::*;

    const ALL: SamplingDefaults = SamplingDefaults {
        temperature: Some(0.5),
        top_k: Some(3),
        top_p: Some(0.25),
        min_p: Some(0.125),
        repeat_penalty: Some(1.5),
        repeat_last_n: Some(7),
        presence_penalty: Some(-1.0),
        frequency_penalty: Some(1.25),
    };

    #[test]
    fn each_field_stands_under_its_name_and_number() {
        for (number, name) in SAMPLING_FIELDS.into_iter().enumerate() {
            assert!(ALL.json(name).is_some(), "{name}");
            let mut given = Given::default();
            given.add(number);
            let left = ALL.without(given);
            assert_eq!(left.json(name), None, "{name}");
            let others = SAMPLING_FIELDS.iter().filter(|other| left.json(other).is_some());
            assert_eq!(others.count(), SAMPLING_FIELDS.len() - 1, "{name}");
            assert_eq!(left.or(ALL), ALL, "{name}");
        }
        assert_eq!(ALL.json("seed"), None);
        assert_eq!(ALL.json("presence_penalty").unwrap(), "-1.0");
    }

    #[test]
    fn fields_without_a_value_stay() {
        let mut sampling = Sampling::default();
        sampling.set(SamplingDefaults::default());
        assert_eq!(sampling, Sampling::default());
        sampling.set(ALL);
        let expected = Sampling {
            temperature: 0.5,
            top_k: 3,
            top_p: 0.25,
            min_p: 0.125,
            repeat_penalty: 1.5,
            repeat_last_n: 7,
            presence_penalty: -1.0,
            frequency_penalty: 1.25,
            ..Sampling::default()
        };
        assert_eq!(sampling, expected);
    }
}
