//! The worker of the list of cases that is the same for all libraries: it says on stdout what its handlers do.
//!
//! `WATCHBELL_SERVER` (URLs with commas between), `WATCHBELL_KEY`, `WATCHBELL_QUEUE`, `WATCHBELL_WORKER`, `CAPACITY`, `LEASE_MS` and
//! `LABELS` (`zone=b`) say what it is to do. SIGTERM drains it. `crates/cli/tests/dev/library.rs` has the cases.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use client::Client;
use client::output::OutputStream;
use serde::Deserialize;
use serde_json::Value;
use worker::{Context, EndReason, HandlerError, Worker};

#[derive(Deserialize)]
struct Nap {
    seconds: f64,
}

#[derive(Deserialize)]
struct Wait {
    file: String,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "final")]
    is_final: bool,
}

#[derive(Deserialize)]
struct Pause {
    ms: u64,
}

#[derive(Deserialize)]
struct Letter {
    to: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let key = setting("WATCHBELL_KEY", "");
    let servers = setting("WATCHBELL_SERVER", "http://127.0.0.1:7400");
    let mut clients = Vec::new();
    for url in servers.split(',') {
        let client = Client::builder(url);
        clients.push(if key.is_empty() { client } else { client.key(&key) }.build()?);
    }
    let labels = setting("LABELS", "");
    let labels = labels.split(',').filter_map(|pair| pair.split_once('='));
    let labels: BTreeMap<String, String> =
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let queues = setting("WATCHBELL_QUEUE", "case");
    let worker = Worker::new(setting("WATCHBELL_WORKER", "case"), queues.split(','))
        .servers(clients)
        .capacity(setting("CAPACITY", "4").parse()?)
        .lease(Duration::from_millis(setting("LEASE_MS", "15000").parse()?))
        .labels(labels)
        // Longer than a case takes: no handler is dropped that has not looked yet.
        .grace(Duration::from_secs(60))
        .handler("echo", |context, _: Value| async move {
            let _told = Told::begin(&context);
            Ok(())
        })
        // Sleeps, and ends early when it is told to.
        .handler("sleep", |context, nap: Nap| async move {
            let _told = Told::begin(&context);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs_f64(nap.seconds)) => Ok(()),
                reason = context.told_to_end() => {
                    say_told(&context, reason);
                    Err(HandlerError::Failed("it was told to end".to_owned()))
                }
            }
        })
        // Waits until it is told to end, and returns then.
        .handler("looks", |context, _: Value| async move {
            let _told = Told::begin(&context);
            say_told(&context, context.told_to_end().await);
            Ok(())
        })
        // Waits for a file, and never looks whether it is to end.
        .handler("deaf", |context, wait: Wait| async move {
            let _told = Told::begin(&context);
            while !Path::new(&wait.file).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
        .handler("fail", |context, failure: Failure| async move {
            let _told = Told::begin(&context);
            let why = "no".to_owned();
            Err(if failure.is_final {
                HandlerError::FailedForGood(why)
            } else {
                HandlerError::Failed(why)
            })
        })
        .handler("later", |context, pause: Pause| async move {
            let _told = Told::begin(&context);
            if context.run().attempt > 1 {
                return Ok(());
            }
            let pause = Duration::from_millis(pause.ms);
            Err(HandlerError::RetryAfter(pause, "busy".to_owned()))
        })
        .handler("typed", |context, letter: Letter| async move {
            let _told = Told::begin(&context);
            context.print(OutputStream::Stdout, letter.to.as_bytes());
            Ok(())
        })
        .handler("progress", |context, _: Value| async move {
            let _told = Told::begin(&context);
            context.progress(Some(50), Some("half"));
            context.print(OutputStream::Stdout, b"hello\n");
            Ok(())
        })
        .handler("die", |context, _: Value| async move {
            say(&format!("begin {} {} {}", id(&context), attempt(&context), context.run().token));
            std::process::exit(9)
        })
        .build()?;
    worker.run_until_signal().await?;
    say("drained");
    Ok(())
}

/// Says when a handler begins, and when it ends, whether it returns or is dropped.
struct Told(Context);

impl Told {
    fn begin(context: &Context) -> Self {
        say(&format!("begin {} {} {}", id(context), attempt(context), context.run().token));
        Self(context.clone())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        say(&format!("end {} {}", id(&self.0), attempt(&self.0)));
    }
}

fn say_told(context: &Context, reason: EndReason) {
    let word = match reason {
        EndReason::Cancelled => "cancelled",
        EndReason::TimedOut => "timeout",
        EndReason::Lost => "lost",
        EndReason::Unconfirmed => "unconfirmed",
        EndReason::Stopping => "stopping",
    };
    say(&format!("told {} {word}", id(context)));
}

fn id(context: &Context) -> &str {
    &context.run().id
}

fn attempt(context: &Context) -> u32 {
    context.run().attempt
}

/// A line, by one write.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush())
        .expect("somebody reads it");
}

#[expect(clippy::disallowed_methods, reason = "an example has no command line")]
fn setting(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.to_owned())
}
