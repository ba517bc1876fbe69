//! From what a person wrote to what it means, with everything that is wrong at once.
//!
//! Each part is read as far as it can be; what is wrong is noted with a JSON pointer to its field, and
//! reading goes on. Only if nothing was noted is there a [`Definition`].

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU64;
use std::time::Duration;

use super::draft::{Draft, RetryDraft, ScheduleDraft, Texts, WebhookDraft};
use super::label::Labels;
use super::{Definition, read};
use crate::instant::Instant;
use crate::limits::{
    ALERT_AFTER_MAX, ALERT_AFTER_MIN, CATCH_UP_CAP_DEFAULT, CATCH_UP_CAP_MAX, EVERY_MAX, EVERY_MIN,
    JITTER_MAX, MAX_LATENESS_MAX, MAX_LATENESS_MIN, PAUSE_AFTER_MAX, RETRY_ATTEMPTS_MAX,
    RETRY_DELAY_MAX, RETRY_DELAY_MIN, RETRY_GROWN_DELAY_MAX, WEBHOOK_TIMEOUT_DEFAULT,
    WEBHOOK_TIMEOUT_MAX, WEBHOOK_TIMEOUT_MIN,
};
use crate::notice::{Occasion, Occasions};
use crate::policy::{Backoff, CatchUp, Delivery, Overlap, Policy, Retry};
use crate::schedule::calendar::QuietWindow;
use crate::schedule::cron::{Cron, Dialect, Parsed};
use crate::schedule::every::Every;
use crate::schedule::local::{Fold, Gap, Local};
use crate::schedule::zone::ZoneId;
use crate::schedule::{Schedule, ScheduleError, SchedulePlan, Spec};
use crate::target::Target;
use crate::webhook::{Method, Webhook};

/// A field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadField {
    /// Which one, as a JSON pointer: `/schedule/cron/1`.
    pub pointer: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// What was found wrong so far.
#[derive(Default)]
pub(crate) struct Faults(pub(crate) Vec<BadField>);

impl Faults {
    pub(crate) fn add(&mut self, pointer: impl Into<String>, why: impl Display) {
        self.0.push(BadField { pointer: pointer.into(), why: why.to_string() });
    }

    /// The value, if it is good.
    pub(crate) fn take<T, E: Display>(
        &mut self,
        pointer: impl Into<String>,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|why| self.add(pointer, why)).ok()
    }

    /// The value if there is one that is good, or else the usual one.
    pub(crate) fn or_usual<F, T, E: Display>(
        &mut self,
        pointer: &str,
        field: Option<F>,
        usual: T,
        read: impl FnOnce(F) -> Result<T, E>,
    ) -> T {
        match field {
            Some(field) => self.take(pointer, read(field)).unwrap_or(usual),
            None => usual,
        }
    }

    /// The word that an optional field says, or the usual one.
    pub(crate) fn word<T: Copy>(
        &mut self,
        pointer: &str,
        text: Option<&str>,
        usual: T,
        words: Words<T>,
    ) -> T {
        self.or_usual(pointer, text, usual, |text| read::word(text, words))
    }
}

/// What becomes of a run when nobody knows whether it was carried out.
pub(crate) const DELIVERIES: [(&str, Delivery); 2] =
    [("at_least_once", Delivery::AtLeastOnce), ("at_most_once", Delivery::AtMostOnce)];

