//! A store on Postgres.
//!
//! One schema of a database: a table of entries, a sequence of versions, and two functions. A commit is one call of the one,
//! which locks, then checks, then writes (`schema.sql` says why in this order); a page is one call of the other. Both
//! answer with the incarnation of the server that they ran on, so that a fail-over is noticed by the first answer: see
//! `epoch`. Every call takes a connection from a pool, and connections look for the host that takes writes: see `connect`.
//! Hints travel beside commits: see `hint`.
//!
//! Only unnamed statements are used and nothing is set on a connection, so that a pooler such as `PgBouncer` may stand in
//! between.

mod batch;
mod connect;
mod epoch;
mod fault;
mod hint;
mod migrate;
mod option;
mod request;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use engine::limits::{PAGE_BYTES_MAX, STORE_ANSWER_MAX};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, Row};

use self::batch::Keys;
use self::connect::PostgresConnector;
use self::epoch::{EpochChange, IncarnationStatus, PostgresEpochs, PostgresServer};
use self::fault::CommitFate;
use self::hint::Hinter;
use self::migrate::MigrateError;
use self::option::{Listen, Options};
use self::request::CommitColumns;
use crate::batching::{Batcher, WaitingCommit};
use crate::{
    Adapter, Address, Class, Commit, CommitError, Conflict, EngineFault, Entry, Epoch, Hints, Key,
    Limits, OpenError, Page, Pending, Range, Refusal, ScanError, Store, Value, Version, Watchers,
    Write,
};

/// A batch of 1,000 runs fits. Postgres takes far more; 1,000 writes take some 30 ms.
const LIMITS: Limits =
    Limits { writes: 3_072, commit_bytes: 4 * 1024 * 1024, value_bytes: 1024 * 1024 };

/// The oldest version with everything that the functions use: 12.
const VERSION_MIN: i32 = 120_000;

/// A little less than callers wait, so that they hear from whoever knows best.
const ANSWER_MAX: Duration = STORE_ANSWER_MAX.saturating_sub(Duration::from_millis(100));

/// Times that a commit is sent which was undone for being in somebody's way.
const TRIES_MAX: usize = 5;

/// A store on Postgres.
pub struct PostgresStore {
    shared: Arc<PostgresShared>,
    batcher: Batcher,
    /// Tasks that end with the store.
    _tasks: JoinSet<()>,
}

/// What calls and the task of hints share.
struct PostgresShared {
    /// The URL without its secrets.
    name: String,
    schema: String,
    listen: Listen,
    hosts: usize,
    connector: PostgresConnector,
    pool: Pool,
    epochs: PostgresEpochs,
    hinter: Hinter,
    watchers: Watchers,
    lock: u64,
    commit_sql: String,
    scan_sql: String,
}

