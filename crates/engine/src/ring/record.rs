//! How a subscription stands, as it is stored: one record, written anew with every turn, and pages that have left it.
//!
//! Whatever happens is an entry, and entries have numbers without a gap. The last ones are in the record. When they fill a page,
//! the page leaves for a key of its own, in the same commit; so whoever was away for a while reads back what it missed, and knows
//! what is not kept any more.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{MemberName, SubscriptionDraft};
use crate::instant::Instant;
use crate::limits::{
    RING_ACCEPTED_KEPT_MAX, RING_PAGE_AGE, RING_PAGE_BYTES, RING_PAGE_ENTRIES, RING_PAGES_KEPT_MIN,
};

/// What happened in a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingEntry {
    /// These members have the turn of this slot, each one part of it, in this order.
    Turn {
        /// When it was due.
        slot: Instant,
        /// Whose turn it is; a name is there twice if the ring has fewer members than the turn has parts.
        members: Vec<MemberName>,
    },
    /// These slots have no turn.
    Skip {
        /// The first of them.
        from: Instant,
        /// The last of them.
        to: Instant,
        /// How many they are.
        slots: u64,
        /// Why.
        reason: SkipReason,
    },
    /// A part was not accepted in time, or its member is gone: it is another one's.
    Pass {
        /// Which part.
        #[serde(flatten)]
        part: PartId,
        /// To whom it was offered before.
        from: MemberName,
        /// To whom it is offered now.
        to: MemberName,
    },
    /// A member has accepted its part.
    Accepted {
        /// Which part.
        #[serde(flatten)]
        part: PartId,
        /// Who.
        member: MemberName,
    },
    /// Nobody has accepted the part, and nobody is asked any more.
    Unaccepted {
        /// Which part.
        #[serde(flatten)]
        part: PartId,
    },
    /// Somebody had the next member passed over.
    PassedOver {
        /// Who would have been next.
        member: MemberName,
    },
    /// The subscription is another one from here on: slots come by its new schedule, after this instant.
    Changed {
        /// What it was changed to.
        draft: Box<SubscriptionDraft>,
        /// Slots after this are by the new schedule.
        since: Instant,
    },
    /// A clock had run far ahead: slots after this are decided once more.
    SetBack {
        /// Up to here slots are decided.
        to: Instant,
    },
}

/// Why slots have no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Nobody decided them in time, and the catch-up policy leaves them out.
    Missed,
    /// The ring had no members.
    Empty,
}

/// A part of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartId {
    /// The number of the turn's entry.
    pub turn: u64,
    /// Which part of it, from 0.
    pub part: u16,
}

/// An entry with its number. They follow each other without a gap within a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedEntry(pub u64, pub RingEntry);

impl NumberedEntry {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.0
    }

    /// What happened.
    pub fn entry(&self) -> &RingEntry {
        &self.1
    }
}

/// A part that waits to be accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPart {
    /// Which.
    #[serde(flatten)]
    pub id: PartId,
    /// The number of the entry by which it is offered now.
    pub offer: u64,
    /// To whom.
    pub member: MemberName,
    /// To whom it was offered before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<MemberName>,
}

/// How a subscription stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Tells it from others that had or will have its name: only grows.
    pub generation: u64,
    /// What it is.
    pub draft: Arc<SubscriptionDraft>,
    /// How often it was changed, from 1.
    pub revision: u64,
    /// The number of the last entry; 0 before the first.
    pub number: u64,
    /// Slots up to here are decided.
    pub decided: Instant,
    /// The name that was served last.
    pub position: MemberName,
    /// The session that wrote it last.
    pub writer: Arc<str>,
    /// The epoch of the store in which it was written last.
    #[serde(default)]
    pub epoch: Arc<str>,
    /// The ring is empty, and that was said: nothing is written until somebody joins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// Parts that wait to be accepted, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenPart>,
    /// Parts that were accepted last, by whom, and the number of the entry by which they were offered; the oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub accepted: VecDeque<(PartId, MemberName, u64)>,
    /// The number of the page that is in the record.
    pub page_number: u64,
    /// When the pages that are kept left the record, in milliseconds since 1970, the oldest first. The last one has the number
    /// before [`TurnRecord::page_number`].
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub shut: VecDeque<i64>,
    /// The entries of the current page.
    #[serde(default)]
    pub page: Vec<Arc<NumberedEntry>>,
}

