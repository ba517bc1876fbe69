//! Bugs put in on purpose, to show that the simulator would notice them.
//!
//! Each mutant is one sentence of the design left out: an error that somebody will make one day. The
//! wrong variant stands beside the right one, behind [`active`], which is `false` and gone from every
//! release build ([`BUILT_IN`]). In the simulator one of them at a time is switched on, for the thread that
//! runs the simulation.

use std::cell::Cell;

/// A wrong variant of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// A renewal counts from its answer instead of from its sending.
    ValidityFromReply,
    /// An observer counts from when it asked instead of from when the answer came.
    PatienceFromAsking,
    /// An observer waits for T instead of 1.25 T.
    PatienceOfOneTtl,
    /// A holder acts for 1.15 T.
    ActFor115Percent,
    /// A renewal that was found done is credited to the last one sent.
    CreditLastSent,
    /// A session is buried by its name, at whatever version.
    BuryByName,
    /// The store itself drops sessions whose time is over by its own wall clock.
    StoreTtl,
    /// Whoever opens an exclusive store buries every session in it.
    BuryAllOnOpen,
    /// A restarted node writes over its former session.
    KeyWithoutIncarnation,
    /// A commit is guarded by its author's session, not by the head.
    GuardWithoutChain,
    /// A commit that is not found after an unknown answer is called not done.
    DecideAnew,
    /// A holder acts until it hears of its loss.
    ActAfterLapse,
    /// A third party that wants a holder to resign frees its claim.
    FreeOnResign,
    /// Patience runs on while the store gives no answers.
    PatienceThroughOutage,
    /// Only those who saw the epoch change wait; whoever starts after it does not.
    NoQuarantineForStarters,
    /// A claim is handed over to a session that need not be there.
    HandOverToAnybody,
    /// A successor that is gone is told of, wherever the head may be by then.
    GoneWhateverTheHead,
    /// Whoever hands a claim over acts until that is known to be done.
    ActWhileHandingOver,
    /// A head that names this session because somebody handed it over is left alone.
    HandedOverAndLeft,
    /// The mark is an instant without an id.
    MarkWithoutId,
    /// A catch-up moves no cursor.
    NoCursor,
    /// A command's now is not after the mark.
    NowWithoutMark,
    /// A command's now is not after the cursor.
    NowWithoutCursor,
    /// A change does not account for what was due before it.
    ChangeWithoutAccount,
    /// What is left of a limit is written after the launch.
    RemainingLater,
    /// A skip is written after the mark that passes it.
    SkipsLater,
    /// A run leaves before its launch is written.
    EffectsBeforeCommit,
    /// The number of an attempt is written after it.
    AttemptNumberAfter,
    /// A run's id comes from when it left.
    RunIdFromFireTime,
    /// The next slot is looked for from now.
    NextSlotFromNow,
    /// Look-ahead passes a slot that may not be launched ahead.
    AheadPassesAtMostOnce,
    /// A run is taken out of the head without a record.
    OpenWithoutRecord,
    /// A record of a run under way is read as one that has not left.
    UnfinishedForgetsLeft,
    /// Open runs are not written out before their trigger changes.
    OpenNotWrittenOut,
    /// Jitter reaches the next slot.
    JitterNotCut,
    /// A successor recomputes what was launched instead of reading it.
    RecomputeInsteadOfOpen,
    /// What was launched ahead is not taken back.
    NotTakenBack,
    /// What was launched ahead is taken back, and nothing says that it was skipped.
    TakenBackWithoutRecord,
    /// What was launched ahead is taken back, and its run is not given back.
    RemainingKept,
    /// A run in doubt that is delivered at most once is sent again.
    AtMostOnceResent,
    /// A run in doubt is not left alone for its timeout.
    NoPatience,
    /// A successor sends what is open at once, whenever it is due.
    EarlyAtSuccessor,
    /// An attempt does not wait for another one of its trigger to end.
    BesideOthers,
    /// A mark is set back, and no cursor says what it stood for.
    SetBackWithoutCursors,
    /// A project that is enabled is so at once, and nothing says that its triggers are behind.
    EnabledAtOnce,
    /// A notice is written after what it tells of.
    NoticeLater,
    /// Nothing is remembered of a failure that somebody was told of.
    StreakForgotten,
    /// What may leave is not taken back when a hand-over begins.
    LeavesAfterHandoverBegins,
    /// An attempt under way is handed over with the instant by which it ends, not with the time that is left.
    RemoteDeadline,
    /// Who has an attempt under way is waited for as if its clock ran like ours.
    PatienceOfTimeLeft,
    /// What has not left is handed over as under way.
    RemoteNeverLeft,
    /// Who hands a shard on does not say for whom it waits itself.
    HandedOnForgotten,
    /// A successor looks who is there after it has read what they reported.
    SendersAfterReports,
    /// Who has an attempt under way is waited for until it reports or is gone.
    PatienceForEver,
    /// Attempts of an owner that was one before have the keys of those before.
    KeysFromOne,
    /// A report is taken whichever attempt it is about, and whoever made that.
    ReportOfAnother,
    /// A report is deleted before its result is written.
    ReportGoneFirst,
    /// What somebody has under way who is gone is waited for.
    SenderGoneIgnored,
    /// A sender's absence is acted upon before its reports are read.
    AbsenceBeforeReports,
    /// A clean stop does not wait for its attempts to end.
    StopWithoutWaiting,
    /// A claim does not carry over which runs are open.
    ClaimWithoutOpen,
    /// Segments of the past are deleted before the pages that they are merged into are written.
    SegmentsBeforePages,
    /// Lines of the past are dropped before the floor says so.
    PagesBeforeFloor,
    /// Exceptions are merged, and not indexed.
    NotIndexed,
}

