//! From what was typed to a client.

use std::io::Read;
use std::path::Path;

use client::Client;
use engine::limits::KEY_FILE_BYTES_MAX;

use crate::args::trigger::{CredentialArgs, ServerArgs};
use crate::config;
use crate::exit::Ending;

impl ServerArgs {
    /// A client of the server that is meant, with the key that was given.
    pub(crate) fn client(&self) -> Result<Client, Ending> {
        self.credentials.client(&self.server)
    }
}

impl CredentialArgs {
    /// A client of this server, with the key that was given.
    pub(crate) fn client(&self, server: &str) -> Result<Client, Ending> {
        let mut builder = Client::builder(server);
        match (&self.key, &self.key_file) {
            (Some(key), None) => builder = builder.key(key.reveal()),
            (None, Some(path)) => builder = builder.key(read_key(path)?),
            (Some(_), Some(_)) => {
                return Err(Ending::wrong_input(
                    "there are two keys: give --key or --key-file, not both",
                ));
            }
            (None, None) => {}
        }
        if let Some(name) = &self.project {
            builder = builder.project(name);
        }
        if let Some(path) = &self.ca {
            builder = builder.ca_file(path);
        }
        Ok(builder.build()?)
    }
}

/// The key in a file.
pub(crate) fn read_key(path: &Path) -> Result<String, Ending> {
    let wrong = |why: &dyn std::fmt::Display| {
        Ending::wrong_input(format!("--key-file {}: {why}", path.display()))
    };
    let mut text = String::new();
    let mut file = std::fs::File::open(path).map_err(|why| wrong(&why))?;
    config::warn_if_shared(&file, path);
    let read = file.by_ref().take(KEY_FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|why| wrong(&why))?;
    Ok(text.trim().to_owned())
}
