//! Hints: something below a prefix has changed; look when it suits you.
//!
//! A hint carries nothing and promises nothing. It may be lost, merged with others or given again;
//! whoever waits for one also looks by itself from time to time. So a slow watcher costs a writer
//! nothing: a bell that is already ringing is not rung twice.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Key;

/// The waiting end.
#[derive(Debug)]
pub struct Hints(Arc<Notify>);

impl Hints {
    /// Waits for the next hint: at once if something changed since the last call.
    pub async fn changed(&mut self) {
        self.0.notified().await;
    }
}

/// The ringing end: who watches what. Shared by the adapters that see every change themselves.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<(String, Weak<Notify>)>>);

impl Watchers {
    /// A new watcher of everything below `prefix`. It is forgotten when its [`Hints`] are dropped.
    pub fn watch(&self, prefix: &str) -> Hints {
        let bell = Arc::new(Notify::new());
        let mut watchers = self.0.lock();
        watchers.retain(|(_, bell)| bell.strong_count() > 0);
        watchers.push((prefix.to_owned(), Arc::downgrade(&bell)));
        Hints(bell)
    }

    /// Rings for everyone who watches one of these keys. Never waits for a watcher.
    pub fn notify<'a>(&self, changed: &(impl Iterator<Item = &'a Key> + Clone)) {
        let watchers = self.0.lock();
        for (prefix, bell) in watchers.iter() {
            if changed.clone().any(|key| key.as_bytes().starts_with(prefix.as_bytes()))
                && let Some(bell) = bell.upgrade()
            {
                bell.notify_one();
            }
        }
    }

    /// Rings for everyone who watches something below `prefix`, or more: something there has changed.
    pub(crate) fn notify_below(&self, prefix: &str) {
        let watchers = self.0.lock();
        for (watched, bell) in watchers.iter() {
            if (watched.starts_with(prefix) || prefix.starts_with(watched.as_str()))
                && let Some(bell) = bell.upgrade()
            {
                bell.notify_one();
            }
        }
    }

    /// Rings for everyone: what a connection does that was lost and is back.
    pub fn notify_all(&self) {
        let watchers = self.0.lock();
        watchers.iter().filter_map(|(_, bell)| bell.upgrade()).for_each(|bell| bell.notify_one());
    }
}