impl Mutant {
    /// Those of leases.
    pub const ALL: [Self; 19] = [
        Self::ValidityFromReply,
        Self::PatienceFromAsking,
        Self::PatienceOfOneTtl,
        Self::ActFor115Percent,
        Self::CreditLastSent,
        Self::BuryByName,
        Self::StoreTtl,
        Self::BuryAllOnOpen,
        Self::KeyWithoutIncarnation,
        Self::GuardWithoutChain,
        Self::DecideAnew,
        Self::ActAfterLapse,
        Self::FreeOnResign,
        Self::PatienceThroughOutage,
        Self::NoQuarantineForStarters,
        Self::HandOverToAnybody,
        Self::GoneWhateverTheHead,
        Self::ActWhileHandingOver,
        Self::HandedOverAndLeft,
    ];

    /// Those of the shard engine.
    pub const SHARD: [Self; 42] = [
        Self::MarkWithoutId,
        Self::NoCursor,
        Self::NowWithoutMark,
        Self::NowWithoutCursor,
        Self::ChangeWithoutAccount,
        Self::RemainingLater,
        Self::SkipsLater,
        Self::EffectsBeforeCommit,
        Self::AttemptNumberAfter,
        Self::RunIdFromFireTime,
        Self::NextSlotFromNow,
        Self::AheadPassesAtMostOnce,
        Self::OpenWithoutRecord,
        Self::UnfinishedForgetsLeft,
        Self::OpenNotWrittenOut,
        Self::JitterNotCut,
        Self::RecomputeInsteadOfOpen,
        Self::NotTakenBack,
        Self::TakenBackWithoutRecord,
        Self::RemainingKept,
        Self::AtMostOnceResent,
        Self::NoPatience,
        Self::EarlyAtSuccessor,
        Self::BesideOthers,
        Self::SetBackWithoutCursors,
        Self::EnabledAtOnce,
        Self::NoticeLater,
        Self::StreakForgotten,
        Self::LeavesAfterHandoverBegins,
        Self::RemoteDeadline,
        Self::PatienceOfTimeLeft,
        Self::RemoteNeverLeft,
        Self::HandedOnForgotten,
        Self::SendersAfterReports,
        Self::PatienceForEver,
        Self::KeysFromOne,
        Self::ReportOfAnother,
        Self::ReportGoneFirst,
        Self::SenderGoneIgnored,
        Self::AbsenceBeforeReports,
        Self::StopWithoutWaiting,
        Self::ClaimWithoutOpen,
    ];

    /// Those of the packed past.
    pub const HISTORY: [Self; 1] = [Self::SegmentsBeforePages];

