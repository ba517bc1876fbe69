//! The road between a client and its engine: a TCP proxy that loses, delays and cuts, either way on its own.
//!
//! A [`Road`] listens on a port of its own and passes bytes on to the engine. Each [`Way`] (there, back) can be closed
//! (bytes wait and nothing is told, like a network that drops packets), slow, or open. Connections can be broken.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How bytes travel in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Bytes arrive at once.
    Open,
    /// This much later.
    Slow(Duration),
    /// Not until it is opened again.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct State {
    there: Way,
    back: Way,
    /// Connections made before this grew are broken.
    cut: u64,
}

/// A road to one address. Torn down when dropped.
pub struct Road {
    at: SocketAddr,
    state: Arc<watch::Sender<State>>,
    /// Dropped with the road, and with it every connection.
    _task: JoinSet<()>,
}

impl Road {
    /// A road to `engine`, on this machine. Needs a runtime.
    pub async fn to(engine: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let state =
            Arc::new(watch::Sender::new(State { there: Way::Open, back: Way::Open, cut: 0 }));
        let mut task = JoinSet::new();
        task.spawn(accept(listener, engine, Arc::clone(&state)));
        Self { at, state, _task: task }
    }

    /// Where clients go.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// What happens to what clients send.
    pub fn there(&self, way: Way) {
        self.state.send_modify(|state| state.there = way);
    }

    /// What happens to what the engine answers.
    pub fn back(&self, way: Way) {
        self.state.send_modify(|state| state.back = way);
    }

    /// What happens to bytes in both directions.
    pub fn both(&self, way: Way) {
        self.state.send_modify(|state| (state.there, state.back) = (way, way));
    }

    /// Breaks every connection there is; new ones are taken.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut += 1);
    }
}

async fn accept(listener: TcpListener, engine: SocketAddr, state: Arc<watch::Sender<State>>) {
    let mut travels = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let receiver = state.subscribe();
        travels.spawn(travel(client, engine, receiver));
        while travels.try_join_next().is_some() {}
    }
}

async fn travel(client: TcpStream, engine: SocketAddr, mut state: watch::Receiver<State>) {
    let begun = state.borrow().cut;
    let (there, back) = (state.clone(), state.clone());
    let pass = async {
        let Ok(server) = TcpStream::connect(engine).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::select! {
            () = pass(&mut from_client, &mut to_server, there, |state| state.there) => {}
            () = pass(&mut from_server, &mut to_client, back, |state| state.back) => {}
        }
    };
    tokio::select! {
        () = pass => {}
        _ = state.wait_for(|state| state.cut != begun) => {}
    }
}

/// Carries bytes until one end closes. What was read while the way is closed waits, and leaves when it opens.
async fn pass(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut state: watch::Receiver<State>,
    way: fn(&State) -> Way,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut bytes).await {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        let open = state.wait_for(|state| way(state) != Way::Closed).await;
        let Ok(now) = open.map(|state| way(&state)) else { return };
        if let Way::Slow(delay) = now {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
