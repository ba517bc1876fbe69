//! Connections: a bounded number of them, each on a task that the end waits for.
//!
//! Nobody keeps a place by doing nothing: a head that does not come, a rest between two requests, an answer
//! that is not read are all bounded in time; what happens in between is bounded by `middleware`. The last places are
//! lent for one request each, see `crowding`.

use std::borrow::Borrow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::{REQUEST_DRAIN_MAX, REQUEST_HEAD_TIME_MAX};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::authentication::PeerAddress;
use super::crowding::{Crowding, claims_waiting_max, connections_max};
use super::tls::ServerTls;
use super::write_timeout::WriteTimeout;
use super::{ApiSecurity, Exposure, router};
use crate::handle::NodeHandle;

/// How long to wait when no connection can be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until `stop` is done; then finishes those under way, and returns.
pub async fn serve(
    listener: impl Borrow<TcpListener>,
    handle: NodeHandle,
    security: ApiSecurity,
    stop: impl Future<Output = ()>,
) {
    let listener = listener.borrow();
    let exposure = exposure_of(listener.local_addr().ok());
    let connections_max = connections_max();
    handle.waiting_claims().allow(claims_waiting_max(connections_max));
    let service = TowerToHyperService::new(router(handle, exposure, &security));
    let acceptor = security.tls.as_ref().map(ServerTls::acceptor);
    let places = Arc::new(Semaphore::new(connections_max));
    let (ending, ends) = watch::channel(false);
    let mut connections = JoinSet::new();
    let following = async {
        match &security.tls {
            Some(tls) => tls.follow().await,
            None => std::future::pending().await,
        }
    };
    let mut following = std::pin::pin!(following);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = &mut following => {}
            Some(_) = connections.join_next() => {}
            (place, accepted) = accepted => match accepted {
                Ok((stream, from)) => {
                    let (service, ends) = (service.clone(), ends.clone());
                    let acceptor = acceptor.clone();
                    let crowding = Crowding::of(places.available_permits(), connections_max);
                    let peer = (PeerAddress(from.ip()), crowding);
                    connections.spawn(async move {
                        welcome(stream, peer, acceptor, service, ends).await;
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
    if tokio::time::timeout(REQUEST_DRAIN_MAX, drained).await.is_err() {
        tracing::warn!(left = connections.len(), "requests were cut off");
    }
    connections.shutdown().await;
}

fn exposure_of(address: Option<SocketAddr>) -> Exposure {
    match address {
        Some(address) if !address.ip().is_loopback() => Exposure::Network,
        Some(_) | None => Exposure::Loopback,
    }
}

/// Answers one connection, encrypted if it is to be.
async fn welcome(
    stream: TcpStream,
    peer: (PeerAddress, Crowding),
    acceptor: Option<TlsAcceptor>,
    service: TowerToHyperService<axum::Router>,
    ends: watch::Receiver<bool>,
) {
    // Small answers leave at once; if that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return answer(stream, peer, service, ends).await;
    };
    match tokio::time::timeout(REQUEST_HEAD_TIME_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, peer, service, ends).await,
        Ok(Err(why)) => tracing::debug!(%why, "a connection was not encrypted"),
        Err(_) => tracing::debug!("a connection was not encrypted in time"),
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (peer, crowding): (PeerAddress, Crowding),
    service: TowerToHyperService<axum::Router>,
    mut ends: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD_TIME_MAX);
    builder.keep_alive(crowding == Crowding::Room);
    let stream = TokioIo::new(WriteTimeout::new(stream));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(crowding);
        service.call(request)
    });
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
