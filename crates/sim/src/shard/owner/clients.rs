//! Clients, who ask for things, and are told when they are done.

use engine::id::{ProjectId, SerialId, TriggerId};
use engine::instant::Instant;
use engine::shard::command::{Command, Done};
use engine::shard::{Now, Ticket};
use engine::trigger::{Draft, ScheduleDraft, Texts};

use super::super::draft::{self, Written};
use super::super::oracle::Broken;
use super::super::setting::Company;
use super::super::shard_store::SHARD;
use super::super::simulation::Simulation;
use super::Owner;

/// What was asked for, and is not answered.
pub(super) enum ClientRequest {
    Create(Written),
    /// The generation that ends, if one does.
    Replace(SerialId, Written, Option<u32>, Instant),
    Pause(SerialId, Instant, Option<Instant>),
    Resume(SerialId),
    Cancel(SerialId, Instant),
    Delete(SerialId, Instant),
    Run(SerialId),
    Backfill(SerialId),
    Disable(Instant),
    Enable,
}

impl ClientRequest {
    fn trigger(&self) -> Option<SerialId> {
        match self {
            Self::Create(_) | Self::Disable(_) | Self::Enable => None,
            Self::Replace(trigger, ..)
            | Self::Pause(trigger, ..)
            | Self::Resume(trigger)
            | Self::Cancel(trigger, _)
            | Self::Delete(trigger, _)
            | Self::Run(trigger)
            | Self::Backfill(trigger) => Some(*trigger),
        }
    }

    /// Whether what comes after it could not be told from it if both were in one batch.
    fn is_weighty(&self) -> bool {
        matches!(self, Self::Replace(..) | Self::Cancel(..) | Self::Delete(..))
    }
}

const PERSON: &str = "somebody";

/// The project that is disabled now and then.
pub(super) const OTHER: ProjectId = ProjectId(1);

impl Owner {
    /// Somebody may ask for something.
    pub(super) fn ask(&mut self, now: Now, sim: &mut Simulation) {
        if sim.is_calm || self.leaving.is_some() || sim.now < self.next_command {
            return;
        }
        let command_ms = sim.setting.command_ms;
        self.next_command = sim.now + sim.dice.between(1, 2 * command_ms);
        if sim.setting.due_at_once > 0 {
            return self.create_many(now, sim);
        }
        let triggers: Vec<SerialId> = sim.oracle.triggers.keys().copied().collect();
        let creating =
            self.requests.values().filter(|asked| matches!(asked, ClientRequest::Create(_)));
        let len = triggers.len() + creating.count();
        if len < sim.setting.triggers && (triggers.is_empty() || sim.dice.chance(40)) {
            let name = sim.trigger_name();
            let mut draft = draft::trigger(&name, &mut sim.dice, now.wall);
            if sim.setting.feeds > 0 && sim.dice.chance(sim.setting.feeds) {
                draft::feed(&mut draft);
            }
            return self.create(draft, now, sim);
        }
        if triggers.is_empty() {
            return;
        }
        let trigger = sim.dice.pick(&triggers);
        let about = || self.requests.values().filter(|asked| asked.trigger() == Some(trigger));
        let is_weighty = about().any(ClientRequest::is_weighty);
        match sim.dice.between(0, 99) {
            0..=14 if !is_weighty => self.replace(trigger, Replacement::Policy, now, sim),
            15..=24 if !is_weighty => self.replace(trigger, Replacement::Jitter, now, sim),
            25..=36 if !is_weighty => self.replace(trigger, Replacement::Schedule, now, sim),
            37..=56 => self.pause(trigger, now, sim),
            57..=76 => self.resume(trigger, now, sim),
            // These leave unknown what is under way elsewhere.
            77..=86 if sim.setting.company == Company::Rolling => {}
            77..=80 if !is_weighty => self.cancel(trigger, now, sim),
            81..=86 if !is_weighty => self.delete(trigger, now, sim),
            87..=91 => {
                let command = Command::Run { trigger, author: PERSON.into() };
                self.put(command, ClientRequest::Run(trigger), now, sim);
            }
            92..=94 => self.backfill(trigger, now, sim),
            95..=96 => {
                let command = Command::Disable { project: OTHER };
                self.put(command, ClientRequest::Disable(now.wall), now, sim);
            }
            97..=99 => self.enable(now, sim),
            _ => {}
        }
    }

