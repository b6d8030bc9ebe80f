//! A value of a JSON body, as simd-json parsed it.
//!
//! A number that simd-json would refuse or change is a marked string there
//! ([`digits`](crate::types::digits)). Here it is a number again: no reader takes it for a text, and
//! a double is rounded from all of its digits.

use simd_json::prelude::*;
use simd_json::tape;

use crate::types::digits::{marked, spelled};

/// A value of a body.
#[derive(Clone, Copy, Debug)]
pub struct Value<'tape, 'input>(tape::Value<'tape, 'input>);

impl<'tape, 'input> Value<'tape, 'input> {
    /// A parsed value.
    pub(super) fn new(value: tape::Value<'tape, 'input>) -> Self {
        Self(value)
    }

    /// The text of a number that only its text can hold.
    pub fn digits(&self) -> Option<&str> {
        self.0.as_str().and_then(marked)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_str().filter(|text| marked(text).is_none())
    }

    /// `true` or `false`.
    pub fn as_bool(&self) -> Option<bool> {
        self.0.as_bool()
    }

    /// A whole number.
    pub fn as_i32(&self) -> Option<i32> {
        self.0.as_i32()
    }

    /// A whole number.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.as_i64()
    }

    /// A whole number.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.as_u64()
    }

    /// A number that is written as a float, or that is too long for an integer.
    pub fn as_f64(&self) -> Option<f64> {
        self.0.as_f64().or_else(|| self.rounded())
    }

    /// Any number.
    pub fn cast_f64(&self) -> Option<f64> {
        self.0.cast_f64().or_else(|| self.rounded())
    }

    fn rounded(&self) -> Option<f64> {
        self.digits()?.parse().ok()
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<Array<'tape, 'input>> {
        self.0.as_array().map(Array)
    }

    /// The fields of an object.
    pub fn as_object(&self) -> Option<Object<'tape, 'input>> {
        self.0.as_object().map(Object)
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Whether it is `true` or `false`.
    pub fn is_bool(&self) -> bool {
        self.0.is_bool()
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        self.0.is_number() || self.digits().is_some()
    }

    /// Whether it is a string.
    pub fn is_str(&self) -> bool {
        self.as_str().is_some()
    }

    /// Whether it is an array.
    pub fn is_array(&self) -> bool {
        self.0.is_array()
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.is_object()
    }

    /// The value as JSON without spaces.
    pub fn encode(&self) -> String {
        spelled(self.0.encode())
    }

    /// The string as it was parsed: a text, or a marked number.
    pub(super) fn raw_str(&self) -> Option<&str> {
        self.0.as_str()
    }
}

/// The elements of an array.
#[derive(Clone, Copy)]
pub struct Array<'tape, 'input>(tape::Array<'tape, 'input>);

impl<'tape, 'input> Array<'tape, 'input> {
    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An element.
    pub fn get(&self, index: usize) -> Option<Value<'tape, 'input>> {
        self.0.get(index).map(Value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Value<'tape, 'input>> + use<'tape, 'input> {
        self.0.iter().map(Value)
    }
}

/// The fields of an object.
pub struct Object<'tape, 'input>(tape::Object<'tape, 'input>);

impl<'tape, 'input> Object<'tape, 'input> {
    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names and values, in their order.
    pub fn iter(
        &self,
    ) -> impl Iterator<Item = (&'input str, Value<'tape, 'input>)> + use<'tape, 'input> {
        self.0.iter().map(|(name, value)| (name, Value(value)))
    }
}
