//! Paths, and what is asked in them.

use std::fmt::Write;

/// A path with its query.
#[derive(Clone)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// The path `/v1/<list>/<name><rest>`, with the name encoded.
    pub(super) fn of(list: &str, name: &str, rest: &str) -> Self {
        Self(format!("/v1/{list}/{}{rest}", Encoded(name)))
    }

    /// The same with `/<list>/<name><rest>` behind it, with the name encoded.
    pub(super) fn below(mut self, list: &str, name: &str, rest: &str) -> Self {
        write!(self.0, "/{list}/{}{rest}", Encoded(name)).expect("a String takes everything");
        self
    }

    /// With one more parameter, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        let Some(value) = value else { return self };
        let sign = if self.0.contains('?') { '&' } else { '?' };
        let value = value.to_string();
        write!(self.0, "{sign}{name}={}", Encoded(&value)).expect("a String takes everything");
        self
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text as a part of a path or a query.
struct Encoded<'a>(&'a str);

impl std::fmt::Display for Encoded<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.write_char(byte.into())?;
            } else {
                write!(out, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_cannot_leave_their_place() {
        let path = Path::of("triggers", "a/../b?c", "/run");
        assert_eq!(path.as_str(), "/v1/triggers/a%2F..%2Fb%3Fc/run");
        let path = Path::of("rings", "a/b", "").below("members", "c/d", "/e");
        assert_eq!(path.as_str(), "/v1/rings/a%2Fb/members/c%2Fd/e");
        let path = Path::new("/x").with("one", Some("1&2")).with("none", None::<u8>);
        assert_eq!(path.with("two", Some(2)).as_str(), "/x?one=1%262&two=2");
    }
}
