//! Ticks as datagrams: one each, and no answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;

use crate::limits::TICK_BYTES_MAX;
use crate::witness::Court;

/// How long to wait when nothing can be received.
const PAUSE: Duration = Duration::from_millis(100);

/// Receives for as long as it is not dropped. Whatever comes, it goes on.
pub(crate) async fn receive(socket: UdpSocket, court: Arc<Court>) {
    // One more than any tick has: what is longer is cut by the system, and shows so.
    let mut room = [0; TICK_BYTES_MAX + 1];
    loop {
        match socket.recv_from(&mut room).await {
            Ok((length, from)) => {
                if let Err(why) = court.hear(&room[..length]) {
                    tracing::debug!(%from, %why, "a datagram is no tick");
                }
            }
            Err(why) => {
                tracing::warn!(%why, "no datagram could be received");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
