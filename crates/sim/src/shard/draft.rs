//! Triggers as the dice have them: short intervals, so that much happens, and every policy.

use engine::instant::Instant;
use engine::queue::feed::FeedDraft;
use engine::trigger::{
    Definition, Draft, QuietDraft, RetryDraft, ScheduleDraft, Texts, WebhookDraft,
};
use serde_json::value::RawValue;

use crate::dice::Dice;

/// What a command says: what it means, and its text.
pub struct Written {
    /// The definition that the draft stands for.
    pub definition: Box<Definition>,
    /// The draft as JSON, as a command carries it.
    pub text: Box<RawValue>,
    /// What it says, field by field, to be changed.
    pub draft: Draft,
}

/// A text, ready to be sent with a command. None if it says something that can never fire.
pub fn write(draft: Draft, now: Instant) -> Option<Written> {
    let definition = Box::new(draft.build(now).ok()?);
    let text = serde_json::value::to_raw_value(&draft).expect("a draft is plain");
    Some(Written { definition, text, draft })
}

/// The hosts that triggers go to.
pub const HOSTS: [&str; 2] = ["receiver.test", "slow.test"];

/// The origin of one of them.
pub fn origin(host: &str) -> u64 {
    let webhook =
        Some(WebhookDraft { url: Some(format!("http://{host}/")), ..WebhookDraft::default() });
    let draft = Draft { name: Some("host".to_owned()), webhook, ..Draft::default() };
    draft.build(Instant(0)).expect("a short draft").target.origin()
}

/// A trigger with this name.
pub fn trigger(name: &str, dice: &mut Dice, now: Instant) -> Draft {
    let mut draft = Draft { name: Some(name.to_owned()), ..Draft::default() };
    draft.schedule = Some(schedule(dice, now));
    draft.webhook = Some(WebhookDraft {
        url: Some(format!("http://{}/{name}", dice.pick(&HOSTS))),
        timeout: Some(dice.pick(&["1s", "2s", "5s", "9s"]).to_owned()),
        ..WebhookDraft::default()
    });
    policy(&mut draft, dice);
    draft
}

/// Lets a trigger go to the other host.
pub fn other_host(draft: &mut Draft) {
    if let Some(url) = draft.webhook.as_mut().and_then(|webhook| webhook.url.as_mut()) {
        let [one, other] = HOSTS;
        let (from, to) = if url.contains(one) { (one, other) } else { (other, one) };
        *url = url.replace(from, to);
    }
}

/// The queue that triggers feed.
pub const QUEUE: &str = "mail";

/// Lets a trigger feed the queue, instead of calling a webhook.
pub fn feed(draft: &mut Draft) {
    draft.webhook = None;
    draft.queue = Some(FeedDraft {
        name: Some(QUEUE.to_owned()),
        handler: Some("welcome".to_owned()),
        ..FeedDraft::default()
    });
}

/// Gives a trigger other policies, and leaves its schedule alone.
pub fn policy(draft: &mut Draft, dice: &mut Dice) {
    let catch_up = dice.pick(&["skip", "latest", "latest", "all"]);
    draft.catch_up = Some(catch_up.to_owned());
    draft.catch_up_cap = (catch_up == "all").then(|| dice.pick(&[1, 2, 5, 40]));
    draft.overlap = Some(dice.pick(&["allow", "allow", "skip", "queue_one", "replace"]).to_owned());
    draft.delivery =
        Some(dice.pick(&["at_least_once", "at_least_once", "at_most_once"]).to_owned());
    draft.retry = Some(RetryDraft {
        attempts: Some(dice.pick(&[1, 2, 3, 4])),
        delay: Some(dice.pick(&["1s", "1s", "3s"]).to_owned()),
        backoff: Some(dice.pick(&["constant", "exponential"]).to_owned()),
        max_delay: Some("6s".to_owned()),
    });
    draft.max_lateness = dice.chance(30).then(|| dice.pick(&["1s", "2s", "7s"]).to_owned());
    draft.pause_after = dice.chance(15).then(|| dice.pick(&[1, 2, 3]));
    draft.alert_after = dice.chance(20).then(|| dice.pick(&["2s", "5s", "15s"]).to_owned());
}

/// Gives a trigger another jitter, which is another schedule.
pub fn rejitter(draft: &mut Draft, dice: &mut Dice) {
    if let Some(schedule) = &mut draft.schedule {
        schedule.jitter = Some(dice.pick(&["0s", "1s", "2s", "8s"]).to_owned());
    }
}

/// A random schedule: mostly short intervals, sometimes with jitter, limits or quiet hours.
pub fn schedule(dice: &mut Dice, now: Instant) -> ScheduleDraft {
    let mut schedule = ScheduleDraft::default();
    let seconds = dice.pick(&[1, 1, 2, 3, 4, 5, 7, 10, 20]);
    match dice.between(0, 9) {
        0..=4 => schedule.cron = Texts(vec![format!("*/{seconds} * * * * *")]),
        5..=7 => {
            schedule.every = Texts(vec![format!("{seconds}s")]);
            schedule.phase = dice.chance(50).then(|| format!("{}s", dice.between(0, 3)));
        }
        8 => {
            schedule.cron = Texts(vec![format!("*/{seconds} * * * * *")]);
            schedule.every = Texts(vec!["7s".to_owned()]);
        }
        _ => {
            let moments = (0..dice.between(1, 20)).map(|place| {
                let ahead = 1_000 * (place * 3 + dice.between(0, 2)) + dice.between(1, 999);
                Instant(now.0 + ahead.cast_signed()).to_string()
            });
            let mut moments: Vec<String> = moments.collect();
            moments.dedup();
            schedule.at = moments;
        }
    }
    if dice.chance(45) {
        schedule.jitter = Some(dice.pick(&["1s", "1s", "2s", "5s", "30s"]).to_owned());
    }
    if dice.chance(25) {
        schedule.limit = Some(dice.pick(&[1, 2, 3, 5, 9]));
    }
    let moment = |dice: &mut Dice, low, high| {
        Some(Instant(now.0 + (1_000 * dice.between(low, high)).cast_signed()).to_string())
    };
    if dice.chance(8) {
        schedule.start = moment(dice, 0, 20);
    }
    if dice.chance(8) {
        schedule.end = moment(dice, 25, 90);
    }
    if dice.chance(10) {
        let minute = (now.second().rem_euclid(86_400) / 60).unsigned_abs() + dice.between(0, 2);
        let time = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
        let (from, to) = (time(minute), time(minute + 1));
        schedule.quiet = vec![QuietDraft { days: Vec::new(), from, to }];
    }
    schedule
}
