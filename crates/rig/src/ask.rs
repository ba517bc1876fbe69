//! A request in any form, over a connection of its own, and what was answered.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request that may be sent.
pub struct Ask {
    to: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

/// What was answered to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status of the answer.
    pub status: u16,
    /// The status line and the headers, in lower case.
    pub head: String,
    /// The body of the answer.
    pub text: String,
}

impl Ask {
    /// A request to a server, without a key and without a body.
    pub fn new(to: SocketAddr, method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { to, method, path, headers: Vec::new(), body: None }
    }

    /// The same with this key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn with(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self
    }

    /// The same with a body that nothing takes, if it may have one.
    #[must_use]
    pub fn with_bad_body(mut self) -> Self {
        if self.method != "GET" {
            self.body = Some(r#"{"nobody knows this":1}"#.to_owned());
        }
        self
    }

    /// The server that is asked.
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// Sends it with a body.
    pub async fn body(self, body: &Value) -> Answer {
        self.with(body).send().await
    }

    /// Sends it, and gives the answer.
    pub async fn send(self) -> Answer {
        let stream = TcpStream::connect(self.to).await.unwrap();
        self.over(stream).await.unwrap()
    }

    /// Sends it on this connection, which may be cut.
    pub async fn over(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Answer> {
        stream.write_all(self.text().as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        if !text.contains("\r\n\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Answer::parse(&text))
    }

    /// The request as it is sent; the connection ends after the answer.
    pub fn text(&self) -> String {
        let Self { method, path, to, .. } = self;
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n");
        for (name, value) in &self.headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        if let Some(body) = &self.body {
            write!(text, "content-type: application/json\r\ncontent-length: {}\r\n", body.len())
                .unwrap();
        }
        text.push_str("\r\n");
        text.push_str(self.body.as_deref().unwrap_or_default());
        text
    }
}

impl Answer {
    /// Reads an answer.
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let text = body.to_owned();
        Self { status: status.expect("a status"), head: head.to_lowercase(), text }
    }

    /// The same, if its status is this one.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "often the status is all there is to check"
    )]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// The body as JSON of any form.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.read()
    }

    /// The body as JSON of one form.
    #[track_caller]
    pub fn read<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The last word of the type of a problem, if it is one.
    pub fn problem(&self) -> Option<String> {
        let value: Value = serde_json::from_str(&self.text).ok()?;
        Some(value["type"].as_str()?.rsplit(':').next()?.to_owned())
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}