/// A page that leaves the record, or one that is kept no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutPage {
    /// It is to be written.
    Keep(u64, Vec<Arc<NumberedEntry>>),
    /// It is to be deleted.
    Drop(u64),
}

/// What [`TurnRecord::push`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The new entries, with their numbers.
    pub entries: Vec<Arc<NumberedEntry>>,
    /// Pages to write or to delete in the same commit; a few at the most.
    pub pages: Vec<PutPage>,
}

/// Old pages that go at a time: with the record and two new pages they fit every store's commit.
const PAGES_DROPPED_MAX: usize = 4;

impl TurnRecord {
    /// A new subscription, with nothing decided but what lies before `now`.
    pub fn new(draft: SubscriptionDraft, generation: u64, writer: &str, now: Instant) -> Self {
        Self {
            generation,
            draft: Arc::new(draft),
            revision: 1,
            number: 0,
            decided: now,
            position: "".into(),
            writer: writer.into(),
            epoch: "".into(),
            idle: false,
            open: Vec::new(),
            accepted: VecDeque::new(),
            page_number: 0,
            shut: VecDeque::new(),
            page: Vec::new(),
        }
    }

    /// The token of an entry: whoever has a part by it shows this to what it works on. For one subscription it only grows, also
    /// across generations.
    pub fn token_of(generation: u64, number: u64) -> u64 {
        generation.saturating_add(number)
    }

    /// The greatest token that it ever gave; the next generation of its name is greater.
    pub fn last_token(&self) -> u64 {
        Self::token_of(self.generation, self.number)
    }

    /// Numbers entries and puts them onto the page. Pages that are full leave, and old ones go.
    pub fn push(&mut self, entries: Vec<RingEntry>, now: Instant) -> Written {
        let mut written = Written::default();
        let mut bytes: usize = self.page.iter().map(|entry| entry.1.name_bytes()).sum();
        for entry in entries {
            self.number += 1;
            bytes += entry.name_bytes();
            let entry = Arc::new(NumberedEntry(self.number, entry));
            self.page.push(Arc::clone(&entry));
            written.entries.push(entry);
            if self.page.len() >= RING_PAGE_ENTRIES || bytes >= RING_PAGE_BYTES {
                let page = std::mem::take(&mut self.page);
                written.pages.push(PutPage::Keep(self.page_number, page));
                self.page_number += 1;
                self.shut.push_back(now.0);
                bytes = 0;
            }
        }
        if !written.pages.is_empty() {
            let old = now.before(RING_PAGE_AGE).0;
            for _ in 0..PAGES_DROPPED_MAX {
                if self.shut.len() <= RING_PAGES_KEPT_MIN || self.shut[0] >= old {
                    break;
                }
                written.pages.push(PutPage::Drop(self.oldest_page()));
                self.shut.pop_front();
            }
        }
        written
    }

    /// The number of the oldest page that is kept.
    pub fn oldest_page(&self) -> u64 {
        self.page_number - self.shut.len() as u64
    }

    /// The number of the first entry that is in the record; one that does not exist yet, if none is.
    pub fn first_in_page(&self) -> u64 {
        self.page.first().map_or(self.number + 1, |entry| entry.0)
    }

    /// The entries after this number that are in the record.
    pub fn after(&self, number: u64) -> &[Arc<NumberedEntry>] {
        &self.page[self.page.partition_point(|entry| entry.0 <= number)..]
    }

    /// Whether entries after this number are in pages that have left the record, or are gone.
    pub fn is_behind_page(&self, number: u64) -> bool {
        number + 1 < self.first_in_page()
    }

    /// The entry by which a part was offered that this member has accepted.
    pub(super) fn accepted_offer(&self, id: PartId, member: &str) -> Option<u64> {
        let mut accepted = self.accepted.iter();
        accepted.find(|(part, by, _)| *part == id && **by == *member).map(|(_, _, offer)| *offer)
    }

    pub(super) fn accept(&mut self, open: OpenPart) {
        if self.accepted.len() == RING_ACCEPTED_KEPT_MAX {
            self.accepted.pop_front();
        }
        self.accepted.push_back((open.id, open.member, open.offer));
    }

