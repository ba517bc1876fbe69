//! The witness by HTTP: ticks come in, and what was seen can be read.
//!
//! - `POST /ticks` takes one tick
//! - `GET /report` and `GET /chart`: what was seen, for programs and for people
//! - `GET /events`: each tick and each finding while it comes, as server-sent events ([`stream`])
//! - `GET /metrics` and `GET /livez`

mod metric;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::limits::{
    CONNECTIONS_MAX, REQUEST_BODY_TIME_MAX, REQUEST_HEAD_TIME_MAX, STREAMS_MAX, TICK_BYTES_MAX,
};
use crate::witness::Court;

/// An answer, whole or made while it is sent.
pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What there is, for whoever asks for something else.
const PATHS: &str =
    "there are POST /ticks, and GET /report, /chart, /events, /metrics and /livez\n";

/// How wide a chart is if nobody says otherwise.
const COLUMNS: usize = 100;

/// How long to wait when no connection can be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers for as long as it is not dropped.
pub(crate) async fn serve(listener: TcpListener, court: Arc<Court>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let court = Arc::clone(&court);
                connections.spawn(async move {
                    if let Err(why) = converse(stream, court).await {
                        tracing::debug!(%why, "a connection ended");
                    }
                    drop(place);
                });
            }
            Err(why) => {
                tracing::warn!(%why, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: TcpStream, court: Arc<Court>) -> Result<(), hyper::Error> {
    // Small answers leave at once; if that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let court = Arc::clone(&court);
        async move { Ok::<_, Infallible>(answer(request, court).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD_TIME_MAX);
    builder.serve_connection(TokioIo::new(stream), service).await
}

async fn answer(request: Request<Incoming>, court: Arc<Court>) -> Answer {
    let path = request.uri().path().to_owned();
    let allowed = match path.as_str() {
        "/ticks" => Method::POST,
        "/report" | "/chart" | "/events" | "/metrics" | "/livez" => Method::GET,
        _ => return text(StatusCode::NOT_FOUND, PATHS.to_owned()),
    };
    if *request.method() != allowed {
        let mut refused =
            text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} is answered here\n"));
        let name = HeaderValue::from_str(allowed.as_str()).expect("a method is a word");
        refused.headers_mut().insert(ALLOW, name);
        return refused;
    }
    match path.as_str() {
        "/ticks" => hear(request, &court).await,
        "/report" => {
            let report = serde_json::to_string(&court.report()).expect("a report serializes");
            typed(StatusCode::OK, "application/json", format!("{report}\n"))
        }
        "/chart" => chart(request.uri().query(), &court),
        "/events" => match Arc::clone(&court.streams).try_acquire_owned() {
            Ok(seat) => stream::events(&request, court, seat),
            Err(_) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "events are read by {STREAMS_MAX} at a time: end those that are not needed\n"
                ),
            ),
        },
        "/metrics" => typed(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            metric::text(&court.report()),
        ),
        _ => text(StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Takes a tick.
async fn hear(request: Request<Incoming>, court: &Court) -> Answer {
    let body = Limited::new(request.into_body(), TICK_BYTES_MAX).collect();
    let body = match timeout(REQUEST_BODY_TIME_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(why)) if why.is::<LengthLimitError>() => {
            court.refuse();
            let why = format!("a tick has at most {TICK_BYTES_MAX} bytes\n");
            return text(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body was cut off\n".to_owned()),
        Err(_) => {
            let why = "the body did not come in time\n";
            return text(StatusCode::REQUEST_TIMEOUT, why.to_owned());
        }
    };
    match court.hear(&body) {
        Ok(()) => {
            let mut done = text(StatusCode::NO_CONTENT, String::new());
            done.headers_mut().remove(CONTENT_TYPE);
            done
        }
        Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
    }
}

fn chart(query: Option<&str>, court: &Court) -> Answer {
    let columns = match query.map(|query| query.strip_prefix("columns=").map(str::parse)) {
        None => COLUMNS,
        Some(Some(Ok(columns))) => columns,
        Some(Some(Err(_)) | None) => {
            let why = "a chart may be asked for as /chart?columns=120\n";
            return text(StatusCode::BAD_REQUEST, why.to_owned());
        }
    };
    text(StatusCode::OK, court.report().chart(columns))
}

fn text(status: StatusCode, text: String) -> Answer {
    typed(status, "text/plain; charset=utf-8", text)
}

fn typed(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
