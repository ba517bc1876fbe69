//! The pages of a process that is no server, such as `/metrics` and `/livez`, on a socket of their own.
//!
//! They run beside its work and share nothing with it but what they show: whoever asks slowly, or often, holds up only
//! others who ask.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::limits::{METRICS_CONNECTION_TIME_MAX, METRICS_CONNECTIONS_MAX, REQUEST_HEAD_TIME_MAX};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::exit::Ending;

/// What there is to be read: `/metrics`, and `/livez`, which is answered as long as anything is.
pub(crate) trait Pages: Send + Sync + 'static {
    /// The paths, for whoever asks for another one.
    const PATHS: &'static str = "/metrics and /livez";

    /// All metrics, as Prometheus reads them.
    fn metrics(&self) -> String;

    /// What is at another path, if there is anything.
    fn other(&self, _path: &str) -> Option<(StatusCode, String)> {
        None
    }
}

/// Metrics as Prometheus reads them.
pub(crate) fn text(metrics: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, metrics);
    text
}

/// How long to wait when no connection can be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The first of these addresses that can be listened on; else what is wrong with the last.
pub(crate) async fn bind(at: &[SocketAddr]) -> Result<TcpListener, (SocketAddr, io::Error)> {
    let mut wrong = None;
    for address in at {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(why) => wrong = Some((*address, why)),
        }
    }
    Err(wrong.expect("there is at least one address"))
}

/// Listens at the first of these where it can be, and tells where the metrics are; nowhere, if there is none.
pub(crate) async fn listen(
    at: &[SocketAddr],
    tell: impl Fn(&str, serde_json::Value),
) -> Result<Option<TcpListener>, Ending> {
    if at.is_empty() {
        return Ok(None);
    }
    match bind(at).await {
        Ok(listener) => {
            let at = listener.local_addr()?;
            tracing::info!(%at, "metrics are served");
            tell(&format!("http://{at}/metrics"), serde_json::json!({ "at": at }));
            Ok(Some(listener))
        }
        Err((at, why)) => Err(Ending::unreachable(format!(
            "cannot serve metrics on {at}: {why}; stop whoever does, or give another address with --metrics"
        ))),
    }
}

/// Answers for as long as it is not dropped.
pub(crate) async fn serve(listener: TcpListener, pages: Arc<impl Pages>) {
    let places = Arc::new(Semaphore::new(METRICS_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                connections.spawn(async move {
                    let answering =
                        tokio::time::timeout(METRICS_CONNECTION_TIME_MAX, answer(stream, pages));
                    if let Ok(Err(why)) = answering.await {
                        tracing::debug!(%why, "a connection to the metrics ended");
                    }
                    drop(place);
                });
            }
            Err(why) => {
                tracing::warn!(%why, "no connection to the metrics could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(stream: TcpStream, pages: Arc<impl Pages>) -> Result<(), hyper::Error> {
    // Small answers leave at once; if that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let page = page(&request, &*pages);
        async move { Ok::<_, Infallible>(page) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD_TIME_MAX);
    builder.serve_connection(TokioIo::new(stream), service).await
}

/// What is at a path, if there is anything.
pub(crate) fn at(pages: &impl Pages, path: &str) -> Option<(StatusCode, String)> {
    match path {
        "/metrics" => Some((StatusCode::OK, pages.metrics())),
        "/livez" => Some((StatusCode::OK, "ok\n".to_owned())),
        other => pages.other(other),
    }
}

fn page<P: Pages>(request: &Request<Incoming>, pages: &P) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, text) = match at(pages, request.uri().path()) {
        Some(_) if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned())
        }
        Some(page) => page,
        None => (StatusCode::NOT_FOUND, format!("there are {}\n", P::PATHS)),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