impl PostgresStore {
    /// Connects, makes the schema if there is none, and makes sure that the engine can be relied on.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        let options = Options::of(at)?;
        let engine = |fault: EngineFault, why: String| OpenError::Engine {
            store: at.to_string(),
            fault,
            why,
        };
        let connector =
            PostgresConnector::new(at, &options).map_err(|why| engine(EngineFault::Tls, why))?;
        let connected = connector.connect(None).await;
        let (client, task) = connected.map_err(|faults| {
            let (fault, why) = fault::of_hosts(&faults);
            engine(fault, why)
        })?;
        let greeted = timeout(STORE_ANSWER_MAX * 2, greet(&client, &options.schema, at)).await;
        let late = |_| engine(EngineFault::Unreachable, "no answer came in time".to_owned());
        let server = greeted.map_err(late)??;
        drop(client);
        task.abort();

        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(Config::new(), connector.clone(), manager_config);
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a pool with a runtime and without hooks can be built");
        let schema = options.schema;
        let shared = Arc::new(PostgresShared {
            name: at.to_string(),
            listen: options.listen,
            hosts: at.hosts.len(),
            connector,
            pool,
            epochs: PostgresEpochs::new(server),
            hinter: Hinter::new(&schema),
            watchers: Watchers::default(),
            lock: request::store_lock(&schema),
            commit_sql: format!(
                "SELECT * FROM \"{schema}\".commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
            ),
            scan_sql: format!("SELECT * FROM \"{schema}\".scan($1, $2, $3, $4)"),
            schema,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(hint::keep(Arc::clone(&shared)));
        let carrier = Arc::clone(&shared);
        let batcher = Batcher::open::<Keys, _>(options.connections, &mut tasks, move |batch| {
            let carrier = Arc::clone(&carrier);
            async move { carrier.send(batch).await }
        });
        Ok(Store::new(Self { shared, batcher, _tasks: tasks }))
    }
}

/// Checks version, schema and rights, once, before the first commit.
async fn greet(client: &Client, schema: &str, at: &Address) -> Result<PostgresServer, OpenError> {
    let engine =
        |fault: EngineFault, why: String| OpenError::Engine { store: at.to_string(), fault, why };
    let failed = |why: Error| engine(fault::of(&why), fault::sentence(&why));
    let query =
        "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";
    let row = client.query_typed_one(query, &[]).await.map_err(failed)?;
    check_version(row.get(0), row.get(1)).map_err(|why| engine(EngineFault::TooOld, why))?;
    match migrate::migrate(client, schema).await {
        Ok(()) => {}
        Err(MigrateError::Engine(why)) => {
            let fault = fault::of(&why);
            return Err(engine(fault, format!("schema {schema}: {}", fault::sentence(&why))));
        }
        Err(MigrateError::Format(why)) => {
            return Err(OpenError::Format { path: format!("{at} (schema {schema})").into(), why });
        }
    }
    check_rights(client, schema)
        .await
        .map_err(failed)?
        .map_err(|why| engine(EngineFault::Password, why))?;
    PostgresServer::look(client, schema, at.hosts.len()).await.map_err(failed)
}

fn check_version(number: i32, name: &str) -> Result<(), String> {
    if number >= VERSION_MIN {
        return Ok(());
    }
    Err(format!("it is Postgres {name}, and 12 is the oldest that will do"))
}

/// Whether this user may do what commits do.
async fn check_rights(client: &Client, schema: &str) -> Result<Result<(), String>, Error> {
    let query = format!(
        r#"SELECT missing FROM (VALUES
            ('SELECT, INSERT, UPDATE and DELETE on {schema}.entry',
                has_table_privilege('"{schema}".entry', 'SELECT') AND has_table_privilege('"{schema}".entry', 'INSERT')
                AND has_table_privilege('"{schema}".entry', 'UPDATE') AND has_table_privilege('"{schema}".entry', 'DELETE')),
            ('SELECT and UPDATE on {schema}.about',
                has_table_privilege('"{schema}".about', 'SELECT') AND has_table_privilege('"{schema}".about', 'UPDATE')),
            ('SELECT and UPDATE on the sequence {schema}.version',
                has_sequence_privilege('"{schema}".version', 'SELECT')
                AND has_sequence_privilege('"{schema}".version', 'UPDATE'))
        ) AS need (missing, given) WHERE NOT given"#
    );
    let row = client.query_typed_opt(&query, &[]).await?;
    Ok(row.map_or(Ok(()), |row| Err(format!("this user lacks {}", row.get::<_, &str>(0)))))
}

/// A connection from the pool. If [`Lease::done`] is not called it is closed: an answer may still be on its way.
struct Lease(Option<Object>);

impl Lease {
    fn client(&self) -> &Client {
        self.0.as_ref().expect("it is there until it is done")
    }

    /// Gives the connection back, after its answer has arrived.
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

impl PostgresShared {
    /// A connection, if there is one within half of the time that an answer may take.
    async fn lease(&self) -> Result<Lease, String> {
        match timeout(STORE_ANSWER_MAX / 2, self.pool.get()).await {
            Ok(Ok(object)) => Ok(Lease(Some(object))),
            Ok(Err(deadpool_postgres::PoolError::Backend(why))) => Err(fault::sentence(&why)),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err("no connection came about in time".to_owned()),
        }
    }

    /// Looks at the server behind a connection.
    async fn look(&self, client: &Client) -> Result<(), String> {
        let look = PostgresServer::look(client, &self.schema, self.hosts);
        let seen = match timeout(STORE_ANSWER_MAX, look).await {
            Ok(seen) => seen.map_err(|why| fault::sentence(&why))?,
            Err(_) => return Err("no answer came in time".to_owned()),
        };
        match self.epochs.note(seen) {
            EpochChange::None => Ok(()),
            EpochChange::Begun => {
                let now = self.epochs.now();
                tracing::warn!(store = self.name, epoch = self.epochs.epoch().0, class = %now.class, "a new epoch of the store");
                self.watchers.notify_all();
                Ok(())
            }
            EpochChange::Former => Err(self.leave_former()),
        }
    }

    fn leave_former(&self) -> String {
        self.connector.move_on();
        "a former primary answered".to_owned()
    }

    /// Whether an answer of this incarnation, on this connection, counts; or why not.
    async fn weigh(&self, client: &Client, incarnation: Option<&str>) -> Result<(), String> {
        let Some(incarnation) = incarnation else { return Err("a standby answered".to_owned()) };
        for _ in 0..2 {
            match self.epochs.worth(incarnation) {
                IncarnationStatus::Present => return Ok(()),
                IncarnationStatus::Former => return Err(self.leave_former()),
                IncarnationStatus::Unseen => self.look(client).await?,
            }
        }
        Err("the store fails over".to_owned())
    }