    /// Asks for slots of the last minute again, by a request that may have been asked before.
    fn backfill(&mut self, trigger: SerialId, now: Now, sim: &mut Simulation) {
        let request = format!("request-{}", sim.dice.between(0, 3));
        let known =
            sim.oracle.triggers.get(&trigger).and_then(|seen| {
                seen.state.backfills.iter().find(|known| known.request == request)
            });
        let back = Instant(now.wall.0 - sim.dice.between(1, 60_000).cast_signed());
        let from = known.map_or(back, |known| known.from);
        let to = Instant(from.0 + sim.dice.between(1, 30_000).cast_signed());
        let command = Command::Backfill { trigger, author: PERSON.into(), request, from, to };
        self.put(command, ClientRequest::Backfill(trigger), now, sim);
    }

    fn enable(&mut self, now: Now, sim: &mut Simulation) {
        let command = Command::Enable { project: OTHER };
        if let Some(ticket) = self.put(command, ClientRequest::Enable, now, sim) {
            sim.checker.enabling(ticket);
        }
    }

    /// Enables what is disabled, and pauses every trigger that is not, for good.
    pub fn pause_all(&mut self, sim: &mut Simulation) -> Result<(), Broken> {
        let now = self.now(sim);
        self.enable(now, sim);
        self.run_on(sim, 1_000)?;
        for trigger in sim.oracle.triggers.keys().copied().collect::<Vec<_>>() {
            let now = self.now(sim);
            self.resume(trigger, now, sim);
            let (author, note) = (PERSON.to_owned(), "the end".to_owned());
            let command = Command::Pause { trigger, author, note, until: None };
            self.put(command, ClientRequest::Pause(trigger, now.wall, None), now, sim);
        }
        self.run_on(sim, 5_000)
    }

    fn create_many(&mut self, now: Now, sim: &mut Simulation) {
        if self.requests.is_empty() && sim.oracle.triggers.len() < sim.setting.due_at_once {
            for number in 0..sim.setting.due_at_once {
                let mut draft = draft::trigger(&format!("t{number}"), &mut sim.dice, now.wall);
                let cron = Texts(vec!["30 * * * * *".to_owned()]);
                draft.schedule = Some(ScheduleDraft { cron, ..ScheduleDraft::default() });
                draft.max_lateness = None;
                self.create(draft, now, sim);
            }
        }
    }

    fn create(&mut self, draft: Draft, now: Now, sim: &mut Simulation) {
        let Some(written) = draft::write(draft, earlier(now, sim)) else { return };
        let (definition, draft) = (written.definition.clone(), written.text.clone());
        let is_fed = draft_feeds(&written);
        let project = if !is_fed && sim.dice.chance(30) { OTHER } else { ProjectId::DEFAULT };
        let author = PERSON.to_owned();
        let command = Command::Create { project, definition, draft, author, named_until: None };
        self.put(command, ClientRequest::Create(written), now, sim);
    }

