//! Runs and settings of queues as people write them, and what they mean.
//!
//! Each part is read as far as it can be, and everything that is wrong is told at once, as with triggers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::instant::Instant;
use crate::limits::{
    ALERT_AFTER_MAX, ALERT_AFTER_MIN, COMMAND_PARTS_MAX, CONCURRENCY_MAX, PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX, PRIORITY_DEFAULT, PRIORITY_LAST, QUEUE_WAITING_MAX, RATE_PERIOD_MAX,
    RATE_PERIOD_MIN, RATE_RUNS_MAX, RUN_DELAY_MAX, RUN_KEY_CHARS_MAX, RUN_TIMEOUT_MAX,
};
use crate::policy::Delivery;
use crate::shard::Submission;
use crate::trigger::build::{DELIVERIES, Faults, build_retry, millis};
use crate::trigger::draft::{object, once};
use crate::trigger::{BadField, Labels, RetryDraft, check_name, read};

use super::given::GivenPolicy;
use super::pick::Pick;
use super::rate::RateLimit;
use super::record::{LeaseKind, QueueSettings};
use super::submitted::UniqueKey;

/// A run that a person or a program wants a queue to have.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/queues.md tells them")]
pub struct RunDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(deserialize_with = "once::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A command, as a worker runs it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/queues.md tells them")]
pub struct CommandDraft {
    pub argv: Vec<String>,
    #[serde(default, deserialize_with = "once::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// What a worker is to do, as it is kept and told.
#[derive(Serialize)]
struct Action<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a CommandDraft>,
}

/// What a queue may, as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/queues.md tells them")]
pub struct QueueDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_key: Option<u64>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// So many runs in any stretch of time, as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/queues.md tells them")]
pub struct RateDraft {
    pub runs: u64,
    pub per: String,
}

impl fmt::Debug for RunDraft {
    /// Without what it is about, which may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RunDraft({:?})", self.queue)
    }
}

impl RunDraft {
    /// What it means, or all that is wrong with it.
    pub fn build(&self, now: Instant) -> Result<Submission, Vec<BadField>> {
        let mut faults = Faults::default();
        let action = self.build_action(&mut faults);
        let due = self.build_due(now, &mut faults);
        let expires =
            faults.or_usual("/expires_after", self.expires_after.as_deref(), None, |text| {
                let after = read::length(text, Duration::from_secs(1), RUN_DELAY_MAX)?;
                Ok::<_, String>(Some(due.unwrap_or(now).after(after)))
            });
        let priority = faults.or_usual("/priority", self.priority, PRIORITY_DEFAULT, |priority| {
            let priority = read::number(priority, 0, PRIORITY_LAST.into())?;
            Ok::<_, String>(u8::try_from(priority).expect("one digit"))
        });
        let key =
            faults.or_usual("/key", self.key.as_deref(), None, |key| check_key(key).map(Some));
        let unique = self.build_unique(&mut faults);
        let timeout_ms = faults.or_usual("/timeout", self.timeout.as_deref(), None, |text| {
            read::length(text, Duration::from_secs(1), RUN_TIMEOUT_MAX).map(|it| Some(millis(it)))
        });
        let delivery = self.delivery.as_deref();
        let delivery = faults.word("/delivery", delivery, Delivery::default(), &DELIVERIES);
        let retry = build_retry(self.retry.as_ref(), &mut faults);
        let pick = Pick::build(self.pick.as_deref(), self.count, &mut faults);
        let labels = Labels::of(&self.labels).unwrap_or_else(|found| {
            faults.0.extend(found);
            Labels::default()
        });
        let labels = Some(labels.as_str()).filter(|text| !text.is_empty()).map(Into::into);
        match action {
            Some(action) if faults.0.is_empty() => Ok(Submission {
                priority,
                due,
                expires,
                key,
                unique,
                labels,
                policy: GivenPolicy { delivery, retry },
                timeout_ms,
                pick,
                action,
            }),
            _ => Err(faults.0),
        }
    }

