//! What must be so between the records of a backup, whoever wrote it and whatever its checksum says.
//!
//! A shard whose records are of different moments shows it: the past is ahead of the head, something moved
//! of a trigger that is not there, a run is open of one that is gone. A server that started on such a shard
//! would lose or repeat slots, so it is found here, when the backup is made and before it is restored.

use std::collections::{BTreeSet, HashSet};

use engine::id::{SerialId, ShardId};
use engine::lease::Ttl;
use engine::past::Segment;
use engine::record::{RecordError, decode};
use engine::shard::record::{
    FORMAT, HeadRecord, LagRecord, RunRecord, StoppedRecord, TriggerRecord, TriggerState, name_key,
    past_number, trigger_key,
};
use serde::de::DeserializeOwned;

use super::name::{NamesMoment, UnreservedName};
use super::queue::QueuesMoment;
use super::{BackupHeader, BackupItem, BackupSection};
use crate::claim::Head;
use crate::cluster::ClusterIdentity;
use crate::session::{Longest, SessionKey, SessionRecord};
use crate::{Key, Value};

/// What is wrong with a record.
#[derive(Debug)]
pub enum Flaw {
    /// It has a format that this version cannot read.
    Newer(RecordError),
    /// It is wrong, for this reason.
    Wrong(String),
}

/// What is in a backup, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupCensus {
    /// How many triggers there are.
    pub triggers: u64,
    /// Runs that are not finished.
    pub unfinished: u64,
    /// Lines of history: runs that ended, and ranges of slots that were skipped.
    pub past: u64,
    /// Sessions that were there, alive or not.
    pub sessions: u64,
    /// How long a session may act at the most after its renewal, as far as this cluster knows.
    pub longest: Option<Ttl>,
    /// Whether a session was that of a process that reached the store through a server.
    pub(super) has_remote: bool,
    /// The longest value.
    pub(super) value_bytes: usize,
    /// The longest key with its value.
    pub(super) write_bytes: usize,
    /// Names of triggers that are to be reserved by their homes, and are not.
    pub(super) unreserved: Vec<UnreservedName>,
}

/// What was read so far.
pub(super) struct Content {
    header: BackupHeader,
    census: BackupCensus,
    section: Option<BackupSection>,
    shard: ShardMoment,
    names: NamesMoment,
    is_about: bool,
}

/// What was read of the shard that is being read.
#[derive(Default)]
struct ShardMoment {
    /// Something that stands before the head, in the order of keys.
    before: Option<Key>,
    head: Option<(u64, HeadRecord)>,
    triggers: BTreeSet<SerialId>,
    states: BTreeSet<SerialId>,
    names: HashSet<(u32, String)>,
    queues: QueuesMoment,
}

impl Content {
    pub(super) fn new(header: &BackupHeader) -> Self {
        Self {
            header: header.clone(),
            census: BackupCensus::default(),
            section: None,
            shard: ShardMoment::default(),
            names: NamesMoment::default(),
            is_about: false,
        }
    }

