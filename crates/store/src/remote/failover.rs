//! Fail-over between the servers of a cluster: the one that answered last is asked first, then the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use client::{Client, ClientError};
use engine::limits::{STORE_ANSWER_MAX, STORE_CONNECT_MAX};

use super::Choice;
use crate::{Address, OpenError, StoreSecret};

/// The servers that the URL names.
pub(super) struct ServerList {
    clients: Vec<Client>,
    /// The server that is asked first.
    first: AtomicUsize,
}

/// A server that is being asked. If this is dropped without an answer, another server is asked first from then on.
struct AskedServer<'a> {
    servers: &'a ServerList,
    number: usize,
    has_answered: bool,
}

impl ServerList {
    pub(super) fn new(at: &Address, choice: &Choice) -> Result<Self, OpenError> {
        let clients = at.hosts.iter().map(|host| {
            let mut builder = Client::builder(&format!("{}://{host}", at.scheme))
                .retries(0)
                .timeout(STORE_ANSWER_MAX)
                .connect_timeout(STORE_CONNECT_MAX);
            if let Some(key) = at.password.as_ref().map(StoreSecret::reveal) {
                builder = builder.key(key);
            }
            if let Some(project) = &choice.project {
                builder = builder.project(project);
            }
            if let Some(ca) = &at.ca {
                builder = builder.ca_file(ca);
            }
            builder.build()
        });
        let clients: Result<Vec<_>, ClientError> = clients.collect();
        let refuse =
            |why: ClientError| OpenError::Url { url: at.to_string(), why: why.to_string() };
        Ok(Self { clients: clients.map_err(refuse)?, first: AtomicUsize::new(0) })
    }

    /// Asks for something that changes nothing: one server after the other, until one answers.
    pub(super) async fn ask<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        question: impl Fn(Client) -> F,
    ) -> Result<T, ClientError> {
        self.go(question, is_no_answer).await
    }

    /// Sends something that may change something: to another server only while it has certainly not left.
    pub(super) async fn send<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        question: impl Fn(Client) -> F,
    ) -> Result<T, ClientError> {
        self.go(question, |why| is_no_answer(why) && !why.may_be_done()).await
    }

    /// The server that is asked first.
    pub(super) fn client(&self) -> &Client {
        &self.clients[self.first.load(Ordering::Relaxed) % self.clients.len()]
    }

    /// Asks another server first from now on.
    pub(super) fn leave(&self, number: usize) {
        let next = (number + 1) % self.clients.len();
        let _ = self.first.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn go<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        question: impl Fn(Client) -> F,
        goes_on: impl Fn(&ClientError) -> bool,
    ) -> Result<T, ClientError> {
        let begin = self.first.load(Ordering::Relaxed);
        let mut tried = 0;
        loop {
            let number = (begin + tried) % self.clients.len();
            let mut asked = AskedServer { servers: self, number, has_answered: false };
            let answer = question(self.clients[number].clone()).await;
            tried += 1;
            match answer {
                Err(why) if is_no_answer(&why) => {
                    drop(asked);
                    if tried == self.clients.len() || !goes_on(&why) {
                        return Err(why);
                    }
                }
                answer => {
                    asked.has_answered = true;
                    self.first.store(number, Ordering::Relaxed);
                    return answer;
                }
            }
        }
    }
}

impl Drop for AskedServer<'_> {
    fn drop(&mut self) {
        if !self.has_answered {
            self.servers.leave(self.number);
        }
    }
}

/// Whether there is no server there, or one that cannot help.
fn is_no_answer(why: &ClientError) -> bool {
    matches!(
        why,
        ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Unavailable { .. }
            | ClientError::Answer { .. }
    )
}
