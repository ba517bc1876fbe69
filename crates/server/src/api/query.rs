//! Reading the query of a request: each parameter once, but for labels, and none that nobody knows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use engine::limits::{LABELS_MAX, LIST_ROWS_DEFAULT, LIST_ROWS_MAX};
use engine::trigger::check_label;

use super::problem::{ApiError, ApiResult};

/// The parameter that may be given several times.
pub(super) const LABEL: &str = "label";

/// What stands behind the question mark.
#[derive(Debug, Clone)]
pub(super) struct Query(BTreeMap<String, String>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        let query = parts.extensions.remove::<Self>();
        query.ok_or_else(|| ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

impl Query {
    /// Reads it; `known` are the parameters that there are.
    pub(super) fn of(uri: &Uri, known: &[&str]) -> ApiResult<Self> {
        let mut query = BTreeMap::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name);
            if !known.contains(&name.as_str()) {
                let why = match known {
                    [] => "there are no parameters here".to_owned(),
                    _ => format!("it is not known here; there are {}", known.join(", ")),
                };
                return Err(ApiError::parameter(&name, why));
            }
            match query.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(decoded(value));
                }
                // Several labels may be one parameter or several.
                Entry::Occupied(mut place) if place.key() == LABEL => {
                    place.get_mut().push(',');
                    place.get_mut().push_str(&decoded(value));
                }
                Entry::Occupied(place) => {
                    return Err(ApiError::parameter(place.key(), "it is given twice"));
                }
            }
        }
        Ok(Self(query))
    }

    /// A parameter as it stands; one without a value is as if it were not there.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A parameter, read.
    pub(super) fn get<T: FromStr<Err: Display>>(&self, name: &str) -> ApiResult<Option<T>> {
        let read = |text: &str| {
            text.parse().map_err(|why| ApiError::parameter(name, format!("{why}: {text:?}")))
        };
        self.text(name).map(read).transpose()
    }

    /// A whole number between 1 and `most`, or the usual one.
    pub(super) fn number(&self, name: &str, usual: usize, most: usize) -> ApiResult<usize> {
        let number = match self.text(name) {
            Some(text) => text.parse().unwrap_or(0),
            None => usual,
        };
        if (1..=most).contains(&number) {
            return Ok(number);
        }
        Err(ApiError::parameter(name, format!("it is a whole number from 1 to {most}")))
    }

    /// The labels that are asked for, each with its key and its value.
    pub(super) fn labels(&self) -> ApiResult<Vec<(&str, &str)>> {
        let Some(text) = self.text(LABEL) else { return Ok(Vec::new()) };
        let bad = |why: String| ApiError::parameter(LABEL, why);
        let labels = text.split(',').map(|label| {
            let pair = label.split_once('=');
            let (key, value) =
                pair.ok_or_else(|| bad("write it like label=team=billing".to_owned()))?;
            check_label(key, value).map_err(bad)?;
            Ok::<_, ApiError>((key, value))
        });
        let labels: Vec<_> = labels.collect::<Result<_, _>>()?;
        if labels.len() > LABELS_MAX {
            return Err(bad(format!("at most {LABELS_MAX} labels are asked for at a time")));
        }
        Ok(labels)
    }

    /// How many rows a list has.
    pub(super) fn rows(&self) -> ApiResult<usize> {
        self.number("limit", LIST_ROWS_DEFAULT, LIST_ROWS_MAX)
    }

    /// Some of a list of words, with commas between them.
    pub(super) fn words<T: Copy>(
        &self,
        name: &str,
        words: &[T],
        spell: impl Fn(T) -> &'static str,
    ) -> ApiResult<Vec<T>> {
        let Some(text) = self.text(name) else { return Ok(Vec::new()) };
        let find = |text: &str| words.iter().find(|word| spell(**word) == text).copied();
        let found: Option<Vec<T>> = text.split(',').map(|text| find(text.trim())).collect();
        found.ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|word| spell(*word)).collect();
            let known = known.join(", ");
            ApiError::parameter(name, format!("it is one of {known}, or several with commas"))
        })
    }

    /// One of a list of words.
    pub(super) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[T],
        spell: impl Fn(T) -> &'static str,
    ) -> ApiResult<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some(word) = words.iter().find(|word| spell(**word) == text) {
            return Ok(Some(*word));
        }
        let known: Vec<_> = words.iter().map(|word| spell(*word)).collect();
        Err(ApiError::parameter(name, format!("it is one of {}", known.join(", "))))
    }
}

/// A text without its percent signs and plus signs; what is no UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits = [ahead.next(), ahead.next()].map(|digit| digit.and_then(hex));
        match (byte, digits) {
            (b'%', [Some(high), Some(low)]) => {
                bytes.push(high << 4 | low);
                rest = ahead;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> ApiResult<Query> {
        Query::of(&format!("/x?{text}").parse().unwrap(), &["limit", "name"])
    }

    #[test]
    fn parameters_are_decoded_and_each_is_given_once() {
        let read = query("name=a%2Fb+c%C3%A4%zz&limit=7&").unwrap();
        assert_eq!(read.text("name"), Some("a/b cä%zz"));
        assert_eq!(read.rows().ok(), Some(7));
        assert!(query("limit=1&limit=2").is_err());
        assert!(query("lmiit=1").is_err());
    }

    #[test]
    fn rows_are_taken_up_to_the_limit_and_refused_one_past_it() {
        let rows = |text: &str| query(text).unwrap().rows().ok();
        assert_eq!(rows(""), Some(LIST_ROWS_DEFAULT));
        assert_eq!(rows("limit="), Some(LIST_ROWS_DEFAULT));
        assert_eq!(rows("limit=500"), Some(LIST_ROWS_MAX));
        for bad in ["limit=501", "limit=0", "limit=-1", "limit=many"] {
            assert_eq!(rows(bad), None, "{bad}");
        }
    }
}
