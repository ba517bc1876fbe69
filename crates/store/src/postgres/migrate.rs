//! The schema: made by whoever comes first, however many come at once.

use engine::record::{Format, RecordError};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

/// The format that this version makes and reads.
const FORMAT: i32 = 1;

/// Held while the schema is made, so that others wait and then find it. One for all databases and schemas: it is short.
const LOCK: i64 = 0x7761_7463_6862_656c;

/// A crash may lose commits where they do not wait for the disk, but not the schema: nobody would make it again.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'local', true) \
    WHERE current_setting('synchronous_commit') = 'off'";

const SQL: [&str; 2] = [include_str!("schema.sql"), include_str!("view.sql")];

/// Why there is no schema to work in.
pub(super) enum MigrateError {
    /// The server said so.
    Engine(Error),
    /// It is there, and not ours to read.
    Format(RecordError),
}

impl From<Error> for MigrateError {
    fn from(why: Error) -> Self {
        Self::Engine(why)
    }
}

/// Makes the schema if there is none; refuses one that a newer version made.
pub(super) async fn migrate(client: &Client, schema: &str) -> Result<(), MigrateError> {
    if !is_there(client, schema).await? {
        client
            .batch_execute(&format!("BEGIN; {DURABLE}; SELECT pg_advisory_xact_lock({LOCK})"))
            .await?;
        let made = make(client, schema).await;
        let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(end).await?;
        made?;
    }
    check_format(client, schema).await
}

async fn make(client: &Client, schema: &str) -> Result<(), Error> {
    if is_there(client, schema).await? {
        return Ok(());
    }
    // Asked for even if the schema is there, the right to make one would be needed.
    if !exists(client, "SELECT to_regnamespace($1) IS NOT NULL", &format!("\"{schema}\"")).await? {
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    for sql in SQL {
        client.batch_execute(&sql.replace("\"watchbell\"", &format!("\"{schema}\""))).await?;
    }
    Ok(())
}

async fn is_there(client: &Client, schema: &str) -> Result<bool, Error> {
    // The catalogue itself, because names are not resolved in a schema that may not be used.
    let query = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'about')";
    exists(client, query, schema).await
}

async fn exists(client: &Client, query: &str, name: &str) -> Result<bool, Error> {
    Ok(client.query_typed_one(query, &[(&name, Type::TEXT)]).await?.get(0))
}

async fn check_format(client: &Client, schema: &str) -> Result<(), MigrateError> {
    let query = format!("SELECT format FROM \"{schema}\".about");
    let found: i32 = match client.query_typed_opt(&query, &[]).await? {
        Some(row) => row.get(0),
        None => return Err(MigrateError::Format(RecordError::Malformed("about is empty".into()))),
    };
    let format = |number: i32| Format(u32::try_from(number).unwrap_or_default());
    match found {
        FORMAT => Ok(()),
        newer if newer > FORMAT => Err(MigrateError::Format(RecordError::Newer {
            found: format(newer),
            reads: format(FORMAT),
        })),
        other => {
            Err(MigrateError::Format(RecordError::Malformed(format!("it has format {other}"))))
        }
    }
}
