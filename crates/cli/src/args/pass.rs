//! What lets one into a store on the network, beside its URL.

use std::path::PathBuf;

use store::StoreUrl;

use crate::connect::read_key;
use crate::exit::Ending;
use crate::secret::TypedSecret;

#[derive(Debug, clap::Args)]
pub(crate) struct PassArgs {
    /// Trust the issuers in this PEM file as well
    #[arg(long, value_name = "FILE", env = "WATCHBELL_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// The key that a Watchbell server as store lets in
    #[arg(long, value_name = "KEY", env = "WATCHBELL_KEY", hide_env_values = true)]
    pub(crate) key: Option<TypedSecret>,
    /// A file with that key
    #[arg(long, value_name = "FILE", env = "WATCHBELL_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

impl PassArgs {
    /// The store at this URL, as one gets into it.
    pub(crate) fn store(&self, url: &str) -> Result<StoreUrl, Ending> {
        let key = match (&self.key, &self.key_file) {
            (Some(key), None) => Some(store::StoreSecret::new(key.reveal())),
            (None, Some(path)) => Some(store::StoreSecret::new(read_key(path)?)),
            (Some(_), Some(_)) => {
                return Err(Ending::wrong_input(
                    "there are two keys: give --key or --key-file, not both",
                ));
            }
            (None, None) => None,
        };
        Ok(StoreUrl::parse(url)?.trusting(self.ca.as_deref()).with_key(key))
    }
}