    fn replace(&mut self, trigger: SerialId, other: Replacement, now: Now, sim: &mut Simulation) {
        let Some(mut draft) = sim.drafts.get(&trigger).cloned() else { return };
        match other {
            Replacement::Policy => draft::policy(&mut draft, &mut sim.dice),
            Replacement::Jitter => draft::rejitter(&mut draft, &mut sim.dice),
            Replacement::Schedule => {
                draft.schedule = Some(draft::schedule(&mut sim.dice, now.wall));
                if sim.dice.chance(50) {
                    draft::policy(&mut draft, &mut sim.dice);
                }
            }
        }
        if sim.dice.chance(30) {
            draft::other_host(&mut draft);
        }
        let Some(written) = draft::write(draft, earlier(now, sim)) else { return };
        let seen = &sim.oracle.triggers[&trigger];
        let is_other = seen.definition.schedule != written.definition.schedule;
        let ends = is_other.then_some(seen.record.generation);
        let is_paused = seen.state.paused.is_some();
        let revision = sim.dice.chance(50).then_some(seen.record.revision);
        let (definition, draft) = (written.definition.clone(), written.text.clone());
        let author = PERSON.to_owned();
        let command = Command::Replace { trigger, definition, draft, author, revision };
        let asked = ClientRequest::Replace(trigger, written, ends, now.wall);
        if self.put(command, asked, now, sim).is_some()
            && let Some(generation) = ends.filter(|_| !is_paused)
        {
            sim.checker.changing(trigger, generation);
        }
    }

    fn pause(&mut self, trigger: SerialId, now: Now, sim: &mut Simulation) {
        let ahead = sim.dice.between(1, 15_000).cast_signed();
        let until = sim.dice.chance(50).then_some(Instant(now.wall.0 + ahead));
        let (author, note) = (PERSON.to_owned(), String::new());
        let command = Command::Pause { trigger, author, note, until };
        if self.put(command, ClientRequest::Pause(trigger, now.wall, until), now, sim).is_some() {
            let generation = sim.oracle.triggers[&trigger].record.generation;
            sim.checker.pausing_again(trigger, generation);
        }
    }

    fn resume(&mut self, trigger: SerialId, now: Now, sim: &mut Simulation) {
        let command = Command::Resume { trigger, author: PERSON.into() };
        if let Some(ticket) = self.put(command, ClientRequest::Resume(trigger), now, sim) {
            let generation = sim.oracle.triggers[&trigger].record.generation;
            sim.checker.resuming(trigger, ticket, now.wall, generation);
        }
    }

    fn cancel(&mut self, trigger: SerialId, now: Now, sim: &mut Simulation) {
        let command = Command::Cancel { trigger, author: PERSON.into() };
        if let Some(ticket) = self.put(command, ClientRequest::Cancel(trigger, now.wall), now, sim)
        {
            sim.checker.cancelling(trigger, ticket);
        }
    }

    fn delete(&mut self, trigger: SerialId, now: Now, sim: &mut Simulation) {
        let command = Command::Delete { trigger, author: PERSON.into() };
        if self.put(command, ClientRequest::Delete(trigger, now.wall), now, sim).is_some() {
            sim.checker.deleting(trigger, now.wall);
        }
    }

    /// Asks the shard. Its ticket, if it was not refused.
    fn put(
        &mut self,
        command: Command,
        asked: ClientRequest,
        now: Now,
        sim: &mut Simulation,
    ) -> Option<u64> {
        sim.tickets += 1;
        let ticket = sim.tickets;
        let text = if sim.is_tracing() { told_of(&command) } else { String::new() };
        let answer = self.shard.command(command, None, Ticket(ticket), now);
        sim.note(|| format!("asked {ticket} at {}: {text}: {answer:?}", now.wall));
        answer.ok()?;
        sim.count_command();
        self.requests.insert(ticket, asked);
        Some(ticket)
    }