    pub(super) fn take(&mut self, item: &BackupItem) -> Result<(), Flaw> {
        match item {
            BackupItem::Section(section) => self.begin(*section),
            BackupItem::Entry { key, value } => {
                self.census.value_bytes = self.census.value_bytes.max(value.len());
                self.census.write_bytes = self.census.write_bytes.max(key.len() + value.len());
                match self.section {
                    Some(BackupSection::Shard(shard)) => self.of_shard(shard, key, value),
                    Some(BackupSection::Rest) => self.of_rest(key, value),
                    Some(BackupSection::Idempotency) | None => Ok(()),
                }
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<BackupCensus, Flaw> {
        if self.section != Some(BackupSection::Rest) {
            return Err(Flaw::Wrong("parts are missing before it".to_owned()));
        }
        if !self.is_about {
            return Err(Flaw::Wrong(format!("{} is missing before it", ClusterIdentity::key())));
        }
        self.census.unreserved = self.names.finish(&self.header)?;
        Ok(self.census)
    }

    /// What is remembered comes first, then all shards, each once, and then the rest.
    fn begin(&mut self, section: BackupSection) -> Result<(), Flaw> {
        let after = |shard: u16| {
            if shard < self.header.shards {
                BackupSection::Shard(ShardId(shard))
            } else {
                BackupSection::Rest
            }
        };
        let expected = match self.section {
            None => BackupSection::Idempotency,
            Some(BackupSection::Idempotency) => after(0),
            Some(BackupSection::Shard(shard)) => {
                self.shard.check(shard)?;
                self.census.unfinished += self.shard.queues.unfinished();
                after(shard.0 + 1)
            }
            Some(BackupSection::Rest) => {
                return Err(Flaw::Wrong("there is a part behind the rest".into()));
            }
        };
        if section != expected {
            let (section, expected) = (section.text(), expected.text());
            return Err(Flaw::Wrong(format!("it begins {section}, and {expected} is next")));
        }
        (self.section, self.shard) = (Some(section), ShardMoment::default());
        Ok(())
    }

    fn of_shard(&mut self, shard: ShardId, key: &Key, value: &Value) -> Result<(), Flaw> {
        let rest = key
            .as_str()
            .strip_prefix(&BackupSection::Shard(shard).text())
            .expect("the reader looked");
        if rest == "head" {
            let head = Head::from_value(value).map_err(|why| flaw(key, why))?;
            let record = match &head.body {
                Some(body) => serde_json::from_str(body.get())
                    .map_err(|why| Flaw::Wrong(format!("{key}: {why}")))?,
                None => HeadRecord::default(),
            };
            self.census.unfinished += record.open.len() as u64;
            self.shard.head = Some((head.number, record));
            return Ok(());
        }
        let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
        self.shard.queues.take(shard, kind, key, value)?;
        if rest < "head" {
            // Such as what is kept of the past. Whether there is a head is seen later.
            self.shard.before.get_or_insert_with(|| key.clone());
            return Ok(());
        }
        let Some((number, head)) = &self.shard.head else { return Err(headless(key)) };
        let ahead = || Flaw::Wrong(format!("{key} is younger than the head of its shard"));
        match kind {
            "past" | "page" => {
                if past_number(shard, key.as_str()).is_some_and(|written| written > *number) {
                    return Err(ahead());
                }
                let segment =
                    Segment::from_bytes(value.as_bytes()).map_err(|why| flaw(key, why))?;
                self.census.past += segment.lines.len() as u64;
            }
            "run" => {
                read::<RunRecord>(key, value)?;
                if name.parse::<u64>().is_ok_and(|sequence| sequence > head.sequence) {
                    return Err(ahead());
                }
                self.census.unfinished += 1;
            }
            "moved" => {
                read::<TriggerState>(key, value)?;
                self.shard.states.extend(name.parse::<SerialId>());
            }
            "stopped" => drop(read::<StoppedRecord>(key, value)?),
            "lag" => drop(read::<LagRecord>(key, value)?),
            "reserved" => self.names.reserved(shard, key, read(key, value)?),
            "trigger" => {
                let record: TriggerRecord = read(key, value)?;
                if record.id.serial > head.youngest {
                    return Err(ahead());
                }
                self.census.triggers += 1;
                let name = self.shard.add(shard, key, &record)?;
                self.names.trigger(&self.header, &record, &name)?;
            }
            // What a later version keeps there is its own business.
            _ => {}
        }
        Ok(())
    }

    fn of_rest(&mut self, key: &Key, value: &Value) -> Result<(), Flaw> {
        if *key == ClusterIdentity::key() {
            let BackupHeader { cluster: id, shards, .. } = self.header;
            self.is_about = true;
            return match ClusterIdentity::from_value(value) {
                Ok(found) if found == (ClusterIdentity { id, shards }) => Ok(()),
                Ok(_) => Err(Flaw::Wrong(format!("{key} is not what the first line says"))),
                Err(why) => Err(Flaw::Wrong(why)),
            };
        }
        if *key == Longest::key() {
            let longest = Longest::from_value(value).map_err(|why| flaw(key, why))?.ttl();
            self.census.longest = self.census.longest.max(longest);
        } else if SessionKey::try_from(key).is_ok() {
            self.census.sessions += 1;
            let record = SessionRecord::from_value(value).ok();
            self.census.has_remote |= record.as_ref().is_none_or(|record| !record.local);
            let ttl = record.map_or(Some(Ttl::LONGEST), |record| record.ttl());
            self.census.longest = self.census.longest.max(ttl);
        } else if key.as_str().starts_with("election/")
            && let Err(why @ RecordError::Newer { .. }) = Head::from_value(value)
        {
            // Its token could not be raised.
            return Err(flaw(key, why));
        }
        Ok(())
    }
}

impl ShardMoment {
    /// Takes a trigger, and says its name.
    fn add(&mut self, shard: ShardId, key: &Key, record: &TriggerRecord) -> Result<String, Flaw> {
        let id = record.id;
        if id.shard != shard || trigger_key(shard, id.serial) != key.as_str() {
            return Err(Flaw::Wrong(format!("{key} holds another trigger, {id}")));
        }
        let Some(name) = record.name() else {
            return Err(Flaw::Wrong(format!("the trigger at {key} has no name")));
        };
        Key::new(name_key(id.project, &name))
            .map_err(|why| Flaw::Wrong(format!("{key}: {why}")))?;
        self.triggers.insert(id.serial);
        if self.names.insert((id.project.0, name.clone())) {
            Ok(name)
        } else {
            Err(Flaw::Wrong(format!("the trigger at {key} has the name of another")))
        }
    }

    /// All of it was read: does it fit together?
    fn check(&self, shard: ShardId) -> Result<(), Flaw> {
        if let (Some(key), None) = (&self.before, &self.head) {
            return Err(headless(key));
        }
        if let Some(lost) = self.states.difference(&self.triggers).next() {
            let why =
                format!("shard {shard}: something moved of trigger {lost}, which is not there");
            return Err(Flaw::Wrong(why));
        }
        if let Some((_, head)) = &self.head {
            self.queues.check(shard, head)?;
        }
        let mut open = self.head.iter().flat_map(|(_, head)| &head.open);
        match open.find(|run| !self.triggers.contains(&run.trigger)) {
            Some(run) => Err(Flaw::Wrong(format!(
                "shard {shard}: a run is open of trigger {}, which is not there",
                run.trigger
            ))),
            None => Ok(()),
        }
    }
}

fn headless(key: &Key) -> Flaw {
    Flaw::Wrong(format!("{key} is there, and the head of its shard is not"))
}

pub(super) fn read<T: DeserializeOwned>(key: &Key, value: &Value) -> Result<T, Flaw> {
    decode(value.as_bytes(), FORMAT).map_err(|why| flaw(key, why))
}

fn flaw(key: &Key, why: RecordError) -> Flaw {
    match why {
        RecordError::Newer { .. } => Flaw::Newer(why),
        RecordError::Malformed(_) => Flaw::Wrong(format!("{key}: {why}")),
    }
}
