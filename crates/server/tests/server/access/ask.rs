//! A request in any form, and what was answered.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request.
pub(super) struct Ask {
    pub(super) to: SocketAddr,
    pub(super) method: String,
    path: String,
    headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
}

/// What was answered.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) text: String,
}

impl Ask {
    pub(super) fn new(to: SocketAddr, method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { to, method, path, headers: Vec::new(), body: None }
    }

    pub(super) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a body.
    pub(super) fn with(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self
    }

    /// Asks with a body.
    pub(super) async fn body(self, body: &Value) -> Answer {
        self.with(body).send().await
    }

    /// Asks.
    pub(super) async fn send(self) -> Answer {
        let stream = TcpStream::connect(self.to).await.unwrap();
        self.over(stream).await.unwrap()
    }

    /// Asks on this connection, which may be cut.
    pub(super) async fn over(
        self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> io::Result<Answer> {
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
    pub(super) fn text(&self) -> String {
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
    pub(super) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let text = body.to_owned();
        Self { status: status.expect("a status"), head: head.to_lowercase(), text }
    }

    /// The same, if its status is this one.
    #[track_caller]
    pub(super) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}
