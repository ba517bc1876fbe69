//! Events, while they happen.
//!
//! A watch begins when the server says where it stands, and follows from there: when the connection breaks, the
//! next one says the last event that was seen, and goes on after it. What a server does not know any more, because
//! it was started anew or too much has happened meanwhile, it says by [`EventKind::Reset`](crate::event::EventKind::Reset).
//! So there is no gap without a word.

mod block;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderName, HeaderValue};
use tokio::time::timeout;

pub use self::block::SseBlock;
use self::block::SseReader;
use super::exchange::Question;
use super::path::Path;
use super::{Client, connect};
use crate::ClientError;
use crate::event::Event;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long a server may say nothing: three of its heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// What happens, while it happens. See [`Client::events`].
pub struct Events {
    client: Client,
    last: HeaderValue,
    /// What is connected now, if something is.
    stream: Option<EventStream>,
}

/// Server-sent events, as they come.
pub(super) struct EventStream {
    body: Incoming,
    reader: SseReader,
    url: Arc<str>,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Events").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins to watch what happens in this client's project: everything from when this returns on.
    ///
    /// ```no_run
    /// # async fn example(client: client::Client) -> Result<(), client::ClientError> {
    /// let mut events = client.events().await?;
    /// loop {
    ///     let event = events.next().await?;
    ///     println!("{} {}", event.at, event.what.kind());
    /// }
    /// # }
    /// ```
    pub async fn events(&self) -> Result<Events, ClientError> {
        let (stream, last) = self.connect(None).await?;
        Ok(Events { client: self.clone(), last, stream: Some(stream) })
    }

    /// Connects, trying again as with any request, and waits until the watch has begun: where it stands then.
    async fn connect(
        &self,
        last: Option<&HeaderValue>,
    ) -> Result<(EventStream, HeaderValue), ClientError> {
        self.again(|| self.open(last)).await
    }

    async fn open(
        &self,
        last: Option<&HeaderValue>,
    ) -> Result<(EventStream, HeaderValue), ClientError> {
        let mut question = Question::get(Path::new("/v1/events"))
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last {
            question = question.header(LAST_EVENT_ID, last.clone());
        }
        let body = self.begin(&question).await?;
        let mut stream = EventStream::new(body, &self.base);
        // A comment with an id comes first: until then nothing was promised.
        let first = stream.block().await?;
        match first.id {
            Some(id) if first.data.is_empty() => Ok((stream, self.mark(&id)?)),
            Some(_) | None => {
                Err(self.unexpected_answer("events that do not begin with a place".to_owned()))
            }
        }
    }

    fn mark(&self, id: &str) -> Result<HeaderValue, ClientError> {
        HeaderValue::from_str(id)
            .map_err(|_| self.unexpected_answer("an event whose id is none".to_owned()))
    }
}

impl EventStream {
    pub(super) fn new(body: Incoming, url: &Arc<str>) -> Self {
        Self { body, reader: SseReader::default(), url: Arc::clone(url) }
    }

    /// The next block that the server sends.
    pub(super) async fn block(&mut self) -> Result<SseBlock, ClientError> {
        let url = &*self.url;
        loop {
            match self.reader.next() {
                Ok(Some(block)) => return Ok(block),
                Ok(None) => {}
                Err(why) => {
                    return Err(ClientError::Answer { url: url.to_owned(), why: why.to_string() });
                }
            }
            let frame = timeout(SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| connect::silent(url, SILENCE_MAX))? {
                Some(Ok(frame)) => self.reader.push(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(why)) => return Err(connect::lost(url, &why)),
                None => {
                    let why = "the server ended the events".to_owned();
                    return Err(connect::unreachable(url, why, true));
                }
            }
        }
    }
}

impl Events {
    /// The next event; waits for it. A connection that breaks is made anew, by the client's rules for trying
    /// again; if that fails too, the error says why, and the next call tries from the same place. Events of a
    /// kind that this version does not know are left out.
    ///
    /// Dropping the future loses nothing: what has not been returned comes with the next call.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if self.stream.is_none() {
                let (stream, _) = self.client.connect(Some(&self.last)).await?;
                self.stream = Some(stream);
            }
            let Some(stream) = &mut self.stream else { continue };
            let block = match stream.block().await {
                Ok(block) => block,
                Err(ClientError::Unreachable { .. }) => {
                    self.stream = None;
                    continue;
                }
                Err(other) => {
                    self.stream = None;
                    return Err(other);
                }
            };
            if let Some(id) = &block.id {
                self.last = self.client.mark(id)?;
            }
            if let Some(event) = read(&block) {
                return Ok(event);
            }
        }
    }
}

/// The event in a block; a comment has none.
fn read(block: &SseBlock) -> Option<Event> {
    (!block.data.is_empty()).then(|| serde_json::from_str(&block.data).ok())?
}
