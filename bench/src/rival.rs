//! The rivals, each behind the same group commit.

use std::path::Path;
use std::thread::JoinHandle;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tokio::sync::{mpsc, oneshot};

/// Keys and values that go in together.
pub type Batch = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Copy)]
pub enum Engine {
    Fjall,
    Redb,
    Sqlite,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Fjall, Self::Redb, Self::Sqlite];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::Sqlite => "SQLite (WAL, FULL)",
        }
    }
}

type Request = (Batch, oneshot::Sender<()>);

/// One thread that merges whatever waits into one durable transaction.
pub struct Grouped {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Grouped {
    pub fn open(engine: Engine, dir: &Path) -> Self {
        let (requests, waiting) = mpsc::channel(1_024);
        let dir = dir.to_owned();
        let thread = std::thread::spawn(move || match engine {
            Engine::Fjall => {
                let engine = Fjall::open(&dir);
                serve(waiting, |group| engine.write(group));
            }
            Engine::Redb => {
                let database = redb::Database::create(dir.join("redb")).unwrap();
                serve(waiting, |group| redb_write(&database, group));
            }
            Engine::Sqlite => {
                let mut connection = sqlite_open(&dir);
                serve(waiting, |group| sqlite_write(&mut connection, group));
            }
        });
        Self { requests: Some(requests), thread: Some(thread) }
    }

    pub async fn commit(&self, batch: Batch) {
        let (reply, answer) = oneshot::channel();
        self.requests.as_ref().unwrap().send((batch, reply)).await.unwrap();
        answer.await.unwrap();
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        drop(self.requests.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(
    mut waiting: mpsc::Receiver<Request>,
    mut write: impl FnMut(&mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>),
) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while group.len() < 1_024
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        let (batches, replies): (Vec<Batch>, Vec<_>) = group.into_iter().unzip();
        write(&mut batches.into_iter().flatten());
        for reply in replies {
            let _ = reply.send(());
        }
    }
}

pub struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Fjall {
    pub fn open(dir: &Path) -> Self {
        let database = Database::builder(dir).open().unwrap();
        let keyspace = database.keyspace("bench", KeyspaceCreateOptions::default).unwrap();
        Self { database, keyspace }
    }

    pub fn write(&self, records: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in records {
            batch.insert(&self.keyspace, key, value);
        }
        batch.commit().unwrap();
    }

    /// Reads everything, keys and values.
    pub fn count(&self) -> usize {
        self.keyspace
            .iter()
            .map(|entry| entry.into_inner().unwrap())
            .filter(|(key, value)| !key.is_empty() && !value.is_empty())
            .count()
    }
}

const TABLE: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("bench");

fn redb_write(database: &redb::Database, records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) {
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(TABLE).unwrap();
        for (key, value) in records {
            table.insert(key.as_slice(), value.as_slice()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

fn sqlite_open(dir: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(dir.join("sqlite")).unwrap();
    connection
        .execute_batch(
            "pragma journal_mode = wal; pragma synchronous = full;
             create table if not exists bench (key blob primary key, value blob) without rowid;",
        )
        .unwrap();
    connection
}

fn sqlite_write(
    connection: &mut rusqlite::Connection,
    records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
) {
    let transaction = connection.transaction().unwrap();
    {
        let mut insert =
            transaction.prepare_cached("insert or replace into bench values (?, ?)").unwrap();
        for (key, value) in records {
            insert.execute((key, value)).unwrap();
        }
    }
    transaction.commit().unwrap();
}