    fn build_due(&self, now: Instant, faults: &mut Faults) -> Option<Instant> {
        let delay = faults.or_usual("/delay", self.delay.as_deref(), None, |text| {
            read::length(text, Duration::ZERO, RUN_DELAY_MAX).map(Some)
        });
        let not_before = faults.or_usual("/not_before", self.not_before.as_deref(), None, |text| {
            let at: Instant = text.parse().map_err(|why| format!("{why}"))?;
            if at > now.after(RUN_DELAY_MAX) {
                return Err("it is more than a year ahead".to_owned());
            }
            Ok(Some(at))
        });
        if self.delay.is_some() && self.not_before.is_some() {
            faults.add("/delay", "name either \"delay\" or \"not_before\"");
        }
        // What was due before it came is due when it comes.
        delay.map(|delay| now.after(delay)).or(not_before).filter(|due| *due > now)
    }

    fn build_unique(&self, faults: &mut Faults) -> Option<UniqueKey> {
        let window_ms =
            faults.or_usual("/unique_window", self.unique_window.as_deref(), 0, |text| {
                read::length(text, Duration::ZERO, RUN_DELAY_MAX).map(millis)
            });
        if self.unique_window.is_some() && self.unique_key.is_none() {
            faults.add("/unique_window", "it means something with \"unique_key\" only");
        }
        let key = self.unique_key.as_deref()?;
        let key = faults.take("/unique_key", check_key(key))?;
        Some(UniqueKey { key, window_ms })
    }

    fn build_action(&self, faults: &mut Faults) -> Option<Box<RawValue>> {
        let before = faults.0.len();
        match (&self.handler, &self.command) {
            (None, None) => {
                let why = "name a \"handler\" with a \"payload\", or a \"command\": {\"argv\": [\"/usr/bin/true\"]}";
                faults.add("/handler", why);
            }
            (Some(_), Some(_)) => faults.add("/command", "name either \"handler\" or \"command\""),
            (Some(handler), None) => {
                faults.take("/handler", check_name(handler));
            }
            (None, Some(command)) => command.check(faults),
        }
        if self.payload.is_some() && self.handler.is_none() {
            faults.add("/payload", "it means something with \"handler\" only");
        }
        let len = self.payload.as_ref().map_or(0, |payload| payload.get().len());
        if len > PAYLOAD_BYTES_MAX {
            let why = format!("a payload has at most {PAYLOAD_BYTES_MAX} bytes, and this is {len}");
            faults.add("/payload", why);
        }
        if self.payload.as_ref().is_some_and(|payload| depth(payload.get()) > PAYLOAD_DEPTH_MAX) {
            let why =
                format!("lists and objects lie at most {PAYLOAD_DEPTH_MAX} deep in each other");
            faults.add("/payload", why);
        }
        if faults.0.len() > before {
            return None;
        }
        let (handler, payload) = (self.handler.as_deref(), self.payload.as_deref());
        let action = Action { handler, payload, command: self.command.as_ref() };
        Some(to_raw_value(&action).expect("texts always serialize"))
    }
}

impl CommandDraft {
    fn check(&self, faults: &mut Faults) {
        match self.argv.first() {
            Some(program) if program.starts_with('/') => {}
            Some(_) => {
                faults.add("/command/argv/0", "the program is an absolute path, like /usr/bin/env");
            }
            None => faults.add("/command/argv", "the program is missing, like [\"/usr/bin/true\"]"),
        }
        for (field, len) in [("argv", self.argv.len()), ("env", self.env.len())] {
            if len > COMMAND_PARTS_MAX {
                let why = format!("at most {COMMAND_PARTS_MAX} are allowed, and these are {len}");
                faults.add(format!("/command/{field}"), why);
            }
        }
        if self.env.keys().any(|name| name.is_empty() || name.contains('=')) {
            faults.add("/command/env", "a variable has a name without \"=\"");
        }
        let texts = self.argv.iter().chain(self.env.keys()).chain(self.env.values());
        let texts = texts.chain(&self.dir).map(String::as_str);
        let mut bytes = self.stdin.as_deref().map_or(0, str::len);
        for text in texts {
            bytes += text.len();
            if text.contains('\0') {
                faults.add("/command", "no text of a command has a zero byte");
                break;
            }
        }
        if bytes > PAYLOAD_BYTES_MAX {
            let why =
                format!("a command has at most {PAYLOAD_BYTES_MAX} bytes, and this is {bytes}");
            faults.add("/command", why);
        }
    }
}

