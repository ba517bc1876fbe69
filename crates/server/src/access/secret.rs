//! Secrets: texts that are stored and used, and never printed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use store::machine::Machine;

/// What every secret begins with, as libraries for Standard Webhooks want it.
const PREFIX: &str = "whsec_";

/// What webhooks are signed with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SigningSecret(String);

impl SigningSecret {
    /// A new secret, drawn at random.
    pub fn draw(machine: &dyn Machine) -> Self {
        let bytes: Vec<u8> = (0..4).flat_map(|_| machine.random().to_be_bytes()).collect();
        Self(format!("{PREFIX}{}", STANDARD.encode(bytes)))
    }

    /// The text, for the one to whom it is told once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The bytes that sign. None, if the record was changed by hand into no secret.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.0.strip_prefix(PREFIX)?).ok()
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SigningSecret")
    }
}
