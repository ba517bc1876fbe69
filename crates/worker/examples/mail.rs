//! A worker with one handler and a spool. With `watchbell dev` in another terminal:
//!
//! ```text
//! cargo run -p watchbell-worker --example mail
//! watchbell run submit --queue mail --handler welcome --payload '{"to": "ann@example.com"}'
//! watchbell run output run_… --follow
//! ```

use std::error::Error;
use std::path::Path;

use client::Client;
use client::output::OutputStream;
use worker::{Context, HandlerError, Spool, Worker};

/// What a run of `welcome` is about.
#[derive(serde::Deserialize)]
struct Welcome {
    to: String,
}

async fn welcome(context: Context, payload: Welcome) -> Result<(), HandlerError> {
    if !payload.to.contains('@') {
        // Another attempt would find the same address.
        let why = format!("{:?} is no address", payload.to);
        return Err(HandlerError::FailedForGood(why));
    }
    context.progress(Some(50), Some("talking to the relay"));
    context.print(OutputStream::Stdout, format!("welcome, {}\n", payload.to).as_bytes());
    Ok(())
}

/// The worker: what is on disk of it lies below `dir`.
pub(crate) async fn mail_worker(server: Client, dir: &Path) -> Result<Worker, Box<dyn Error>> {
    let spool = Spool::open(dir, "mail-1").await?;
    let worker = Worker::new("mail-1", ["mail"]).servers([server]).handler("welcome", welcome);
    Ok(worker.spool(spool).build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let worker =
        mail_worker(Client::new("http://127.0.0.1:7400")?, Path::new("mail-spool")).await?;
    Ok(worker.run_until_signal().await?)
}