/// What becomes of runs whose worker hears from no server for its lease.
const LEASES: [(&str, LeaseKind); 2] = [("loose", LeaseKind::Loose), ("strict", LeaseKind::Strict)];

impl QueueDraft {
    /// What it means, or all that is wrong with it.
    pub fn build(&self) -> Result<QueueSettings, Vec<BadField>> {
        let mut faults = Faults::default();
        let mut number = |pointer: &str, field: Option<u64>, most: u64| {
            faults.or_usual(pointer, field, None, |number| {
                read::number(number, 1, most).map(|number| u32::try_from(number).ok())
            })
        };
        let concurrency = number("/concurrency", self.concurrency, CONCURRENCY_MAX);
        let per_key = number("/per_key", self.per_key, CONCURRENCY_MAX);
        let waiting_max = number("/waiting_max", self.waiting_max, QUEUE_WAITING_MAX as u64);
        let rate = self.rate.as_ref().and_then(|rate| {
            let runs = read::number(rate.runs, 1, RATE_RUNS_MAX);
            let runs = faults.take("/rate/runs", runs)?;
            let per = read::length(&rate.per, RATE_PERIOD_MIN, RATE_PERIOD_MAX);
            let period_ms = u32::try_from(millis(faults.take("/rate/per", per)?)).ok()?;
            Some(RateLimit { runs: u32::try_from(runs).ok()?, period_ms })
        });
        let alert_after_ms =
            faults.or_usual("/alert_after", self.alert_after.as_deref(), None, |text| {
                read::length(text, ALERT_AFTER_MIN, ALERT_AFTER_MAX).map(|it| Some(millis(it)))
            });
        let lease = self.lease.as_deref();
        let lease = faults.word("/lease", lease, LeaseKind::default(), &LEASES);
        if !faults.0.is_empty() {
            return Err(faults.0);
        }
        Ok(QueueSettings { concurrency, per_key, rate, waiting_max, alert_after_ms, lease })
    }
}