    /// Sends commits that touch no key of each other, and tells each what came of it.
    async fn send(&self, batch: Vec<WaitingCommit>) {
        let commits = batch.iter().map(|waiting| &waiting.commit);
        let outcome = self.commit(commits.clone()).await;
        if matches!(outcome, Ok(_) | Err(CommitError::Unknown(_))) {
            let keys = commits.flat_map(|commit| commit.then.iter().map(Write::key));
            self.watchers.notify(&keys.clone());
            self.hinter.tell(keys);
        }
        match outcome {
            Ok(outcomes) => {
                for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                    waiting.answer(outcome.map_err(CommitError::Conflict));
                }
            }
            Err(why) => batch.into_iter().for_each(|waiting| waiting.answer(Err(why.clone()))),
        }
    }

    async fn commit<'a>(
        &self,
        commits: impl ExactSizeIterator<Item = &'a Commit> + Clone,
    ) -> Result<Vec<Result<Version, Conflict>>, CommitError> {
        let request = CommitColumns::of(commits.clone(), self.lock);
        let columns = request.columns();
        let deadline = Instant::now() + ANSWER_MAX;
        let unknown = |why: &str| Err(CommitError::Unknown(why.to_owned()));
        for _ in 0..TRIES_MAX {
            let lease = self.lease().await.map_err(CommitError::Unavailable)?;
            let warnings = self.connector.warnings();
            let answer = lease.client().query_typed(&self.commit_sql, &columns);
            match timeout_at(deadline, answer).await {
                Err(_) => return unknown("no answer came in time"),
                Ok(Ok(_)) if self.connector.warnings() != warnings => {
                    return unknown("the server warned while it committed");
                }
                Ok(Ok(rows)) => {
                    let Some(row) = rows.first() else { return unknown("the answer is empty") };
                    if let Err(why) = self.weigh(lease.client(), row.get(3)).await {
                        return unknown(&why);
                    }
                    lease.done();
                    return request::outcomes(commits, row).ok_or_else(|| {
                        CommitError::Corrupt("the answer to a commit makes no sense".to_owned())
                    });
                }
                Ok(Err(why)) => match fault::fate(&why) {
                    CommitFate::Again => lease.done(),
                    CommitFate::Undone => {
                        lease.done();
                        return Err(CommitError::Unavailable(fault::sentence(&why)));
                    }
                    CommitFate::Full => {
                        lease.done();
                        return Err(Refusal::Full { place: self.name.clone() }.into());
                    }
                    CommitFate::Elsewhere => {
                        return Err(CommitError::Unavailable(fault::sentence(&why)));
                    }
                    CommitFate::Unknown => return unknown(&fault::sentence(&why)),
                },
            }
        }
        Err(CommitError::Unavailable("other commits were in the way each time".to_owned()))
    }

    async fn scan(&self, range: &Range, limit: usize) -> Result<Page, ScanError> {
        let deadline = Instant::now() + ANSWER_MAX;
        let lease = self.lease().await.map_err(ScanError::Unavailable)?;
        let (first, behind) = request::bounds(range);
        let most = i32::try_from(limit).unwrap_or(i32::MAX);
        let most_bytes = i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX);
        let asked: [(&(dyn ToSql + Sync), Type); 4] = [
            (&first, Type::TEXT),
            (&behind, Type::TEXT),
            (&most, Type::INT4),
            (&most_bytes, Type::INT8),
        ];
        let answer = lease.client().query_typed(&self.scan_sql, &asked);
        let rows = match timeout_at(deadline, answer).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(why)) => return Err(ScanError::Unavailable(fault::sentence(&why))),
            Err(_) => return Err(ScanError::Unavailable("no answer came in time".to_owned())),
        };
        let Some((head, rows)) = rows.split_first() else {
            return Err(ScanError::Unavailable("the answer is empty".to_owned()));
        };
        self.weigh(lease.client(), head.get(0)).await.map_err(ScanError::Unavailable)?;
        lease.done();
        Page::collect(range, limit, rows.iter().map(entry))
    }
}

fn entry(row: &Row) -> Result<Entry, ScanError> {
    let bad = |why: Refusal| ScanError::Corrupt(format!("the table of entries: {why}"));
    let key = Key::new(row.get::<_, &str>(0)).map_err(bad)?;
    // Behind the last entry of a page comes only the key of the next.
    let version = request::version(row.get::<_, Option<i64>>(1).unwrap_or_default());
    let value = row.get::<_, Option<&[u8]>>(2).unwrap_or_default();
    Ok(Entry { key, value: Value::from(Bytes::copy_from_slice(value)), version })
}

impl Adapter for PostgresStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move { self.shared.scan(&range, limit).await })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.batcher.commit(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.shared.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.shared.epochs.now().class
    }

    fn epoch(&self) -> Epoch {
        self.shared.epochs.epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_named_with_what_would_do() {
        assert!(check_version(VERSION_MIN, "12.0").is_ok());
        let why = check_version(VERSION_MIN - 1, "11.22").unwrap_err();
        assert!(why.contains("Postgres 11.22") && why.contains("12"), "{why}");
    }
}
