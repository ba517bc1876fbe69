//! `watchbell ring watch`: a ring while it turns.
//!
//! What is shown is what the entries of the subscription say, in their order: the same for everybody who watches, by whichever
//! server. When a server is gone the next one is asked, from the same place; what is not kept any more is told as a gap.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use client::ring::{FollowedEvent, RingEvent};
use client::{Client, ClientError, RingEvents, RingFilter};
use engine::limits::LIST_ROWS_MAX;
use serde_json::json;

use super::circle;
use crate::args::OutputFormat;
use crate::args::ring::RingWatchArgs;
use crate::exit::Ending;
use crate::outage::Outage;
use crate::table::terminal_width;
use crate::value::escape;

/// How long a server may take to answer before another one is asked.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Lines that stand below the circle.
const LINES_BELOW: usize = 8;

/// How many columns a picture has where the terminal does not say.
const COLUMNS: usize = 76;

pub(super) async fn watch(typed: &RingWatchArgs) -> Result<(), Ending> {
    let show: Box<dyn Show> = match typed.servers.output {
        OutputFormat::Json => Box::new(JsonLines),
        OutputFormat::Table if typed.lines || !io::stdout().is_terminal() => Box::new(TextLines),
        OutputFormat::Table => Box::new(Picture::new(typed)),
    };
    tokio::select! {
        ended = follow(typed, show) => ended,
        // Whoever follows ends it so: that is fine.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn follow(typed: &RingWatchArgs, mut show: Box<dyn Show>) -> Result<(), Ending> {
    let servers: Vec<Client> = typed.servers.clients()?;
    let servers: Vec<Client> =
        servers.into_iter().map(|server| server.with_timeout(ANSWER_TIME_MAX)).collect();
    let (mut at, mut place, mut outage) = (0, typed.after.clone(), Outage::default());
    let mut count = 0;
    loop {
        let mut events = match begin(&servers[at], typed, place.as_deref(), show.as_mut()).await {
            Ok(events) => events,
            Err(why) => {
                at = (at + 1) % servers.len();
                outage.wait(why).await?;
                continue;
            }
        };
        outage.end();
        loop {
            let told = match events.next().await {
                Ok(told) => told,
                Err(why) => {
                    at = (at + 1) % servers.len();
                    outage.wait(why).await?;
                    break;
                }
            };
            place = told.place.clone().or(place);
            show.event(&told)?;
            count +=
                u64::from(matches!(told.what, RingEvent::Turn { .. } | RingEvent::Skip { .. }));
            if typed.count.is_some_and(|most| count >= most) {
                return Ok(());
            }
            if matches!(told.what, RingEvent::Closing { .. }) {
                at = (at + 1) % servers.len();
                break;
            }
        }
    }
}

/// Begins to follow, and then looks who is in the ring: whoever joins after that is told.
async fn begin(
    server: &Client,
    typed: &RingWatchArgs,
    place: Option<&str>,
    show: &mut dyn Show,
) -> Result<RingEvents, ClientError> {
    let events = server.follow_ring(&typed.name, &typed.subscription, place).await?;
    if show.wants_members() {
        let mut filter = RingFilter { limit: Some(LIST_ROWS_MAX), ..RingFilter::default() };
        let mut members = BTreeSet::new();
        loop {
            let page = server.ring_members(&typed.name, &filter).await?;
            members.extend(page.items.into_iter().map(|member| member.name));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        show.members(members);
    }
    Ok(events)
}

/// How events are shown.
trait Show: Send {
    fn event(&mut self, told: &FollowedEvent) -> Result<(), Ending>;

    fn wants_members(&self) -> bool {
        false
    }

    fn members(&mut self, _: BTreeSet<String>) {}
}

/// An object per event.
struct JsonLines;

impl Show for JsonLines {
    fn event(&mut self, told: &FollowedEvent) -> Result<(), Ending> {
        let mut line = serde_json::to_value(&told.what).expect("events always serialize");
        if let Some((generation, number)) = told.entry() {
            (line["generation"], line["number"]) = (json!(generation), json!(number));
        }
        out(&format!("{line}\n"))
    }
}

/// A line per event.
struct TextLines;

impl Show for TextLines {
    fn event(&mut self, told: &FollowedEvent) -> Result<(), Ending> {
        out(&format!("{}\n", line(told)))
    }
}

/// Out at once: somebody waits for it.
fn out(text: &str) -> Result<(), Ending> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn line(told: &FollowedEvent) -> String {
    let number = told.entry().map_or_else(String::new, |(_, number)| number.to_string());
    let kind = told.what.kind();
    format!("{number:>8}  {kind:<11}  {}", words(&told.what)).trim_end().to_owned()
}

/// What happened, in a few words.
fn words(event: &RingEvent) -> String {
    match event {
        RingEvent::Add { member } | RingEvent::Remove { member } => escape(member),
        RingEvent::Turn { slot, parts } => {
            let members: Vec<_> = parts.iter().map(|part| escape(&part.member)).collect();
            format!("{slot}  {}", members.join(", "))
        }
        RingEvent::Skip { from, to, slots, reason } => {
            let why = match reason {
                client::ring::SkipReason::Empty => "nobody was in the ring",
                client::ring::SkipReason::Missed => "it was too late",
            };
            format!("{from} to {to}  {slots} slots, {why}")
        }
        RingEvent::Pass { turn, part: _, from, to, token: _ } => {
            format!("turn {turn}  from {} to {}", escape(from), escape(to))
        }
        RingEvent::Accepted { turn, part: _, member } => {
            format!("turn {turn}  {}", escape(member))
        }
        RingEvent::Unaccepted { turn, part: _ } => format!("turn {turn}  nobody accepted it"),
        RingEvent::PassedOver { member } => escape(member),
        RingEvent::Schedule { spec, since } => format!("{since}  {}", super::when(spec)),
        RingEvent::SetBack { to } => format!("a clock was ahead; it goes on from {to}"),
        RingEvent::Gap { from, to } => format!("entries {from} to {to} are not kept any more"),
        RingEvent::Error { why } | RingEvent::Closing { why } => escape(why),
    }
}

/// The circle on a terminal, and the last events below.
struct Picture {
    title: String,
    members: BTreeSet<String>,
    turn: Vec<String>,
    words: Vec<String>,
    lines: VecDeque<String>,
    /// How many lines were drawn.
    height: usize,
}

impl Picture {
    fn new(typed: &RingWatchArgs) -> Self {
        Self {
            title: escape(&typed.name),
            members: BTreeSet::new(),
            turn: Vec::new(),
            words: Vec::new(),
            lines: VecDeque::new(),
            height: 0,
        }
    }

    fn draw(&mut self) -> Result<(), Ending> {
        let width = terminal_width().unwrap_or(COLUMNS);
        let members: Vec<String> = self.members.iter().cloned().collect();
        let words: Vec<String> =
            [self.title.clone()].into_iter().chain(self.words.iter().cloned()).collect();
        let picture = circle::draw(&members, &self.turn, &words, width);
        let below = self.lines.iter().cloned();
        let lines: Vec<String> = picture.into_iter().chain([String::new()]).chain(below).collect();
        let mut text = String::new();
        if self.height > 0 {
            text.push_str(&format!("\x1b[{}A", self.height));
        }
        for line in &lines {
            let line: String = line.chars().take(width).collect();
            text.push_str(&format!("\r{line}\x1b[K\n"));
        }
        text.push_str("\x1b[J");
        self.height = lines.len();
        out(&text)
    }
}

impl Show for Picture {
    fn event(&mut self, told: &FollowedEvent) -> Result<(), Ending> {
        match &told.what {
            RingEvent::Add { member } => drop(self.members.insert(member.clone())),
            RingEvent::Remove { member } => drop(self.members.remove(member)),
            RingEvent::Turn { slot, parts } => {
                self.turn = parts.iter().map(|part| part.member.clone()).collect();
                let number = told.entry().map_or(0, |(_, number)| number);
                self.words = vec![format!("turn {number}"), format!("{slot:.3}")];
            }
            RingEvent::Pass { from, to, .. } => {
                for member in self.turn.iter_mut().filter(|member| *member == from) {
                    member.clone_from(to);
                }
            }
            RingEvent::Skip { .. }
            | RingEvent::Accepted { .. }
            | RingEvent::Unaccepted { .. }
            | RingEvent::PassedOver { .. }
            | RingEvent::Schedule { .. }
            | RingEvent::SetBack { .. }
            | RingEvent::Gap { .. }
            | RingEvent::Error { .. }
            | RingEvent::Closing { .. } => {}
        }
        if self.lines.len() == LINES_BELOW {
            self.lines.pop_front();
        }
        self.lines.push_back(line(told));
        self.draw()
    }

    fn wants_members(&self) -> bool {
        true
    }

    fn members(&mut self, members: BTreeSet<String>) {
        self.members = members;
        let _ = self.draw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_with_its_place() {
        let told = |place: &str, what| FollowedEvent { place: Some(place.to_owned()), what };
        let part =
            |member: &str| client::ring::RingPart { member: member.to_owned(), token: 7, at: None };
        let slot = "2026-11-19T12:00:00Z".parse().unwrap();
        let turn = RingEvent::Turn { slot, parts: vec![part("b"), part("a")] };
        assert_eq!(line(&told("1.17", turn)), "      17  turn         2026-11-19T12:00:00Z  b, a");
        let added = FollowedEvent { place: None, what: RingEvent::Add { member: "c".into() } };
        assert_eq!(line(&added), "          add          c");
    }
}
