//! Hints between processes, off the path of commits.
//!
//! A notification inside of a commit would make all commits wait for each other. So each process has one connection on which
//! it tells the others what was committed within the last few milliseconds, in one notification, and hears what they tell.
//! Behind a pooler that hands connections from one client to another nothing is heard. Each new connection tries that out;
//! if nothing is heard, the store is asked for its last version a few times a second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::PostgresShared;
use super::connect::Hearer;
use super::option::Listen;
use crate::entropy::random_u64;
use crate::{Key, Watchers};

/// Postgres takes payloads of less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

/// Two notifications of a process are at least this far apart.
const GAP: Duration = Duration::from_millis(5);

/// How often the store is asked for its last version where no notification is heard.
const POLL: Duration = Duration::from_millis(200);

/// How long a notification may take to be heard by its own sender before it is taken for lost.
const ECHO_MAX: Duration = Duration::from_secs(1);

/// How often the server is looked at: its settings may have changed.
const LOOK: Duration = Duration::from_secs(5);

/// After a new version, so many further looks notify watchers too: a version is given before its commit can be seen.
const AFTERGLOW: u32 = 2;

/// The first pause before another connection is tried, and the longest.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Stands for so many keys that they are not named.
const EVERYTHING: &str = "*";

/// What was committed and not told yet, and what was heard.
pub(super) struct Hinter {
    /// Tells this process's notifications from others'.
    id: String,
    channel: String,
    untold: Mutex<Untold>,
    bell: Notify,
    /// The last of our own notifications that was heard.
    echo: watch::Sender<String>,
}

#[derive(Default)]
struct Untold {
    keys: BTreeSet<String>,
    bytes: usize,
    is_too_much: bool,
}

impl Hinter {
    pub(super) fn new(schema: &str) -> Self {
        Self {
            id: format!("{:016x}", random_u64()),
            channel: format!("watchbell_{schema}"),
            untold: Mutex::default(),
            bell: Notify::new(),
            echo: watch::Sender::new(String::new()),
        }
    }

    /// Tells other processes that these keys have changed, or may have.
    pub(super) fn tell<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let mut untold = self.untold.lock();
        for key in keys {
            if untold.bytes + key.len() + 1 > PAYLOAD_BYTES_MAX - self.id.len() {
                untold.is_too_much = true;
                break;
            }
            if untold.keys.insert(key.as_str().to_owned()) {
                untold.bytes += key.len() + 1;
            }
        }
        self.bell.notify_one();
    }

    fn take(&self) -> Option<String> {
        let mut untold = self.untold.lock();
        let Untold { keys, is_too_much, .. } = std::mem::take(&mut *untold);
        if is_too_much {
            return Some(format!("{} {EVERYTHING}", self.id));
        }
        let mut text = self.id.clone();
        for key in &keys {
            text.push(' ');
            text.push_str(key);
        }
        (!keys.is_empty()).then_some(text)
    }

    /// Takes in a notification: the sender's id, and keys.
    fn hear(&self, payload: &str, watchers: &Watchers) {
        let mut words = payload.split(' ');
        if words.next() == Some(self.id.as_str()) {
            // Our own watchers were told when the commit was done.
            self.echo.send_replace(words.next().unwrap_or_default().to_owned());
            return;
        }
        let words: Vec<_> = words.collect();
        let keys: Vec<_> = words.iter().filter_map(|word| Key::new(*word).ok()).collect();
        if words.contains(&EVERYTHING) || keys.len() < words.len() {
            watchers.notify_all();
        } else {
            watchers.notify(&keys.iter());
        }
    }
}

/// A connection whose task ends with it.
struct HintConnection {
    client: Client,
    task: JoinHandle<()>,
}

impl Drop for HintConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells and hears for as long as the store is open, over as many connections as it takes.
pub(super) async fn keep(shared: Arc<PostgresShared>) {
    let mut pause = PAUSE[0];
    loop {
        if let Ok(line) = connect(&shared).await {
            pause = PAUSE[0];
            if let Err(why) = serve(&shared, &line.client).await {
                tracing::debug!(why, "the connection for hints is made anew");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE[1]);
    }
}

async fn connect(shared: &Arc<PostgresShared>) -> Result<HintConnection, ()> {
    let hearing = Arc::downgrade(shared);
    let hearer: Hearer = Arc::new(move |payload: &str| {
        if let Some(shared) = hearing.upgrade() {
            shared.hinter.hear(payload, &shared.watchers);
        }
    });
    let (client, task) = shared.connector.connect(Some(hearer)).await.map_err(drop)?;
    Ok(HintConnection { client, task })
}

async fn serve(shared: &PostgresShared, client: &Client) -> Result<(), String> {
    let is_heard = shared.listen == Listen::IfHeard && listen(shared, client).await?;
    if !is_heard {
        tracing::info!("notifications of the store are not heard: it is asked instead");
    }
    // Whatever was missed meanwhile.
    shared.watchers.notify_all();
    let (mut last, mut glow) = (None, 0);
    let mut poll = tokio::time::interval(if is_heard { LOOK } else { POLL });
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = shared.hinter.bell.notified() => {
                if let Some(payload) = shared.hinter.take() {
                    notify(shared, client, &payload).await?;
                    sleep(GAP).await;
                }
            }
            _ = poll.tick(), if !is_heard => {
                let found = bounded(last_version(shared, client)).await?;
                glow = if last == Some(found) { u32::saturating_sub(glow, 1) } else { AFTERGLOW + 1 };
                if glow > 0 && last.is_some() {
                    shared.watchers.notify_all();
                }
                last = Some(found);
            }
            _ = look.tick() => shared.look(client).await?,
        }
    }
}

/// Whether what is told to the channel is heard on this connection.
async fn listen(shared: &PostgresShared, client: &Client) -> Result<bool, String> {
    bounded(client.batch_execute(&format!("LISTEN \"{}\"", shared.hinter.channel))).await?;
    // By another connection: one that shares ours would hear itself even behind a pooler.
    let Ok(other) = shared.lease().await else { return Err("there is no other connection".into()) };
    let word = format!("?{:016x}", random_u64());
    let mut echo = shared.hinter.echo.subscribe();
    notify(shared, other.client(), &format!("{} {word}", shared.hinter.id)).await?;
    other.done();
    Ok(timeout(ECHO_MAX, echo.wait_for(|heard| *heard == word)).await.is_ok())
}

async fn notify(shared: &PostgresShared, client: &Client, payload: &str) -> Result<(), String> {
    let channel = shared.hinter.channel.as_str();
    let told = [(&channel as &_, Type::TEXT), (&payload as &_, Type::TEXT)];
    bounded(client.query_typed("SELECT pg_notify($1, $2)", &told)).await.map(drop)
}

async fn last_version(shared: &PostgresShared, client: &Client) -> Result<i64, Error> {
    let query = format!("SELECT last_value FROM \"{}\".version", shared.schema);
    Ok(client.query_typed_one(&query, &[]).await?.get(0))
}

async fn bounded<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match timeout(STORE_ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(|why| super::fault::sentence(&why)),
        Err(_) => Err("no answer came in time".to_owned()),
    }
}
