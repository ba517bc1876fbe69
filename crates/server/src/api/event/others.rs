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
use crate::api::forward::Envoy;
use crate::peers::{Server, View};

/// Blocks that wait for the watcher; whoever has more waits.
const BLOCKS_WAITING_MAX: usize = 64;

/// The rest before a server that does not answer is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The rest before a connection that has ended is made anew.
const BREATH: Duration = Duration::from_millis(100);

/// What came from another server.
#[derive(Debug)]
pub(super) enum Heard {
    /// An event, with its kind.
    Event { kind: String, data: String },
    /// Some may be missing.
    Gap,
}

/// What a server that is followed says.
enum Word {
    Block(SseBlock),
    /// It cannot be reached.
    Away,
}

/// The other servers.
pub(super) struct Others {
    envoy: Envoy,
    views: watch::Receiver<Arc<View>>,
    /// Those that are followed.
    followed: BTreeMap<SessionKey, Place>,
    words_in: mpsc::Sender<(SessionKey, Word)>,
    words: mpsc::Receiver<(SessionKey, Word)>,
    /// What the watcher has not been told yet.
    waiting: VecDeque<Waiting>,
    tasks: JoinSet<()>,
}

/// Something that the watcher has not been told yet. The server stands where it says once it is told.
struct Waiting {
    stands: Option<(SessionKey, String)>,
    heard: Heard,
}

impl Waiting {
    fn gap() -> Self {
        Self { stands: None, heard: Heard::Gap }
    }
}

/// Where a server stands that is followed.
struct Place {
    /// The last id that it gave, of what the watcher was told.
    id: Option<String>,
    has_begun: bool,
    /// Whether a gap was told since it was last heard.
    is_told: bool,
    task: AbortHandle,
}

impl Others {
    /// Begins to follow all of them: after this place, if one is given, or from now on. Waits until each has begun or
    /// cannot be reached.
    pub(super) async fn begin(
        envoy: Envoy,
        views: watch::Receiver<Arc<View>>,
        last: Option<&str>,
    ) -> Self {
        let (words_in, words) = mpsc::channel(BLOCKS_WAITING_MAX);
        let (followed, waiting, tasks) = (BTreeMap::new(), VecDeque::new(), JoinSet::new());
        let mut others = Self { envoy, views, followed, words_in, words, waiting, tasks };
        others.views.borrow_and_update();
        for server in others.envoy.others() {
            others.follow(server, last.map(str::to_owned));
        }
        let beginning = async {
            while others.followed.values().any(|place| !place.has_begun && !place.is_told) {
                let Some((from, word)) = others.words.recv().await else { return };
                others.hear(from, word);
            }
        };
        if tokio::time::timeout(Envoy::patience(), beginning).await.is_err() {
            others.waiting.push_back(Waiting::gap());
        }
        others
    }

    /// The next thing that came; waits for it. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            if let Some(Waiting { stands, heard }) = self.waiting.pop_front() {
                if let Some((from, id)) = stands
                    && let Some(place) = self.followed.get_mut(&from)
                {
                    place.id = Some(id);
                }
                return heard;
            }
            tokio::select! {
                biased;
                Ok(()) = self.views.changed() => self.look(),
                Some((from, word)) = self.words.recv() => self.hear(from, word),
                else => return std::future::pending().await,
            }
        }
    }

    /// Where each of them stands, as ids of theirs.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.followed.values().filter_map(|place| place.id.as_deref())
    }

    /// Follows who has come, and leaves who has gone.
    fn look(&mut self) {
        self.views.borrow_and_update();
        let there = self.envoy.others();
        let is_there = |session: &SessionKey| there.iter().any(|server| server.session == *session);
        let gone: Vec<SessionKey> =
            self.followed.keys().filter(|session| !is_there(session)).cloned().collect();
        for session in gone {
            let place = self.followed.remove(&session).expect("it was there");
            place.task.abort();
            if !place.is_told {
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
        let (envoy, out) = (self.envoy.clone(), self.words_in.clone());
        let task = self.tasks.spawn(async move { follow(&envoy, &server, last, &out).await });
        let place = Place { id: None, has_begun: false, is_told: false, task };
        self.followed.insert(session, place);
    }

    fn hear(&mut self, from: SessionKey, word: Word) {
        // What a server said that has gone meanwhile is told as a gap.
        let Some(place) = self.followed.get_mut(&from) else { return };
        let Word::Block(block) = word else {
            if !std::mem::replace(&mut place.is_told, true) {
                self.waiting.push_back(Waiting::gap());
            }
            return;
        };
        (place.has_begun, place.is_told) = (true, false);
        match block.kind.filter(|_| !block.data.is_empty()) {
            Some(kind) => {
                let heard = Heard::Event { kind, data: block.data };
                self.waiting.push_back(Waiting { stands: block.id.map(|id| (from, id)), heard });
            }
            // Nothing happened up to there, unless something waits that did.
            None if self.waiting.is_empty() => place.id = block.id.or_else(|| place.id.take()),
            None => {}
        }
    }
}

/// Follows one server for as long as somebody listens.
async fn follow(
    envoy: &Envoy,
    server: &Server,
    mut last: Option<String>,
    out: &mpsc::Sender<(SessionKey, Word)>,
) {
    let say = async |word| out.send((server.session.clone(), word)).await.is_ok();
    loop {
        match envoy.follow(server, last.as_deref()).await {
            Ok(mut followed) => {
                while let Ok(block) = followed.next().await {
                    last = block.id.clone().or(last);
                    if !say(Word::Block(block)).await {
                        return;
                    }
                }
                tokio::time::sleep(BREATH).await;
            }
            Err(why) => {
                tracing::debug!(node = %server.node(), why, "events of a server cannot be followed");
                if !say(Word::Away).await {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