/// Words, and what each means.
pub(crate) type Words<'a, T> = &'a [(&'a str, T)];

impl Draft {
    /// What it means, or all that is wrong with it. A schedule fires at least once after `now`. What was
    /// stored was good when it was written: it is read with `Instant(0)`.
    pub fn build(&self, now: Instant) -> Result<Definition, Vec<BadField>> {
        let mut faults = Faults::default();
        let name = self.name.as_deref().unwrap_or_default();
        faults.take("/name", read::check_name(name));
        let labels = Labels::of(&self.labels).unwrap_or_else(|found| {
            faults.0.extend(found);
            Labels::default()
        });
        let schedule = build_schedule(self.schedule.as_ref(), name, now, &mut faults);
        let target = self.build_target(&mut faults);
        let policy = self.build_policy(&mut faults);
        match (schedule, target) {
            (Some(schedule), Some(target)) if faults.0.is_empty() => {
                Ok(Definition { name: name.into(), labels, schedule, target, policy })
            }
            _ => Err(faults.0),
        }
    }

    /// Whether it says all that is to be stored: a mask that stands for no value is refused. Who merely reads what
    /// somebody else has stored knows no more than the mask.
    pub fn check_unmasked(&self) -> Result<(), [BadField; 1]> {
        let secret = self.webhook.iter().flat_map(|webhook| webhook.secret_headers.values());
        if secret.into_iter().all(|value| value != WebhookDraft::MASK) {
            return Ok(());
        }
        let pointer = "/webhook/secret_headers".to_owned();
        let why = "*** keeps a value, and none is stored under this name".to_owned();
        Err([BadField { pointer, why }])
    }

    fn build_target(&self, faults: &mut Faults) -> Option<Target> {
        match (&self.webhook, &self.queue) {
            (Some(webhook), None) => build_webhook(webhook, faults).map(Target::Webhook),
            (None, Some(feed)) => feed.build(faults).map(Target::Queue),
            (None, None) => {
                faults.add("/webhook", format!("{MISSING}, or feeds a queue: {FEED}"));
                None
            }
            (Some(_), Some(_)) => {
                faults.add("/queue", "name either \"webhook\" or \"queue\"");
                None
            }
        }
    }

    fn build_policy(&self, faults: &mut Faults) -> Policy {
        const OVERLAPS: [(&str, Overlap); 4] = [
            ("allow", Overlap::Allow),
            ("skip", Overlap::Skip),
            ("queue_one", Overlap::QueueOne),
            ("replace", Overlap::Replace),
        ];
        let catch_up = self.build_catch_up(faults);
        let (overlap, delivery) = (self.overlap.as_deref(), self.delivery.as_deref());
        let overlap = faults.word("/overlap", overlap, Overlap::default(), &OVERLAPS);
        let delivery = faults.word("/delivery", delivery, Delivery::default(), &DELIVERIES);
        let retry = build_retry(self.retry.as_ref(), faults);
        let max_lateness_ms =
            faults.or_usual("/max_lateness", self.max_lateness.as_deref(), None, |text| {
                read::length(text, MAX_LATENESS_MIN, MAX_LATENESS_MAX)
                    .map(|late| Some(millis(late)))
            });
        let pause_after = faults.or_usual("/pause_after", self.pause_after, None, |count| {
            read::number(count, 1, PAUSE_AFTER_MAX).map(|count| u32::try_from(count).ok())
        });
        let alert_after_ms =
            faults.or_usual("/alert_after", self.alert_after.as_deref(), None, |text| {
                read::length(text, ALERT_AFTER_MIN, ALERT_AFTER_MAX)
                    .map(|after| Some(millis(after)))
            });
        let notify = self.build_notify(faults);
        Policy {
            catch_up,
            overlap,
            delivery,
            retry,
            max_lateness_ms,
            pause_after,
            alert_after_ms,
            notify,
        }
    }

    fn build_notify(&self, faults: &mut Faults) -> Option<Occasions> {
        if self.notify.is_empty() {
            return None;
        }
        if self.notify.0 == ["none"] {
            return Some(Occasions::NONE);
        }
        let read = |text: &str| read::word(text, &Occasion::WORDS);
        Some(texts(&self.notify, "/notify", faults, read).into_iter().collect())
    }

    fn build_catch_up(&self, faults: &mut Faults) -> CatchUp {
        build_catch_up(self.catch_up.as_deref(), self.catch_up_cap, faults)
    }
}

pub(crate) fn build_catch_up(word: Option<&str>, cap: Option<u64>, faults: &mut Faults) -> CatchUp {
    const WORDS: [(&str, CatchUp); 3] = [
        ("skip", CatchUp::Skip),
        ("latest", CatchUp::Latest),
        ("all", CatchUp::All(CATCH_UP_CAP_DEFAULT)),
    ];
    let catch_up = faults.word("/catch_up", word, CatchUp::Latest, &WORDS);
    let Some(cap) = cap else { return catch_up };
    let cap = faults.take("/catch_up_cap", read::number(cap, 1, CATCH_UP_CAP_MAX));
    match (catch_up, cap.and_then(|cap| u16::try_from(cap).ok())) {
        (CatchUp::All(_), Some(cap)) => CatchUp::All(cap),
        (CatchUp::All(_), None) => catch_up,
        (CatchUp::Skip | CatchUp::Latest, _) => {
            faults.add("/catch_up_cap", "it means something with \"catch_up\": \"all\" only");
            catch_up
        }
    }
}

pub(crate) fn build_retry(draft: Option<&RetryDraft>, faults: &mut Faults) -> Retry {
    const BACKOFFS: [(&str, Backoff); 2] =
        [("constant", Backoff::Constant), ("exponential", Backoff::Exponential)];
    let Some(draft) = draft else { return Retry::default() };
    let usual = Retry::default();
    let attempts = faults.or_usual("/retry/attempts", draft.attempts, usual.attempts, |attempts| {
        let attempts = read::number(attempts, 1, RETRY_ATTEMPTS_MAX)?;
        Ok::<_, String>(u8::try_from(attempts).expect("10 at most"))
    });
    let backoff = draft.backoff.as_deref();
    let backoff = faults.word("/retry/backoff", backoff, usual.backoff, &BACKOFFS);
    let delay_ms =
        faults.or_usual("/retry/delay", draft.delay.as_deref(), usual.delay_ms, |text| {
            read::length(text, RETRY_DELAY_MIN, RETRY_DELAY_MAX).map(short_millis)
        });
    let usual_max = usual.max_delay_ms.max(delay_ms);
    let max_delay_ms =
        faults.or_usual("/retry/max_delay", draft.max_delay.as_deref(), usual_max, |text| {
            let least = Duration::from_millis(delay_ms.into());
            read::length(text, least, RETRY_GROWN_DELAY_MAX).map(short_millis)
        });
    Retry { attempts, delay_ms, backoff, max_delay_ms }
}

/// What a trigger does, for whoever left it out.
const MISSING: &str = "a trigger calls a webhook: {\"url\": \"https://example.com/hook\"}";
const FEED: &str = "{\"name\": \"mail\", \"handler\": \"welcome\"}";

fn build_webhook(draft: &WebhookDraft, faults: &mut Faults) -> Option<Webhook> {
    let method = draft.method.as_deref();
    let method = faults.or_usual("/webhook/method", method, Method::default(), str::parse);
    let timeout = draft.timeout.as_deref();
    let timeout = faults.or_usual("/webhook/timeout", timeout, WEBHOOK_TIMEOUT_DEFAULT, |text| {
        read::length(text, WEBHOOK_TIMEOUT_MIN, WEBHOOK_TIMEOUT_MAX)
    });
    let Some(url) = draft.url.as_deref() else {
        faults.add("/webhook/url", MISSING);
        return None;
    };
    let pairs = |headers: &BTreeMap<String, String>| headers.clone().into_iter().collect();
    let (headers, secret) = (pairs(&draft.headers), pairs(&draft.secret_headers));
    let content_type = draft.content_type.as_deref();
    let open = Webhook::new(url, method, headers, content_type, draft.body.clone(), timeout);
    let open = open.map_err(|why| faults.add(format!("/webhook/{}", why.field()), &why)).ok()?;
    let webhook = open.with_secret_headers(secret);
    webhook.map_err(|why| faults.add("/webhook/secret_headers", &why)).ok()
}

fn build_schedule(
    draft: Option<&ScheduleDraft>,
    name: &str,
    now: Instant,
    faults: &mut Faults,
) -> Option<Schedule> {
    let Some(draft) = draft else {
        return Schedule::new(SchedulePlan::default(), now).ok();
    };
    let before = faults.0.len();
    draft.check_sense(faults);
    let zone = faults.or_usual("/schedule/tz", draft.tz.as_deref(), ZoneId::UTC, ZoneId::get);
    let mut specs = draft.crons(zone, name, faults);
    specs.extend(draft.intervals(name, faults));
    specs.extend(draft.moments(faults));
    let plan = SchedulePlan {
        specs,
        first: moment("/schedule/start", draft.start.as_deref(), faults),
        last: moment("/schedule/end", draft.end.as_deref(), faults),
        zone: Some(zone),
        excluded: list(&draft.exclude, "/schedule/exclude", faults, read::date),
        quiet: draft.windows(faults),
        jitter: faults.or_usual(
            "/schedule/jitter",
            draft.jitter.as_deref(),
            Duration::ZERO,
            |text| read::length(text, Duration::ZERO, JITTER_MAX),
        ),
        limit: faults.or_usual("/schedule/limit", draft.limit, None, |limit| {
            NonZeroU64::new(limit).map(Some).ok_or("a limit is 1 or more runs")
        }),
    };
    // What could not be read is missing in the plan: another error would be about that.
    if faults.0.len() > before {
        return None;
    }
    plan_schedule(plan, now, faults)
}

/// The schedule of a plan, if it makes sense as a whole.
pub(crate) fn plan_schedule(
    plan: SchedulePlan,
    now: Instant,
    faults: &mut Faults,
) -> Option<Schedule> {
    Schedule::new(plan, now).map_err(|why| faults.add(pointer(&why), &why)).ok()
}

/// The field that an error of a schedule as a whole is about.
fn pointer(why: &ScheduleError) -> &'static str {
    match why {
        ScheduleError::Instants { .. } | ScheduleError::Twice { .. } => "/schedule/at",
        ScheduleError::ExcludedDates { .. } | ScheduleError::ExcludedDate { .. } => {
            "/schedule/exclude"
        }
        ScheduleError::QuietWindows { .. } | ScheduleError::QuietWindow => "/schedule/quiet",
        ScheduleError::Jitter { .. } => "/schedule/jitter",
        ScheduleError::Backwards { .. } => "/schedule/end",
        ScheduleError::Specs { .. } | ScheduleError::Never { .. } => "/schedule",
    }
}

impl ScheduleDraft {
    /// What means nothing is refused: whoever wrote it meant something.
    fn check_sense(&self, faults: &mut Faults) {
        if self.cron.is_empty() && self.every.is_empty() && self.at.is_empty() {
            faults.add(
                "/schedule",
                "name \"cron\", \"every\" or \"at\"; a trigger that is run on demand has no schedule",
            );
            return;
        }
        let cron_only = [("dialect", &self.dialect), ("gap", &self.gap), ("fold", &self.fold)];
        for (field, text) in cron_only {
            if text.is_some() && self.cron.is_empty() {
                faults.add(format!("/schedule/{field}"), "it means something with \"cron\" only");
            }
        }
        if self.phase.is_some() && self.every.is_empty() {
            faults.add("/schedule/phase", "it means something with \"every\" only");
        }
        if self.tz.is_some()
            && self.cron.is_empty()
            && self.exclude.is_empty()
            && self.quiet.is_empty()
        {
            faults.add(
                "/schedule/tz",
                "it means something with \"cron\", \"exclude\" or \"quiet\" only",
            );
        }
    }

    pub(crate) fn crons(&self, zone: ZoneId, name: &str, faults: &mut Faults) -> Vec<Spec> {
        const DIALECTS: [(&str, Dialect); 2] =
            [("open", Dialect::Open), ("quartz", Dialect::Quartz)];
        const GAPS: [(&str, Gap); 2] = [("fire", Gap::Fire), ("skip", Gap::Skip)];
        const FOLDS: [(&str, Fold); 3] =
            [("first", Fold::First), ("second", Fold::Second), ("both", Fold::Both)];
        let dialect = self.dialect.as_deref();
        let dialect = faults.word("/schedule/dialect", dialect, Dialect::Open, &DIALECTS);
        let gap = faults.word("/schedule/gap", self.gap.as_deref(), Gap::Usual, &GAPS);
        let fold = faults.word("/schedule/fold", self.fold.as_deref(), Fold::Usual, &FOLDS);
        let read = |text: &str| {
            Ok::<_, String>(match Cron::parse(text, dialect, name) {
                Ok(Parsed::Pattern(cron)) => Spec::Cron(Local::new(cron, zone, gap, fold)),
                Ok(Parsed::Every(interval)) => {
                    Spec::Every(Every::of_name(interval, name).map_err(|why| why.to_string())?)
                }
                Err(why) => return Err(why.to_string()),
            })
        };
        texts(&self.cron, "/schedule/cron", faults, read)
    }

    fn intervals(&self, name: &str, faults: &mut Faults) -> Vec<Spec> {
        let phase = faults.or_usual("/schedule/phase", self.phase.as_deref(), None, |text| {
            read::length(text, Duration::ZERO, EVERY_MAX).map(Some)
        });
        let read = |text: &str| {
            let interval = read::length(text, EVERY_MIN, EVERY_MAX)?;
            let every = match phase {
                Some(phase) => Every::at_phase(interval, phase),
                None => Every::of_name(interval, name),
            };
            every.map(Spec::Every).map_err(|why| why.to_string())
        };
        texts(&self.every, "/schedule/every", faults, read)
    }

    fn moments(&self, faults: &mut Faults) -> Option<Spec> {
        if self.at.is_empty() {
            return None;
        }
        let moments = list(&self.at, "/schedule/at", faults, |text| {
            text.parse::<Instant>().map_err(|why| why.to_string())
        });
        let whole = moments.len() == self.at.len();
        whole.then(|| faults.take("/schedule/at", Spec::at(moments))).flatten()
    }

    pub(crate) fn windows(&self, faults: &mut Faults) -> Vec<QuietWindow> {
        let mut windows = Vec::with_capacity(self.quiet.len());
        for (index, window) in self.quiet.iter().enumerate() {
            let place = format!("/schedule/quiet/{index}");
            let days = list(&window.days, &format!("{place}/days"), faults, read::weekday);
            let named = days.iter().fold(0, |bits, bit| bits | bit);
            let weekdays = if window.days.is_empty() { 0x7f } else { named };
            let from = faults.take(format!("{place}/from"), read::time(&window.from));
            let to = faults.take(format!("{place}/to"), read::time(&window.to));
            if let (Some(from), Some(to)) = (from, to) {
                windows.push(QuietWindow { weekdays, from, to: if to == 0 { 86_400 } else { to } });
            }
        }
        windows
    }
}

fn moment(pointer: &str, text: Option<&str>, faults: &mut Faults) -> Option<Instant> {
    faults.or_usual(pointer, text, None, |text| text.parse().map(Some))
}

/// Reads each text of a list; what is wrong is told with its place in it.
pub(crate) fn list<T>(
    texts: &[String],
    pointer: &str,
    faults: &mut Faults,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let texts = texts.iter().enumerate();
    texts
        .filter_map(|(index, text)| faults.take(format!("{pointer}/{index}"), read(text)))
        .collect()
}

/// The same, for what may also be one text without a list.
pub(crate) fn texts<T>(
    texts: &Texts,
    pointer: &str,
    faults: &mut Faults,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    match texts.0.as_slice() {
        [text] => faults.take(pointer, read(text)).into_iter().collect(),
        texts => list(texts, pointer, faults, read),
    }
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).expect("within its limits")
}

fn short_millis(length: Duration) -> u32 {
    u32::try_from(length.as_millis()).expect("within its limits")
}

#[cfg(test)]
mod tests;
