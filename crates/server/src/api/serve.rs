//! Connections: a bounded number of them, each on a task that the end waits for.
//!
//! Nobody keeps a place by doing nothing: a head that does not come, a rest between two requests, an answer
//! that is not read are all bounded in time; what happens in between is bounded by `guard`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::API_CONNECTIONS_MAX;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::patient::Patient;
use super::{Reach, router};
use crate::desk::Desk;

/// How long a head may take to come, and how long a connection may rest between two requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long requests that are under way at the end may still take: a server stops within five seconds.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(4);

/// How long to wait when no connection can be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until `stop` is done; then finishes those under way, and returns.
pub async fn serve(listener: TcpListener, desk: Desk, stop: impl Future<Output = ()>) {
    let reach = reach_of(listener.local_addr().ok());
    let service = TowerToHyperService::new(router(desk, reach));
    let places = Arc::new(Semaphore::new(API_CONNECTIONS_MAX));
    let (ending, ends) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (service, ends) = (service.clone(), ends.clone());
                    connections.spawn(async move {
                        answer(stream, service, ends).await;
                        drop(place);
                    });
                }
                Err(why) => {
                    tracing::warn!(%why, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    ending.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIME_MAX, drained).await.is_err() {
        tracing::warn!(left = connections.len(), "requests were cut off");
    }
    connections.shutdown().await;
}

fn reach_of(address: Option<SocketAddr>) -> Reach {
    match address {
        Some(address) if !address.ip().is_loopback() => Reach::Network,
        Some(_) | None => Reach::Loopback,
    }
}

async fn answer(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    mut ends: watch::Receiver<bool>,
) {
    // Small answers leave at once; if that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    let stream = TokioIo::new(Patient::new(stream));
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    // Also when the sender is gone: then there is nobody left to serve for.
    let ending = async { drop(ends.wait_for(|ends| *ends).await) };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ending => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(why) = ended {
        tracing::debug!(%why, "a connection ended");
    }
}
