//! Bugs put in on purpose, to show that the simulator would notice them.
//!
//! Each mutant is one sentence of the design left out: an error that somebody will make one day. The
//! wrong value stands beside the right one, in [`pick`], and what is only wrong in [`also`]; both are right
//! in every release build ([`BUILT_IN`]). In the simulator one mutant at a time is switched on, for the
//! thread that runs the simulation.

use std::cell::Cell;

/// One table of all mutants: by group, each with what it does wrong.
macro_rules! mutants {
    ($($about:literal $group:ident { $($mutant:ident: $wrong:literal,)* })*) => {
        /// A wrong variant of one rule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[doc = $wrong] $mutant,)*)*
        }

        impl Mutant {
            $(#[doc = $about] pub const $group: [Self; [$($wrong),*].len()] = [$(Self::$mutant),*];)*
        }
    };
}

impl Mutant {
    /// Its name on a command line: that of the variant, in lower case, with a hyphen before each word.
    pub fn name(self) -> String {
        let (mut name, mut last) = (String::new(), '0');
        for letter in format!("{self:?}").chars() {
            let begins = letter.is_uppercase() || letter.is_numeric() && !last.is_numeric();
            if begins && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
            last = letter;
        }
        name
    }
}

mutants! {
    "Mutants of the lease." LEASE {
        ValidityFromReply: "A renewal counts from its answer instead of from its sending.",
        PatienceFromAsking: "An observer counts from when it asked instead of from when the answer came.",
        PatienceOfOneTtl: "An observer waits for T instead of 1.25 T.",
        ActFor115Percent: "A holder acts for 1.15 T.",
        CreditLastSent: "A renewal that was found done is credited to the last one sent.",
        BuryByName: "A session is buried by its name, at whatever version.",
        StoreTtl: "The store itself drops sessions whose time is over by its own wall clock.",
        BuryAllOnOpen: "Whoever opens an exclusive store buries every session in it.",
        KeyWithoutIncarnation: "A restarted node writes over its former session.",
        GuardWithoutChain: "A commit is guarded by its author's session, not by the head.",
        DecideAnew: "A commit that is not found after an unknown answer is called not done.",
        ActAfterLapse: "A holder acts until it hears of its loss.",
        FreeOnResign: "A third party that wants a holder to resign frees its claim.",
        PatienceThroughOutage: "Patience runs on while the store gives no answers.",
        NoQuarantineForStarters: "Only those who saw the epoch change wait; whoever starts after it does not.",
        HandOverToAnybody: "A claim is handed over to a session that need not be there.",
        GoneWhateverTheHead: "A successor that is gone is told of, wherever the head may be by then.",
        ActWhileHandingOver: "Whoever hands a claim over acts until that is known to be done.",
        HandedOverAndLeft: "A head that names this session because somebody handed it over is left alone.",
    }
    "Mutants of the shard engine." SHARD {
        MarkWithoutId: "The mark is an instant without an id.",
        NoCursor: "A catch-up moves no cursor.",
        NowWithoutMark: "A command's now is not after the mark.",
        NowWithoutCursor: "A command's now is not after the cursor.",
        ChangeWithoutAccount: "A change does not account for what was due before it.",
        RemainingLater: "What is left of a limit is written after the launch.",
        SkipsLater: "A skip is written after the mark that passes it.",
        EffectsBeforeCommit: "A run leaves before its launch is written.",
        AttemptNumberAfter: "The number of an attempt is written after it.",
        RunIdFromFireTime: "A run's id comes from when it left.",
        NextSlotFromNow: "The next slot is looked for from now.",
        AheadPassesAtMostOnce: "Look-ahead passes a slot that may not be launched ahead.",
        OpenWithoutRecord: "A run is taken out of the head without a record.",
        UnfinishedForgetsLeft: "A record of a run under way is read as one that has not left.",
        OpenNotWrittenOut: "Open runs are not written out before their trigger changes.",
        JitterNotCut: "Jitter reaches the next slot.",
        RecomputeInsteadOfOpen: "A successor recomputes what was launched instead of reading it.",
        NotTakenBack: "What was launched ahead is not taken back.",
        TakenBackWithoutRecord: "What was launched ahead is taken back, and nothing says that it was skipped.",
        RemainingKept: "What was launched ahead is taken back, and its run is not given back.",
        AtMostOnceResent: "A run in doubt that is delivered at most once is sent again.",
        NoPatience: "A run in doubt is not left alone for its timeout.",
        EarlyAtSuccessor: "A successor sends what is open at once, whenever it is due.",
        BesideOthers: "An attempt does not wait for another one of its trigger to end.",
        SetBackWithoutCursors: "A mark is set back, and no cursor says what it stood for.",
        EnabledAtOnce: "A project that is enabled is so at once, and nothing says that its triggers are behind.",
        NoticeLater: "A notice is written after what it tells of.",
        StreakForgotten: "Nothing is remembered of a failure that somebody was told of.",
        LeavesAfterHandoverBegins: "What may leave is not taken back when a hand-over begins.",
        RemoteDeadline: "An attempt under way is handed over with the instant by which it ends, not with the time that is left.",
        PatienceOfTimeLeft: "Who has an attempt under way is waited for as if its clock ran like ours.",
        RemoteNeverLeft: "What has not left is handed over as under way.",
        HandedOnForgotten: "Who hands a shard on does not say for whom it waits itself.",
        SendersAfterReports: "A successor looks who is there after it has read what they reported.",
        PatienceForEver: "Who has an attempt under way is waited for until it reports or is gone.",
        KeysFromOne: "Attempts of an owner that was one before have the keys of those before.",
        ReportOfAnother: "A report is taken whichever attempt it is about, and whoever made that.",
        ReportGoneFirst: "A report is deleted before its result is written.",
        SenderGoneIgnored: "What somebody has under way who is gone is waited for.",
        AbsenceBeforeReports: "A sender's absence is acted upon before its reports are read.",
        StopWithoutWaiting: "A clean stop does not wait for its attempts to end.",
        ClaimWithoutOpen: "A claim does not carry over which runs are open.",
        LagUnrecorded: "The mark passes a slot that waits for its host, and nothing says that the host lags.",
        LagMarkUnmoved: "A launch for a host that lags does not move its mark.",
        LagEndsEarly: "A host lags no more as soon as it was looked at, whether or not slots wait for it.",
        LagUnread: "A successor does not read which hosts lag.",
        LagThroughDisable: "A project is disabled, and nothing says what became of its slots that waited for a host.",
        UnseenWaits: "A slot that nobody saw when it was due waits for a host that lags like one that somebody saw.",
        LagLeftBehind: "A trigger goes to another host, and nothing becomes of its slots that waited for the former one.",
    }
    "Mutants of queues, on the owner's side." QUEUE {
        WithdrawnUnsettled: "What a worker does not name is withdrawn, whether or not the claim that gave it is settled.",
        OldIncarnationHeard: "A former life of a worker is heard like its present one.",
        IncarnationsUnread: "A successor does not learn the incarnations of workers from the records.",
        CookieOfBefore: "A successor has the cookie of its predecessor.",
        ClaimGivenTwice: "A claim that is repeated gets other runs.",
        NoFreshPeriod: "A successor gives up who was not heard by itself.",
        AwayUnnoticed: "An owner that was away takes its own absence for silence.",
        PatienceOfOneLease: "A worker is given up after its lease instead of 1.25 of it.",
        ConclusionsFirst: "Conclusions come before results, and from what is named as running alone.",
        ReportConcludes: "A report is taken as if it named everything that the worker has.",
        SinceIgnored: "What former lives of a worker had never began, also if it was in another log.",
        StaleCounts: "A result counts whatever its token.",
        CountsTwice: "A result counts also after another one of the same attempt.",
        ReleasedByAnybody: "A release counts whatever its token.",
        TakenBackBeyondLimits: "A run in doubt is taken back without a look at limits.",
        LostUnrecorded: "A worker is told that it lost a run, and the record leaves it in doubt.",
        CancelUnrecorded: "A cancel is in memory only.",
        RetryBeforeCancel: "A run that is to end is given again after a failure.",
        TokenForgotten: "A run that waits forgets its last token.",
        AttemptOfDeadAgain: "The number of an attempt under which a worker died is used again.",
        NumberOfUnbegunKept: "The number of an attempt that never began is not used again.",
        DeathsUncounted: "The deaths of workers under a run are not counted.",
        ExpiresThoughBegun: "A run that was given before expires.",
        WaitingIsAlive: "A claim that waits gets runs, whether or not that life of its worker was heard of late.",
        GivenUpWaits: "A claim that its worker gave up gets runs as long as it waits.",
        ClaimedUnread: "A successor does not read which runs were given together.",
        ClaimedGoneEarly: "What runs share that were given together is gone with the first of them.",
        RateUnrecorded: "How many runs were given within the last period is in memory only.",
        RedrivenStaysDead: "A run that is redriven is kept among the dead ones.",
        UniqueUnread: "A successor does not read which runs unique keys stand for.",
        UniqueLater: "A unique key is written after the run that it stands for.",
        UniqueGoneWithRun: "A unique key counts no longer than until its run is past.",
        FormerUncounted: "Limits do not count what a former owner gave.",
    }
    "Mutants of the order in which queues give runs, and of how many." QUEUE_ORDER {
        LastWaiterFirst: "Of those who wait for a queue, the last to come is given its next run.",
        RetryWhereItWas: "A run that failed is claimed by the instant from which it was due first.",
        DueBeyondItsKey: "A run that becomes due is ready, however many of its key execute.",
        RateByTheClock: "A rate holds within full periods of the clock instead of within any stretch of time.",
    }
    "Mutants of triggers that feed queues." FEED {
        EnqueuedLater: "A slot's run is enqueued after the mark that passes the slot.",
        RecordGoneLater: "A run is enqueued before its record is gone.",
        QueuedNotActive: "A run that a queue has does not count as unfinished.",
        EnqueuedKept: "What was enqueued ahead is not taken back.",
    }
    "Mutants of runs that have parts." PICK {
        PositionUnwritten: "Whose turn it was last is in memory only.",
        NotPassedOn: "What waits for a worker that is gone waits for it.",
        PartsByName: "Of the parts of a run that are for one worker there is one.",
        PartEndsApart: "That a part has ended is written after its end.",
        ChosenUnread: "A successor does not read who was chosen, and chooses anew.",
        FormerLifeKept: "What a former life of a worker had is taken for what its present one has.",
    }
    "Mutants of holds." HOLD {
        StartWithoutMargin: "A program is started with whatever validity is left, and without a renewal since the claim.",
        ReleaseBeforeEmpty: "A claim is released when the program is told to end, not when nothing of it is left.",
        HoldValidityFromReply: "The deadlines of a program count from the answer to a renewal instead of from its sending.",
        KillAt115Percent: "A program is killed after 1.15 T without a renewal.",
        LeftoversIgnored: "A program is started although something of a former start may be left on the machine.",
    }
    "Mutants of rings." RING {
        TurnToldUnwon: "A server tells of a turn before it knows that its commit won.",
        TurnOnStaleRead: "A turn is written over whatever the record has become since it was read.",
        PositionAsIndex: "The position of a rotation is the index of a name.",
        SponsorForgets: "A sponsor forgets its members without taking them out.",
        SuccessorSkipsSlot: "Who stands in for another skips the slot that was due.",
        TurnWithoutRoll: "A turn is written though members came or left since they were read.",
        NoMarkOfLeaver: "Nothing is left of a member that is gone.",
        VisitIgnored: "A member is brought back by a message of a visit that is over.",
        CursorWithoutGeneration: "A follower goes on by its number in a subscription that is another one.",
        AcceptUnacknowledged: "A member acts on a part before its acceptance is known to be written.",
    }
    "Mutants of the packed past." HISTORY {
        SegmentsBeforePages: "Segments of the past are deleted before the pages that they are merged into are written.",
    }
    "Mutants of what is kept of the past." RETENTION {
        PagesBeforeFloor: "Lines of the past are dropped before the floor says so.",
        NotIndexed: "Exceptions are merged, and not indexed.",
    }
}

/// What a rule says: the right value, unless this mutant is switched on.
#[inline]
pub fn pick<T>(mutant: Mutant, right: T, wrong: T) -> T {
    if active(mutant) { wrong } else { right }
}

/// Does something wrong besides, if this mutant is switched on.
#[inline]
pub fn also(mutant: Mutant, wrong: impl FnOnce()) {
    if active(mutant) {
        wrong();
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
