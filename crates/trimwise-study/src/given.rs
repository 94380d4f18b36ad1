//! Values of a request as they were written, each parsed once, where the request enters.
//!
//! A value that cannot be parsed stays in the request with the reason, so that a check reports all mistakes at once.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trimwise::failure::{Failure, Key, Mistake};
use trimwise::policy::PolicyId;
use trimwise::units::Utilization;

use crate::input::usual_name;

/// A type that requests hold as [`Given`].
pub trait Parse: Sized {
    /// Parses a value; the mistake does not name the field.
    ///
    /// # Errors
    ///
    /// If the text is no such value.
    fn parse(text: &str) -> Result<Self, Mistake>;
}

impl Parse for Utilization {
    fn parse(text: &str) -> Result<Self, Mistake> {
        text.parse().map_err(|_| Mistake::default().expected("a value from 0 to 100"))
    }
}

impl Parse for PolicyId {
    fn parse(text: &str) -> Result<Self, Mistake> {
        Self::asked(&usual_name(text)).map_err(Mistake::that)
    }
}

/// A value as it was written, and what it means or why it means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    text: String,
    value: Result<T, Box<Mistake>>,
}

impl<T: fmt::Display> Given<T> {
    /// Returns a value that nobody wrote, in its usual spelling.
    pub fn of(value: T) -> Self {
        Self { text: value.to_string(), value: Ok(value) }
    }
}

impl<T> Given<T> {
    /// Returns the value, or what is wrong with it, which does not name the field.
    pub fn value(&self) -> Result<&T, &Mistake> {
        self.value.as_ref().map_err(|mistake| &**mistake)
    }

    /// Returns the value of a field.
    ///
    /// # Errors
    ///
    /// The text could not be parsed; the failure names the field.
    pub fn get(&self, key: impl Into<Key>) -> Result<&T, Failure> {
        self.value().map_err(|why| Mistake { asked: Mistake::of(key, self).asked, ..why.clone() }.fail())
    }
}

impl<T: Parse> From<&str> for Given<T> {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), value: T::parse(text).map_err(Box::new) }
    }
}

impl<T> fmt::Display for Given<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Serialize for Given<T> {
    /// Writes a number as such.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.text.parse::<u64>() {
            Ok(number) => to.serialize_u64(number),
            Err(_) => to.serialize_str(&self.text),
        }
    }
}

struct TextOrNumber<T>(PhantomData<T>);

impl<T: Parse> Visitor<'_> for TextOrNumber<T> {
    type Value = Given<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Given<T>, E> {
        Ok(text.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Given<T>, E> {
        Ok(number.to_string().as_str().into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Given<T>, E> {
        Ok(number.to_string().as_str().into())
    }
}

impl<'de, T: Parse> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrNumber(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_as_it_was_written_and_a_wrong_one_is_told_with_its_field() {
        for (json, failure) in [
            ("80", None),
            ("101", Some("--aged 101: expected a value from 0 to 100")),
            ("-1", Some("--aged -1: expected a value from 0 to 100")),
            ("\"full\"", Some("--aged full: expected a value from 0 to 100")),
        ] {
            let given: Given<Utilization> = serde_json::from_str(json).unwrap();
            let got =
                given.get("aged_percent").map(|got| got.percent()).map_err(|failure| failure.to_string());
            assert_eq!(got, failure.map_or(Ok(80), |failure| Err(failure.to_owned())));
            let again: Given<Utilization> =
                serde_json::from_value(serde_json::to_value(&given).unwrap()).unwrap();
            assert_eq!(again, given);
        }
    }
}
