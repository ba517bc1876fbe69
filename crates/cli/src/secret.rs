//! A text that is never shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A secret, as it was typed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TypedSecret(String);

impl TypedSecret {
    /// What it is: for those who need it, and no log.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for TypedSecret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for TypedSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TypedSecret")
    }
}
