//! `watchbell witness`: what it sees while it sees it on stderr, and a report at the end on stdout.

use std::io::{self, Write};
use std::net::SocketAddr;

use tokio::time::{Instant, sleep_until};
use witness::{Event, EventReader, Events, ListenError, Witness, WitnessSettings};

use crate::args::OutputFormat;
use crate::args::witness::WitnessArgs;
use crate::exit::{Ending, say};
use crate::serve::Stops;
use crate::table::terminal_width;

/// How wide a chart is where no terminal says how wide it may be.
const COLUMNS: usize = 80;

/// Watches until it is told to stop, or for as long as it was told to.
pub(crate) async fn witness(typed: &WitnessArgs) -> Result<(), Ending> {
    // Whoever tells it to stop while it starts is heard.
    let mut stops = Stops::new()?;
    let end = typed.length.map(|length| Instant::now() + length);
    let settings = WitnessSettings { listen: typed.listen, udp: typed.udp, gap: typed.gap };
    let witness = Witness::start(settings).await.map_err(|why| cannot_listen(&why, typed.udp))?;
    let mut reader = witness.reader();
    say(&format!(
        "the witness listens on http://{} and udp://{}; Ctrl-C ends it with a report",
        witness.address(),
        witness.udp_address()
    ));
    let over = async {
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stops.next() => {}
        () = over => {}
        () = tell(&mut reader) => {}
    }
    while let Some(events) = reader.take() {
        tell_of(events);
    }
    show(&witness, typed.output)
}

/// Says what is seen. It has no end.
async fn tell(reader: &mut EventReader) {
    loop {
        tell_of(reader.next().await);
    }
}

fn tell_of(events: Events) {
    let events = match events {
        Events::Missed => return say("more was seen than could be told here: see the report"),
        Events::Some(events) => events,
    };
    for (_, event) in events {
        match &*event {
            // There are twenty of them in a second.
            Event::Tick(_) => {}
            Event::Happening(happening) => say(&happening.text()),
        }
    }
}

/// Shows the report, and ends as it says.
fn show(witness: &Witness, output: OutputFormat) -> Result<(), Ending> {
    let report = witness.report();
    let text = match output {
        OutputFormat::Table => report.text(terminal_width().unwrap_or(COLUMNS)),
        OutputFormat::Json => {
            format!("{}\n", serde_json::to_string(&report).expect("a report serializes"))
        }
    };
    let mut out = io::stdout().lock();
    let shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if !report.all_is_well {
        // Also if nobody reads the report.
        return Err(Ending::overlap(report.verdict()));
    }
    Ok(shown?)
}

fn cannot_listen(error: &ListenError, udp: Option<SocketAddr>) -> Ending {
    let ListenError { at, why } = error;
    let flag = if udp == Some(*at) { "--udp" } else { "--listen" };
    if why.kind() == io::ErrorKind::PermissionDenied {
        return Ending::refused(format!(
            "no permission to listen on {at}: ports below 1024 are for root; give another with {flag}"
        ));
    }
    Ending::unreachable(format!(
        "cannot listen on {at}: {why}; stop whoever does, or give another address with {flag}"
    ))
}