    /// Somebody is told that something is done.
    pub(super) fn told(
        &mut self,
        ticket: u64,
        done: Done,
        sim: &mut Simulation,
    ) -> Result<(), Broken> {
        sim.note(|| format!("told {ticket}: {done:?}"));
        match (self.requests.remove(&ticket), done) {
            (Some(ClientRequest::Create(written)), Done::Created(id)) => {
                sim.remember(id.serial, &written);
                sim.checker.was_written(id.serial, 1);
            }
            (
                Some(ClientRequest::Replace(trigger, written, ends, wall)),
                Done::Replaced { revision },
            ) => {
                sim.remember(trigger, &written);
                sim.checker.was_written(trigger, revision);
                if let Some(generation) = ends {
                    sim.checker.was_changed(trigger, generation, wall);
                }
            }
            (Some(ClientRequest::Pause(trigger, wall, until)), Done::Paused) => {
                sim.checker.was_paused(trigger, ticket, wall, until);
            }
            (Some(ClientRequest::Cancel(trigger, wall)), Done::Cancelled) => {
                sim.checker.was_cancelled(trigger, wall);
            }
            (Some(ClientRequest::Delete(trigger, wall)), Done::Deleted) => {
                sim.checker.was_deleted(trigger, wall);
            }
            (Some(ClientRequest::Run(_)), Done::Started(id)) => {
                sim.checker.was_started(id, &sim.oracle)?;
            }
            (Some(ClientRequest::Resume(trigger)), Done::Resumed) => {
                sim.checker.was_resumed(trigger);
            }
            (Some(ClientRequest::Disable(wall)), Done::Disabled) => {
                sim.checker.was_disabled(ticket, wall.max(sim.oracle.decided_through.0));
            }
            (Some(ClientRequest::Backfill(_)), Done::Backfilled(_))
            | (Some(ClientRequest::Enable), Done::Enabled)
            | (
                Some(
                    ClientRequest::Replace(..) | ClientRequest::Disable(_) | ClientRequest::Enable,
                ),
                Done::Unchanged,
            ) => {}
            (_, done) => panic!("{done:?} is no answer to what was asked"),
        }
        Ok(())
    }
}

/// Whether a trigger feeds the queue, which is of the default project.
fn draft_feeds(written: &Written) -> bool {
    written.draft.queue.is_some()
}

/// What becomes of a text.
#[derive(Clone, Copy)]
enum Replacement {
    Policy,
    Jitter,
    Schedule,
}

/// When a text was judged, which is before the shard hears of it.
fn earlier(now: Now, sim: &mut Simulation) -> Instant {
    let late = if sim.dice.chance(30) { sim.dice.between(0, 1_500) } else { 0 };
    Instant(now.wall.0 - late.cast_signed())
}

fn told_of(command: &Command) -> String {
    let id = |serial: &SerialId| TriggerId {
        shard: SHARD,
        project: ProjectId::DEFAULT,
        serial: *serial,
    };
    match command {
        Command::Create { draft, .. } => format!("create {draft}"),
        Command::Replace { trigger, draft, .. } => format!("replace {} {draft}", id(trigger)),
        Command::Pause { trigger, until, .. } => format!("pause {} until {until:?}", id(trigger)),
        Command::Resume { trigger, .. } => format!("resume {}", id(trigger)),
        Command::Cancel { trigger, .. } => format!("cancel {}", id(trigger)),
        Command::Delete { trigger, .. } => format!("delete {}", id(trigger)),
        Command::Run { trigger, .. } => format!("run {}", id(trigger)),
        Command::Backfill { trigger, request, from, to, .. } => {
            format!("backfill {} {request} {from} {to}", id(trigger))
        }
        Command::Disable { project } => format!("disable {project:?}"),
        Command::Enable { project } => format!("enable {project:?}"),
        Command::Prune { ended_before, .. } => format!("prune before {ended_before}"),
        Command::Submit { .. }
        | Command::SetQueue { .. }
        | Command::PauseQueue { .. }
        | Command::ResumeQueue { .. }
        | Command::DeleteQueue { .. }
        | Command::CancelRun { .. }
        | Command::CancelRuns { .. }
        | Command::Redrive { .. }
        | Command::ReserveName { .. }
        | Command::ReleaseName { .. } => format!("{command:?}"),
    }
}
