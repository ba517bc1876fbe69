//! People, who ask for things, and are told when they are done.

use engine::id::{ProjectId, TriggerId, Unique};
use engine::instant::Instant;
use engine::shard::command::{Command, Done};
use engine::shard::{Now, Ticket};
use engine::trigger::{Draft, ScheduleDraft, Texts};

use super::super::draft::{self, Written};
use super::super::ledger::Broken;
use super::super::setting::Company;
use super::super::shelf::SHARD;
use super::super::stage::Stage;
use super::Owner;

/// What was asked for, and is not answered.
pub(super) enum Asked {
    Create(Written),
    /// The generation that ends, if one does.
    Replace(Unique, Written, Option<u32>, Instant),
    Pause(Unique, Instant, Option<Instant>),
    Resume(Unique),
    Cancel(Unique, Instant),
    Delete(Unique, Instant),
    Run(Unique),
    Backfill(Unique),
    Disable(Instant),
    Enable,
}

impl Asked {
    fn trigger(&self) -> Option<Unique> {
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
    pub(super) fn ask(&mut self, now: Now, stage: &mut Stage) {
        if stage.is_calm || self.leaving.is_some() || stage.now < self.next_command {
            return;
        }
        let command_ms = stage.setting.command_ms;
        self.next_command = stage.now + stage.dice.between(1, 2 * command_ms);
        if stage.setting.backpressure > 0 {
            return self.crowd_in(now, stage);
        }
        let triggers: Vec<Unique> = stage.ledger.triggers.keys().copied().collect();
        let creating = self.asked.values().filter(|asked| matches!(asked, Asked::Create(_)));
        let len = triggers.len() + creating.count();
        if len < stage.setting.triggers && (triggers.is_empty() || stage.dice.chance(40)) {
            let name = stage.trigger_name();
            let draft = draft::trigger(&name, &mut stage.dice, now.wall);
            return self.create(draft, now, stage);
        }
        if triggers.is_empty() {
            return;
        }
        let trigger = stage.dice.pick(&triggers);
        let about = || self.asked.values().filter(|asked| asked.trigger() == Some(trigger));
        let is_weighty = about().any(Asked::is_weighty);
        match stage.dice.between(0, 99) {
            0..=14 if !is_weighty => self.replace(trigger, Other::Policy, now, stage),
            15..=24 if !is_weighty => self.replace(trigger, Other::Jitter, now, stage),
            25..=36 if !is_weighty => self.replace(trigger, Other::Schedule, now, stage),
            37..=56 => self.pause(trigger, now, stage),
            57..=76 => self.resume(trigger, now, stage),
            // These leave unknown what is under way elsewhere.
            77..=86 if stage.setting.company == Company::Rolling => {}
            77..=80 if !is_weighty => self.cancel(trigger, now, stage),
            81..=86 if !is_weighty => self.delete(trigger, now, stage),
            87..=91 => {
                let command = Command::Run { trigger, author: PERSON.into() };
                self.put(command, Asked::Run(trigger), now, stage);
            }
            92..=94 => self.backfill(trigger, now, stage),
            95..=96 => {
                let command = Command::Disable { project: OTHER };
                self.put(command, Asked::Disable(now.wall), now, stage);
            }
            97..=99 => self.enable(now, stage),
            _ => {}
        }
    }

    /// Asks for slots of the last minute again, by a request that may have been asked before.
    fn backfill(&mut self, trigger: Unique, now: Now, stage: &mut Stage) {
        let request = format!("request-{}", stage.dice.between(0, 3));
        let known =
            stage.ledger.triggers.get(&trigger).and_then(|seen| {
                seen.moved.backfills.iter().find(|known| known.request == request)
            });
        let back = Instant(now.wall.0 - stage.dice.between(1, 60_000).cast_signed());
        let from = known.map_or(back, |known| known.from);
        let to = Instant(from.0 + stage.dice.between(1, 30_000).cast_signed());
        let command = Command::Backfill { trigger, author: PERSON.into(), request, from, to };
        self.put(command, Asked::Backfill(trigger), now, stage);
    }

    fn enable(&mut self, now: Now, stage: &mut Stage) {
        let command = Command::Enable { project: OTHER };
        if let Some(ticket) = self.put(command, Asked::Enable, now, stage) {
            stage.witness.enabling(ticket);
        }
    }

    /// Enables what is disabled, and pauses every trigger that is not, for good.
    pub fn pause_all(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        let now = self.now(stage);
        self.enable(now, stage);
        self.run_on(stage, 1_000)?;
        for trigger in stage.ledger.triggers.keys().copied().collect::<Vec<_>>() {
            let now = self.now(stage);
            self.resume(trigger, now, stage);
            let (author, note) = (PERSON.to_owned(), "the end".to_owned());
            let command = Command::Pause { trigger, author, note, until: None };
            self.put(command, Asked::Pause(trigger, now.wall, None), now, stage);
        }
        self.run_on(stage, 5_000)
    }

    fn crowd_in(&mut self, now: Now, stage: &mut Stage) {
        if self.asked.is_empty() && stage.ledger.triggers.len() < stage.setting.backpressure {
            for number in 0..stage.setting.backpressure {
                let mut draft = draft::trigger(&format!("t{number}"), &mut stage.dice, now.wall);
                let cron = Texts(vec!["30 * * * * *".to_owned()]);
                draft.schedule = Some(ScheduleDraft { cron, ..ScheduleDraft::default() });
                draft.max_lateness = None;
                self.create(draft, now, stage);
            }
        }
    }

    fn create(&mut self, draft: Draft, now: Now, stage: &mut Stage) {
        let Some(written) = draft::write(draft, earlier(now, stage)) else { return };
        let (definition, draft) = (written.definition.clone(), written.text.clone());
        let project = if stage.dice.chance(30) { OTHER } else { ProjectId::DEFAULT };
        let author = PERSON.to_owned();
        let command = Command::Create { project, definition, draft, author };
        self.put(command, Asked::Create(written), now, stage);
    }

    fn replace(&mut self, trigger: Unique, other: Other, now: Now, stage: &mut Stage) {
        let Some(mut draft) = stage.drafts.get(&trigger).cloned() else { return };
        match other {
            Other::Policy => draft::policy(&mut draft, &mut stage.dice),
            Other::Jitter => draft::rejitter(&mut draft, &mut stage.dice),
            Other::Schedule => {
                draft.schedule = Some(draft::schedule(&mut stage.dice, now.wall));
                if stage.dice.chance(50) {
                    draft::policy(&mut draft, &mut stage.dice);
                }
            }
        }
        let Some(written) = draft::write(draft, earlier(now, stage)) else { return };
        let seen = &stage.ledger.triggers[&trigger];
        let is_other = seen.definition.schedule != written.definition.schedule;
        let ends = is_other.then_some(seen.record.generation);
        let is_paused = seen.moved.paused.is_some();
        let revision = stage.dice.chance(50).then_some(seen.record.revision);
        let (definition, draft) = (written.definition.clone(), written.text.clone());
        let author = PERSON.to_owned();
        let command = Command::Replace { trigger, definition, draft, author, revision };
        let asked = Asked::Replace(trigger, written, ends, now.wall);
        if self.put(command, asked, now, stage).is_some()
            && let Some(generation) = ends.filter(|_| !is_paused)
        {
            stage.witness.changing(trigger, generation);
        }
    }

    fn pause(&mut self, trigger: Unique, now: Now, stage: &mut Stage) {
        let ahead = stage.dice.between(1, 15_000).cast_signed();
        let until = stage.dice.chance(50).then_some(Instant(now.wall.0 + ahead));
        let (author, note) = (PERSON.to_owned(), String::new());
        let command = Command::Pause { trigger, author, note, until };
        if self.put(command, Asked::Pause(trigger, now.wall, until), now, stage).is_some() {
            let generation = stage.ledger.triggers[&trigger].record.generation;
            stage.witness.pausing_again(trigger, generation);
        }
    }

    fn resume(&mut self, trigger: Unique, now: Now, stage: &mut Stage) {
        let command = Command::Resume { trigger, author: PERSON.into() };
        if let Some(ticket) = self.put(command, Asked::Resume(trigger), now, stage) {
            let generation = stage.ledger.triggers[&trigger].record.generation;
            stage.witness.resuming(trigger, ticket, now.wall, generation);
        }
    }

    fn cancel(&mut self, trigger: Unique, now: Now, stage: &mut Stage) {
        let command = Command::Cancel { trigger, author: PERSON.into() };
        if let Some(ticket) = self.put(command, Asked::Cancel(trigger, now.wall), now, stage) {
            stage.witness.cancelling(trigger, ticket);
        }
    }

    fn delete(&mut self, trigger: Unique, now: Now, stage: &mut Stage) {
        let command = Command::Delete { trigger, author: PERSON.into() };
        if self.put(command, Asked::Delete(trigger, now.wall), now, stage).is_some() {
            stage.witness.deleting(trigger, now.wall);
        }
    }

    /// Asks the shard. Its ticket, if it was not refused.
    fn put(&mut self, command: Command, asked: Asked, now: Now, stage: &mut Stage) -> Option<u64> {
        stage.tickets += 1;
        let ticket = stage.tickets;
        let text = if stage.is_tracing() { told_of(&command) } else { String::new() };
        let answer = self.shard.command(command, None, Ticket(ticket), now);
        stage.note(|| format!("asked {ticket} at {}: {text}: {answer:?}", now.wall));
        answer.ok()?;
        stage.count_command();
        self.asked.insert(ticket, asked);
        Some(ticket)
    }

    /// Somebody is told that something is done.
    pub(super) fn told(
        &mut self,
        ticket: u64,
        done: Done,
        stage: &mut Stage,
    ) -> Result<(), Broken> {
        stage.note(|| format!("told {ticket}: {done:?}"));
        match (self.asked.remove(&ticket), done) {
            (Some(Asked::Create(written)), Done::Created(id)) => {
                stage.remember(id.unique, &written);
                stage.witness.was_written(id.unique, 1);
            }
            (Some(Asked::Replace(trigger, written, ends, wall)), Done::Replaced { revision }) => {
                stage.remember(trigger, &written);
                stage.witness.was_written(trigger, revision);
                if let Some(generation) = ends {
                    stage.witness.was_changed(trigger, generation, wall);
                }
            }
            (Some(Asked::Pause(trigger, wall, until)), Done::Paused) => {
                stage.witness.was_paused(trigger, ticket, wall, until);
            }
            (Some(Asked::Cancel(trigger, wall)), Done::Cancelled) => {
                stage.witness.was_cancelled(trigger, wall);
            }
            (Some(Asked::Delete(trigger, wall)), Done::Deleted) => {
                stage.witness.was_deleted(trigger, wall);
            }
            (Some(Asked::Run(_)), Done::Started(id)) => {
                stage.witness.was_started(id, &stage.ledger)?;
            }
            (Some(Asked::Resume(trigger)), Done::Resumed) => stage.witness.was_resumed(trigger),
            (Some(Asked::Disable(wall)), Done::Disabled) => {
                stage.witness.was_disabled(ticket, wall.max(stage.ledger.fired.0));
            }
            (Some(Asked::Backfill(_)), Done::Backfilled(_))
            | (Some(Asked::Enable), Done::Enabled)
            | (Some(Asked::Replace(..) | Asked::Disable(_) | Asked::Enable), Done::Unchanged) => {}
            (_, done) => panic!("{done:?} is no answer to what was asked"),
        }
        Ok(())
    }
}

/// What becomes of a text.
#[derive(Clone, Copy)]
enum Other {
    Policy,
    Jitter,
    Schedule,
}

/// When a text was judged, which is before the shard hears of it.
fn earlier(now: Now, stage: &mut Stage) -> Instant {
    let late = if stage.dice.chance(30) { stage.dice.between(0, 1_500) } else { 0 };
    Instant(now.wall.0 - late.cast_signed())
}

fn told_of(command: &Command) -> String {
    let id =
        |unique: &Unique| TriggerId { shard: SHARD, project: ProjectId::DEFAULT, unique: *unique };
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
    }
}