    /// Those of what is kept of it.
    pub const RETENTION: [Self; 2] = [Self::PagesBeforeFloor, Self::NotIndexed];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ValidityFromReply => "validity-from-reply",
            Self::PatienceFromAsking => "patience-from-asking",
            Self::PatienceOfOneTtl => "patience-of-one-ttl",
            Self::ActFor115Percent => "act-for-115-percent",
            Self::CreditLastSent => "credit-last-sent",
            Self::BuryByName => "bury-by-name",
            Self::StoreTtl => "store-ttl",
            Self::BuryAllOnOpen => "bury-all-on-open",
            Self::KeyWithoutIncarnation => "key-without-incarnation",
            Self::GuardWithoutChain => "guard-without-chain",
            Self::DecideAnew => "decide-anew",
            Self::ActAfterLapse => "act-after-lapse",
            Self::FreeOnResign => "free-on-resign",
            Self::PatienceThroughOutage => "patience-through-outage",
            Self::NoQuarantineForStarters => "no-quarantine-for-starters",
            Self::HandOverToAnybody => "hand-over-to-anybody",
            Self::GoneWhateverTheHead => "gone-whatever-the-head",
            Self::ActWhileHandingOver => "act-while-handing-over",
            Self::HandedOverAndLeft => "handed-over-and-left",
            Self::MarkWithoutId => "mark-without-id",
            Self::NoCursor => "no-cursor",
            Self::NowWithoutMark => "now-without-mark",
            Self::NowWithoutCursor => "now-without-cursor",
            Self::ChangeWithoutAccount => "change-without-account",
            Self::RemainingLater => "remaining-later",
            Self::SkipsLater => "skips-later",
            Self::EffectsBeforeCommit => "effects-before-commit",
            Self::AttemptNumberAfter => "attempt-number-after",
            Self::RunIdFromFireTime => "run-id-from-fire-time",
            Self::NextSlotFromNow => "next-slot-from-now",
            Self::AheadPassesAtMostOnce => "ahead-passes-at-most-once",
            Self::OpenWithoutRecord => "open-without-record",
            Self::UnfinishedForgetsLeft => "unfinished-forgets-left",
            Self::OpenNotWrittenOut => "open-not-written-out",
            Self::JitterNotCut => "jitter-not-cut",
            Self::RecomputeInsteadOfOpen => "recompute-instead-of-open",
            Self::NotTakenBack => "not-taken-back",
            Self::TakenBackWithoutRecord => "taken-back-without-record",
            Self::RemainingKept => "remaining-kept",
            Self::AtMostOnceResent => "at-most-once-resent",
            Self::NoPatience => "no-patience",
            Self::EarlyAtSuccessor => "early-at-successor",
            Self::BesideOthers => "beside-others",
            Self::EnabledAtOnce => "enabled-at-once",
            Self::SetBackWithoutCursors => "set-back-without-cursors",
            Self::NoticeLater => "notice-later",
            Self::StreakForgotten => "streak-forgotten",
            Self::LeavesAfterHandoverBegins => "leaves-after-handover-begins",
            Self::RemoteDeadline => "remote-deadline",
            Self::PatienceOfTimeLeft => "patience-of-time-left",
            Self::RemoteNeverLeft => "remote-never-left",
            Self::HandedOnForgotten => "handed-on-forgotten",
            Self::SendersAfterReports => "senders-after-reports",
            Self::PatienceForEver => "patience-for-ever",
            Self::KeysFromOne => "keys-from-one",
            Self::ReportOfAnother => "report-of-another",
            Self::ReportGoneFirst => "report-gone-first",
            Self::SenderGoneIgnored => "sender-gone-ignored",
            Self::AbsenceBeforeReports => "absence-before-reports",
            Self::StopWithoutWaiting => "stop-without-waiting",
            Self::ClaimWithoutOpen => "claim-without-open",
            Self::SegmentsBeforePages => "segments-before-pages",
            Self::PagesBeforeFloor => "pages-before-floor",
            Self::NotIndexed => "not-indexed",
        }
    }
}

/// Whether mutants are built in: where assertions for debugging are, and so in no release build. This is
/// no cargo feature, because those of all crates that are built together are united.
pub const BUILT_IN: bool = cfg!(debug_assertions);

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mutant is switched on in this thread.
#[inline]
pub fn active(mutant: Mutant) -> bool {
    BUILT_IN && ACTIVE.get() == Some(mutant)
}

/// Switches this thread to a mutant, or back to what is right.
pub fn switch(mutant: Option<Mutant>) {
    assert!(BUILT_IN || mutant.is_none(), "a release build has no mutants");
    ACTIVE.set(mutant);
}
