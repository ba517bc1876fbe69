//! The events of the other servers, for somebody who watches at this one.
//!
//! Each of them is followed with the watcher's own key, and says where it stands by ids of its own; from these the id
//! of the merged events is made. A connection that breaks is made anew from where it was, so nothing is missed by that. A
//! server that cannot be reached, or has gone, is told as a gap, once: the watcher had better read again what matters.
//! There is no order between events of different servers but that in which they come here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use client::SseBlock;
use engine::limits::EVENT_SERVERS_MAX;
use store::session::SessionKey;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::FIRST;
use crate::api::forward::PeerClient;
use crate::peers::{Server, View};

/// Blocks that wait for the watcher; whoever has more waits.
const BLOCKS_WAITING_MAX: usize = 64;

/// The pause before a server that does not answer is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause before a connection that has ended is made anew.
const BREATH: Duration = Duration::from_millis(100);

/// What came from another server.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// An event, with its kind.
    Event { kind: String, data: String },
    /// Some may be missing.
    Gap,
}

/// What a server that is followed says.
enum PeerMessage {
    Block(SseBlock),
    /// It cannot be reached.
    Away,
}

/// The events of the other servers, as they come.
pub(super) struct PeerEvents {
    peers: PeerClient,
    views: watch::Receiver<Arc<View>>,
    /// The servers that are followed.
    followed: BTreeMap<SessionKey, FollowedPeer>,
    messages_in: mpsc::Sender<(SessionKey, PeerMessage)>,
    messages: mpsc::Receiver<(SessionKey, PeerMessage)>,
    /// What the watcher has not been told yet.
    waiting: VecDeque<Waiting>,
    tasks: JoinSet<()>,
}

/// Something that the watcher has not been told yet. The server stands where it says once it is told.
struct Waiting {
    stands: Option<(SessionKey, String)>,
    heard: PeerEvent,
}

impl Waiting {
    fn gap() -> Self {
        Self { stands: None, heard: PeerEvent::Gap }
    }
}

/// Where a server stands that is followed.
struct FollowedPeer {
    /// The last id that it gave, of what the watcher was told.
    id: Option<String>,
    has_begun: bool,
    /// Whether a gap was told since it was last heard.
    is_told: bool,
    task: AbortHandle,
}

impl PeerEvents {
    /// Begins to follow all of them: after this place, if one is given, or from now on. Waits until each has begun or
    /// cannot be reached.
    pub(super) async fn begin(
        peers: PeerClient,
        views: watch::Receiver<Arc<View>>,
        last: Option<&str>,
    ) -> Self {
        let (messages_in, messages) = mpsc::channel(BLOCKS_WAITING_MAX);
        let (followed, waiting, tasks) = (BTreeMap::new(), VecDeque::new(), JoinSet::new());
        let mut others = Self { peers, views, followed, messages_in, messages, waiting, tasks };
        others.views.borrow_and_update();
        for server in others.peers.others() {
            others.follow(server, last.map(str::to_owned));
        }
        let beginning = async {
            while others.followed.values().any(|peer| !peer.has_begun && !peer.is_told) {
                let Some((from, message)) = others.messages.recv().await else { return };
                others.hear(from, message);
            }
        };
        if tokio::time::timeout(PeerClient::patience(), beginning).await.is_err() {
            others.waiting.push_back(Waiting::gap());
        }
        others
    }

    /// The next thing that came; waits for it. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> PeerEvent {
        loop {
            if let Some(Waiting { stands, heard }) = self.waiting.pop_front() {
                if let Some((from, id)) = stands
                    && let Some(peer) = self.followed.get_mut(&from)
                {
                    peer.id = Some(id);
                }
                return heard;
            }
            tokio::select! {
                biased;
                Ok(()) = self.views.changed() => self.look(),
                Some((from, message)) = self.messages.recv() => self.hear(from, message),
                else => return std::future::pending().await,
            }
        }
    }

    /// Where each of them stands, as ids of theirs.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.followed.values().filter_map(|peer| peer.id.as_deref())
    }

    /// Follows who has come, and leaves who has gone.
    fn look(&mut self) {
        self.views.borrow_and_update();
        let there = self.peers.others();
        let is_there = |session: &SessionKey| there.iter().any(|server| server.session == *session);
        let gone: Vec<SessionKey> =
            self.followed.keys().filter(|session| !is_there(session)).cloned().collect();
        for session in gone {
            let peer = self.followed.remove(&session).expect("it was there");
            peer.task.abort();
            if !peer.is_told {
                self.waiting.push_back(Waiting::gap());
            }
        }
        for server in there {
            if !self.followed.contains_key(&server.session) {
                // All that it has told so far happened since.
                self.follow(server, Some(FIRST.to_owned()));
            }
        }
    }

    fn follow(&mut self, server: Server, last: Option<String>) {
        if self.followed.len() >= EVENT_SERVERS_MAX {
            self.waiting.push_back(Waiting::gap());
            return;
        }
        let session = server.session.clone();
        let (peers, out) = (self.peers.clone(), self.messages_in.clone());
        let task = self.tasks.spawn(async move { follow(&peers, &server, last, &out).await });
        let peer = FollowedPeer { id: None, has_begun: false, is_told: false, task };
        self.followed.insert(session, peer);
    }

    fn hear(&mut self, from: SessionKey, message: PeerMessage) {
        // What a server said that has gone meanwhile is told as a gap.
        let Some(peer) = self.followed.get_mut(&from) else { return };
        let PeerMessage::Block(block) = message else {
            if !std::mem::replace(&mut peer.is_told, true) {
                self.waiting.push_back(Waiting::gap());
            }
            return;
        };
        (peer.has_begun, peer.is_told) = (true, false);
        match block.kind.filter(|_| !block.data.is_empty()) {
            Some(kind) => {
                let heard = PeerEvent::Event { kind, data: block.data };
                self.waiting.push_back(Waiting { stands: block.id.map(|id| (from, id)), heard });
            }
            // Nothing happened up to there, unless something waits that did.
            None if self.waiting.is_empty() => peer.id = block.id.or_else(|| peer.id.take()),
            None => {}
        }
    }
}

/// Follows one server for as long as somebody listens.
async fn follow(
    peers: &PeerClient,
    server: &Server,
    mut last: Option<String>,
    out: &mpsc::Sender<(SessionKey, PeerMessage)>,
) {
    let say = async |message| out.send((server.session.clone(), message)).await.is_ok();
    loop {
        match peers.follow(server, "/v1/events", last.as_deref()).await {
            Ok(mut followed) => {
                while let Ok(block) = followed.next().await {
                    last = block.id.clone().or(last);
                    if !say(PeerMessage::Block(block)).await {
                        return;
                    }
                }
                tokio::time::sleep(BREATH).await;
            }
            Err(why) => {
                tracing::debug!(node = %server.node(), why, "events of a server cannot be followed");
                if !say(PeerMessage::Away).await {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
