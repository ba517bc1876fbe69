//! What runs print: sent by their workers, shown, and followed.

use std::fmt;

use hyper::header::{ACCEPT, HeaderName, HeaderValue};

use super::Client;
use super::exchange::Question;
use super::path::Path;
use super::watch::EventStream;
use crate::ClientError;
use crate::output::{OutputAnswer, OutputEvent, OutputRequest, RunOutput};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a run prints, while it prints it. See [`Client::follow_output`].
pub struct OutputEvents {
    client: Client,
    run: String,
    last: Option<HeaderValue>,
    /// What is connected now, if something is.
    stream: Option<EventStream>,
    is_over: bool,
}

impl fmt::Debug for OutputEvents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OutputEvents").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Client {
    /// Says what a run prints, in the name of the worker that has it. The request is sent once: chunks have offsets, and the
    /// answer says which is expected next.
    pub async fn send_output(
        &self,
        run: &str,
        request: &OutputRequest,
    ) -> Result<OutputAnswer, ClientError> {
        let question = Question::post(Path::of("runs", run, "/output")).body(request);
        self.read(&self.attempt(&question).await?)
    }

    /// What a run printed last.
    pub async fn run_output(&self, run: &str) -> Result<RunOutput, ClientError> {
        self.ask(Question::get(Path::of("runs", run, "/output"))).await
    }

    /// Begins to follow what a run prints: what is kept, and all that comes until the run has ended.
    pub async fn follow_output(&self, run: &str) -> Result<OutputEvents, ClientError> {
        let mut events = OutputEvents {
            client: self.clone(),
            run: run.to_owned(),
            last: None,
            stream: None,
            is_over: false,
        };
        events.connect().await?;
        Ok(events)
    }

    async fn open_output(
        &self,
        run: &str,
        last: Option<&HeaderValue>,
    ) -> Result<EventStream, ClientError> {
        let path = Path::of("runs", run, "/output").with("follow", Some("true"));
        let mut question =
            Question::get(path).header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last {
            question = question.header(LAST_EVENT_ID, last.clone());
        }
        let body = self.begin(&question).await?;
        let mut stream = EventStream::new(body, &self.base);
        // A comment comes first: until then nothing was promised.
        stream.block().await?;
        Ok(stream)
    }
}

impl OutputEvents {
    /// The next event; nothing after the end of the run. A connection that breaks is made anew, by the client's rules for
    /// trying again, and goes on from the same place.
    pub async fn next(&mut self) -> Result<Option<OutputEvent>, ClientError> {
        while !self.is_over {
            self.connect().await?;
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
            if let Some(id) = block.id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
                self.last = Some(id);
            }
            // Events of a kind that this version does not know are left out.
            let Ok(event) = serde_json::from_str(&block.data) else { continue };
            self.is_over = matches!(event, OutputEvent::Ended { .. });
            return Ok(Some(event));
        }
        Ok(None)
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let (client, run, last) = (&self.client, &self.run, self.last.as_ref());
        self.stream = Some(client.again(|| client.open_output(run, last)).await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Events;

    #[test]
    fn whoever_watches_or_follows_may_do_so_in_a_task_of_its_own() {
        fn check<T: 'static, F: Send>(_: impl FnOnce(&'static mut T) -> F) {}
        check(OutputEvents::next);
        check(Events::next);
        check(|client: &'static mut Client| client.follow_output("run_1"));
        check(|client: &'static mut Client| client.events());
    }
}