/// How deep lists and objects lie in each other in a JSON text.
fn depth(json: &str) -> usize {
    let (mut depth, mut most, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                most = most.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

fn check_key(text: &str) -> Result<Box<str>, String> {
    let len = text.chars().count();
    if len == 0 || len > RUN_KEY_CHARS_MAX {
        return Err(format!(
            "1 to {RUN_KEY_CHARS_MAX} characters are allowed, and these are {len}"
        ));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000);

    fn draft(json: &str) -> RunDraft {
        serde_json::from_str(json).unwrap()
    }

    fn faults(json: &str) -> Vec<String> {
        let faults = draft(json).build(NOW).err().unwrap();
        faults.into_iter().map(|fault| format!("{}: {}", fault.pointer, fault.why)).collect()
    }

    #[test]
    fn a_run_is_what_was_written() {
        let run = draft(
            r#"{"handler": "mail", "payload": {"to":  "a"}, "delay": "1m", "expires_after": "1h", "key": "k",
                "unique_key": "u", "unique_window": "1d", "labels": {"b": "2", "a": "1"}, "timeout": "5m"}"#,
        );
        let run = run.build(NOW).unwrap();
        assert_eq!(run.action.get(), r#"{"handler":"mail","payload":{"to":  "a"}}"#);
        assert_eq!(run.due, Some(Instant(NOW.0 + 60_000)));
        assert_eq!(run.expires, Some(Instant(NOW.0 + 3_660_000)));
        assert_eq!((run.priority, run.timeout_ms), (5, Some(300_000)));
        assert_eq!(run.unique, Some(UniqueKey { key: "u".into(), window_ms: 86_400_000 }));
        assert_eq!(run.labels.as_deref(), Some("a=1,b=2"));
        let run = draft(
            r#"{"command": {"argv": ["/bin/x", "-y"]}, "not_before": "2020-01-01T00:00:00Z"}"#,
        );
        let run = run.build(NOW).unwrap();
        assert_eq!(run.action.get(), r#"{"command":{"argv":["/bin/x","-y"]}}"#);
        assert_eq!(run.due, None, "what was due before is due when it comes");
    }

    #[test]
    fn everything_that_is_wrong_with_a_run_is_told_at_once() {
        let told = faults(
            r#"{"command": {"argv": ["x"]}, "payload": 1, "priority": 10, "delay": "1x", "key": "",
                "unique_window": "1h", "delivery": "twice", "timeout": "31d"}"#,
        );
        let told = told.join("\n");
        for part in [
            "/command/argv/0: the program is an absolute path",
            "/payload: it means something with \"handler\" only",
            "/priority: 0 to 9",
            "/delay: `x` is not a unit",
            "/key: 1 to 200 characters",
            "/unique_window: it means something with \"unique_key\" only",
            "/delivery: ",
            "/timeout: ",
        ] {
            assert!(told.contains(part), "{part} is missing in:\n{told}");
        }
        assert!(faults("{}")[0].contains("name a \"handler\""));
        let both = faults(r#"{"handler": "a", "command": {"argv": ["/x"]}}"#);
        assert!(both[0].contains("either"), "{both:?}");
    }

    #[test]
    fn a_payload_is_taken_at_its_limit_and_refused_one_past_it() {
        let of = |len: usize| {
            draft(&format!(r#"{{"handler": "a", "payload": "{}"}}"#, "x".repeat(len - 2)))
        };
        assert!(of(PAYLOAD_BYTES_MAX).build(NOW).is_ok());
        let refused = of(PAYLOAD_BYTES_MAX + 1).build(NOW).err().unwrap();
        assert!(refused[0].why.contains("102400 bytes, and this is 102401"), "{refused:?}");
    }

    #[test]
    fn a_payload_is_no_deeper_than_readers_of_json_go() {
        let of = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            draft(&format!(r#"{{"handler": "a", "payload": {open}"[\"["{close}}}"#)).build(NOW)
        };
        assert!(of(PAYLOAD_DEPTH_MAX).is_ok());
        assert!(of(PAYLOAD_DEPTH_MAX + 1).is_err());
    }

    #[test]
    fn settings_of_a_queue_are_read_and_refused() {
        let read = |json: &str| serde_json::from_str::<QueueDraft>(json).unwrap().build();
        let settings = read(r#"{"concurrency": 3, "rate": {"runs": 100, "per": "1m"}}"#).unwrap();
        assert_eq!(settings.concurrency, Some(3));
        assert_eq!(settings.rate, Some(RateLimit { runs: 100, period_ms: 60_000 }));
        assert_eq!(settings.lease, LeaseKind::Loose);
        assert_eq!(read(r#"{"lease": "loose"}"#).unwrap(), QueueSettings::default());
        assert_eq!(read(r#"{"lease": "strict"}"#).unwrap().lease, LeaseKind::Strict);
        let refused = read(
            r#"{"concurrency": 0, "rate": {"runs": 1, "per": "2d"}, "waiting_max": 9999999, "lease": "exact"}"#,
        );
        let pointers: Vec<String> =
            refused.unwrap_err().into_iter().map(|fault| fault.pointer).collect();
        assert_eq!(pointers, ["/concurrency", "/waiting_max", "/rate/per", "/lease"]);
    }
}