    /// The same subscription in a store that may have forgotten what was told of it: under another generation, whose entries begin
    /// anew. What waited to be accepted waits no more.
    #[must_use]
    pub fn renewed(&self, generation: u64, epoch: &str) -> Self {
        Self {
            generation,
            epoch: epoch.into(),
            number: 0,
            open: Vec::new(),
            accepted: VecDeque::new(),
            page_number: 0,
            shut: VecDeque::new(),
            page: Vec::new(),
            ..self.clone()
        }
    }
}

impl RingEntry {
    /// How much of a page its names take, about.
    fn name_bytes(&self) -> usize {
        match self {
            Self::Turn { members, .. } => members.iter().map(|name| name.len() + 3).sum(),
            Self::Pass { from, to, .. } => from.len() + to.len(),
            Self::Accepted { member, .. } | Self::PassedOver { member } => member.len(),
            Self::Changed { .. } => 512,
            Self::Skip { .. } | Self::Unaccepted { .. } | Self::SetBack { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TurnRecord {
        TurnRecord::new(SubscriptionDraft::default(), 7, "node/a/1", Instant(0))
    }

    fn turn(slot: i64) -> RingEntry {
        RingEntry::Turn { slot: Instant(slot), members: vec!["anna".into()] }
    }

    #[test]
    fn full_pages_leave_and_old_ones_go() {
        let (mut record, mut kept) = (record(), std::collections::BTreeMap::new());
        for slot in 0..64 * 200 {
            let written = record.push(vec![turn(slot)], Instant(slot * 100));
            assert_eq!(written.entries[0].number(), u64::try_from(slot).unwrap() + 1);
            assert!(written.pages.len() <= 1 + PAGES_DROPPED_MAX);
            for page in written.pages {
                match page {
                    PutPage::Keep(number, entries) => kept.insert(number, entries),
                    PutPage::Drop(number) => Some(kept.remove(&number).expect("it was kept")),
                };
            }
            assert!(kept.keys().copied().eq(record.oldest_page()..record.page_number));
            let entries = kept.values().flatten().chain(&record.page).map(|entry| entry.0);
            let first = kept.values().flatten().chain(&record.page).next().unwrap().0;
            assert!(entries.eq(first..=record.number), "without a gap");
        }
        // A page takes 6.4 seconds: a minute of them is kept, and one more.
        assert!((RING_PAGES_KEPT_MIN..=11).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn a_page_of_long_names_leaves_early() {
        let mut record = record();
        let name: MemberName = "x".repeat(100).into();
        let entry = || RingEntry::Turn { slot: Instant(0), members: vec![name.clone(); 64] };
        let pages: usize = (0..6).map(|_| record.push(vec![entry()], Instant(0)).pages.len()).sum();
        assert_eq!(pages, 2, "three of them fill a page");
    }

    #[test]
    fn what_is_behind_the_page_is_known_to_be() {
        let mut record = record();
        record.push((0..70).map(turn).collect(), Instant(0));
        assert_eq!((record.first_in_page(), record.number), (65, 70));
        assert!(record.is_behind_page(63) && !record.is_behind_page(64));
        assert_eq!(record.after(68).iter().map(|entry| entry.0).collect::<Vec<_>>(), [69, 70]);
        assert!(record.after(70).is_empty());
    }

    #[test]
    fn a_record_is_readable_and_reads_back() {
        let mut record = record();
        let part = PartId { turn: 1, part: 0 };
        let open = |part, member: &str| OpenPart {
            id: part,
            offer: 1,
            member: member.into(),
            tried: vec![],
        };
        record.open.push(open(part, "anna"));
        record.accept(open(PartId { turn: 1, part: 1 }, "bert"));
        let entries = vec![
            turn(1_500),
            RingEntry::Pass { part, from: "anna".into(), to: "bert".into() },
            RingEntry::Skip {
                from: Instant(2_000),
                to: Instant(3_000),
                slots: 2,
                reason: SkipReason::Empty,
            },
        ];
        record.push(entries, Instant(0));
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(
            r#"[1,{"turn":{"slot":"1970-01-01T00:00:01.5Z","members":["anna"]}}],[2,{"pass":{"turn":1,"part":0,"from":"anna","to":"bert"}}]"#
        ), "{text}");
        assert_eq!(serde_json::from_str::<TurnRecord>(&text).unwrap(), record);
    }
}
