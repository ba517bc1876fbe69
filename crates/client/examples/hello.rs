//! Makes a trigger, starts a run of it, hears of its end, and takes the trigger away again.
//!
//! ```text
//! watchbell dev &
//! cargo run --package watchbell-client --example hello -- http://127.0.0.1:7400 http://127.0.0.1:7400/livez
//! ```
//!
//! A test of the command line runs it against a real server.

use client::event::EventKind;
use client::run::RunState;
use client::spec::TriggerSpec;
use client::{Client, ClientError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(webhook)) = (args.next(), args.next()) else {
        return Err("usage: hello SERVER WEBHOOK [KEY]".into());
    };
    let mut builder = Client::builder(&server);
    if let Some(key) = args.next() {
        builder = builder.key(key);
    }
    let state = hello(&builder.build()?, &webhook).await?;
    println!("the run {}", state.as_str());
    Ok(())
}

/// How a run of a trigger that calls this webhook ends.
pub(crate) async fn hello(client: &Client, webhook: &str) -> Result<RunState, ClientError> {
    // Watching begins first, so that the end cannot be missed.
    let mut events = client.events().await?;
    let spec = TriggerSpec::webhook("hello-example", webhook);
    let trigger = client.put_trigger("hello-example", &spec, None).await?;
    let started = client.run(&trigger.id, None).await?;
    let state = loop {
        match events.next().await?.what {
            EventKind::RunEnded { run, state, .. } if run == started.id => break state,
            // What happened meanwhile is not known: it may be over, and then nobody says so again.
            EventKind::Reset => match client.run_by_id(&started.id).await?.state {
                state if state.is_end() => break state,
                _ => {}
            },
            _ => {}
        }
    };
    client.delete_trigger(&trigger.id).await?;
    Ok(state)
}
