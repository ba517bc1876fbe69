//! The client: one method per thing that can be asked.
//!
//! - `builder`: what a client is made with; `connect`: connections, and whom to trust
//! - `exchange`: one request and its answer, and sending it again; `retry`: when that is right
//! - `trigger`, `run`, `queue`, `worker`, `output`, `project`, `key`, `election`, `ring`, `member`, `system`, `backup`, `store`: the methods
//! - `walk`: lists, page after page; `watch`: events, while they happen
//! - `carrier`: requests of others, passed on
//! - `path`, `entropy`: what is asked, and what nobody else has

mod backup;
mod builder;
mod carrier;
mod connect;
mod election;
mod entropy;
mod exchange;
mod key;
mod member;
mod output;
mod path;
mod project;
mod queue;
mod retry;
mod ring;
mod run;
mod store;
mod system;
mod trigger;
mod walk;
mod watch;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

pub use self::backup::Pieces;
pub use self::builder::ClientBuilder;
pub use self::carrier::{Carrier, Followed};
pub use self::election::ElectionFilter;
pub use self::key::KeyFilter;
pub use self::member::RingMember;
pub use self::output::OutputEvents;
pub use self::project::ProjectFilter;
pub use self::queue::{DeadRunFilter, QueueFilter};
pub use self::ring::{RingEvents, RingFilter};
pub use self::run::RunFilter;
pub use self::store::StoreHints;
pub use self::system::AuditFilter;
pub use self::trigger::TriggerFilter;
pub use self::watch::{Events, SseBlock};

use self::connect::Http;
use self::retry::RequestRetry;
use crate::ClientError;

/// How long to wait for an answer, beside what the server is asked to wait itself.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a connection rests before it is given up: less than a server waits, so that no request crosses its
/// close.
const REST_TIME_MAX: Duration = Duration::from_secs(5);

const PROJECT: HeaderName = HeaderName::from_static("watchbell-project");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A server, and how to ask it. Clones share their connections.
///
/// # What is sent again
///
/// A request is sent again when the connection fails, when the server is not available (502, 503, 504), and when a
/// limit passes by itself (429 with `retry-after`): a bounded number of times, for a bounded time, after pauses
/// that grow. Nothing happens twice by that:
///
/// - a POST carries an idempotency key, one of its own or that of [`Client::once`], and the server carries it
///   out once. What it tells once, such as a secret, is lost with the answer that was lost: the repeated request
///   gives `secret: None`.
/// - a DELETE that finds nothing, after an attempt that may have arrived, has done what it should.
/// - a PUT says how it shall be. If others write the same thing at the same time, the last one wins: give a
///   revision where that matters. If such a PUT finds another revision after an attempt that may have arrived, it
///   is read back: the next revision with this very text is taken for ours, anything else, also a text with secret
///   headers, which cannot be compared, is a [`ClientError::Conflict`].
/// - what a worker says, by [`Client::claim`] and [`Client::beat`], is never sent again: it carries a number, not an
///   idempotency key, and whoever hears nothing says how things stand by then.
///
/// Any other refusal (4xx, 500, 507) is final. `retries(0)` turns all of it off.
#[derive(Clone)]
pub struct Client {
    base: Arc<str>,
    http: Http,
    /// What every request says.
    headers: HeaderMap,
    /// The idempotency key that the caller gave.
    once: Option<HeaderValue>,
    retry: RequestRetry,
    timeout: Duration,
}

impl Client {
    /// A client of the server at this URL, without a key.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::builder(url).build()
    }

    /// Makes a client of the server at this URL.
    ///
    /// ```
    /// let client = client::Client::builder("https://bells.example.com:7400")
    ///     .key("wbk_1234")
    ///     .project("shop")
    ///     .retries(5)
    ///     .build()?;
    /// assert_eq!(client.url(), "https://bells.example.com:7400");
    /// assert!(!format!("{client:?}").contains("wbk_1234"));
    /// # Ok::<(), client::ClientError>(())
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// The same client, for another project: for admins.
    pub fn in_project(&self, name: &str) -> Result<Self, ClientError> {
        let mut client = self.clone();
        client.headers.insert(PROJECT, builder::header("project", name)?);
        Ok(client)
    }

    /// The same client, which waits so long for an answer.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same client, for one POST that is carried out once under this key, however often it is sent: also
    /// after this process has died, for a day. Another request under the same key is refused.
    pub fn once(&self, key: &str) -> Result<Self, ClientError> {
        let key = builder::header("idempotency key", key)?;
        Ok(Self { once: Some(key), ..self.clone() })
    }
}

impl fmt::Debug for Client {
    /// Without the key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("url", &self.base)
            .field("project", &self.headers.get(PROJECT))
            .finish_non_exhaustive()
    }
}
