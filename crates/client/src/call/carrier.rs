//! Passing on requests that another server is to answer.
//!
//! Nothing is added to a request, nothing is sent twice, and the answer is given back as it came. Whether a request may
//! have been carried out is all that is told about one that failed: [`ClientError::may_be_done`].

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};

use super::connect::{self, Http};
use super::watch::{EventStream, SseBlock};
use crate::ClientError;

/// Sends requests as they are, each to the server that its URI names, once. Clones share their connections.
#[derive(Clone)]
pub struct Carrier {
    http: Http,
}

impl Carrier {
    /// Waits up to `connect` for a connection, and trusts the issuers that browsers trust.
    pub fn new(connect: Duration) -> Self {
        Self { http: connect::http(connect::usual(), connect) }
    }

    /// The same, and trusts the issuers in this PEM file as well.
    #[cfg(feature = "tls")]
    pub fn with_ca(
        path: impl AsRef<std::path::Path>,
        connect: Duration,
    ) -> Result<Self, ClientError> {
        let trust = crate::authority::roots(Some(path.as_ref()))
            .map_err(|why| ClientError::Setting { what: "ca", why: why.to_string() })?;
        Ok(Self { http: connect::http(trust, connect) })
    }

    /// Sends a request, and gives the whole answer, whatever its status: within this time, and of no more than so many
    /// bytes.
    pub async fn carry(
        &self,
        request: Request<Bytes>,
        time: Duration,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, ClientError> {
        let url = place(&request);
        let carried = async {
            let (head, body) = self.begin(request).await?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|why| connect::lost(&url, &*why))?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        let timed = tokio::time::timeout(time, carried).await;
        timed.unwrap_or_else(|_| Err(connect::silent(&url, time)))
    }

    /// Sends a request, and gives the head of its answer: the rest is read piece by piece.
    pub async fn begin(&self, request: Request<Bytes>) -> Result<Response<Incoming>, ClientError> {
        let url = place(&request);
        let sent = self.http.request(request.map(Full::new)).await;
        sent.map_err(|why| connect::failure(&url, &why))
    }
}

/// A stream of server-sent events of another server.
pub struct Followed(EventStream);

impl Carrier {
    /// Sends a request that is answered by server-sent events.
    pub async fn follow(&self, request: Request<Bytes>) -> Result<Followed, ClientError> {
        let url = place(&request);
        let (head, body) = self.begin(request).await?.into_parts();
        if head.status != StatusCode::OK {
            return Err(ClientError::Answer { url, why: format!("status {}", head.status) });
        }
        Ok(Followed(EventStream::new(body, &url.into())))
    }
}

impl Followed {
    /// Waits for the next block. After an error there are no more.
    pub async fn next(&mut self) -> Result<SseBlock, ClientError> {
        self.0.block().await
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Followed")
    }
}

/// The server that a request is for.
fn place(request: &Request<Bytes>) -> String {
    let uri = request.uri();
    let (scheme, host) = (uri.scheme_str().unwrap_or("http"), uri.authority());
    format!("{scheme}://{}", host.map_or("", |host| host.as_str()))
}

impl fmt::Debug for Carrier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Carrier")
    }
}
