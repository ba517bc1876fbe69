//! A trigger as one writes it.
//!
//! Lengths of time are texts like `90s`, `5m` or `1h30m`. What is left out has a default, which docs/api.md
//! tells. The server reads the same JSON with its own types; a test of the server holds the two together.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::queue::FeedSpec;

/// When, what, where to, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TriggerSpec {
    /// 1 to 100 letters, digits, dots, underscores and hyphens. The server makes one up if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub name: Option<String>,
    /// Words by which it is found again: up to 16, keys and values made of what a name is made of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend(
            "maxProperties" = 16,
            "propertyNames" = { "pattern": "^[A-Za-z0-9._-]+$", "minLength": 1, "maxLength": 63 },
            "additionalProperties" = {
                "type": "string", "pattern": "^[A-Za-z0-9._-]+$", "minLength": 1, "maxLength": 63
            },
        ))
    )]
    pub labels: BTreeMap<String, String>,
    /// When; without it, on demand only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// What is called. A trigger has this or `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSpec>,
    /// The queue that it feeds, and what a worker is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<FeedSpec>,
    /// What becomes of slots that nobody was there to fire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// How many of them fire at most, with [`CatchUp::All`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000)))]
    pub catch_up_cap: Option<u64>,
    /// What becomes of a slot while another run is not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// What becomes of a run when nobody knows whether it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// When a failed attempt is followed by another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// A run that cannot leave within this time is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub max_lateness: Option<String>,
    /// After so many failed runs in a row the trigger pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub pause_after: Option<u64>,
    /// Somebody is told if there is no success for so long: `1d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<String>,
    /// What somebody is told of: `failure`, `recovery`, `paused`, `success`, `overdue`, or `none`. As the project has it,
    /// if it is not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "texts")]
    #[cfg_attr(feature = "schema", schemars(with = "texts::OneOrMore"))]
    pub notify: Vec<String>,
}

impl TriggerSpec {
    /// One that is run on demand and calls this URL.
    pub fn webhook(name: impl Into<String>, url: impl Into<String>) -> Self {
        let webhook = WebhookSpec { url: url.into(), ..WebhookSpec::default() };
        Self { name: Some(name.into()), webhook: Some(webhook), ..Self::default() }
    }

    /// One that is run on demand, and lets this queue have a run of this handler.
    pub fn handler(
        name: impl Into<String>,
        queue: impl Into<String>,
        handler: impl Into<String>,
    ) -> Self {
        let handler = Some(handler.into());
        let queue = FeedSpec { name: queue.into(), handler, ..FeedSpec::default() };
        Self { name: Some(name.into()), queue: Some(queue), ..Self::default() }
    }

    /// The same with one more cron pattern.
    #[must_use]
    pub fn cron(mut self, pattern: impl Into<String>) -> Self {
        self.schedule.get_or_insert_default().cron.push(pattern.into());
        self
    }

    /// The same with one more interval: `90s`.
    #[must_use]
    pub fn every(mut self, interval: impl Into<String>) -> Self {
        self.schedule.get_or_insert_default().every.push(interval.into());
        self
    }
}

/// When a trigger fires: patterns, intervals and instants, all together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Cron patterns: `0 9 * * MON-FRI`.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "texts")]
    #[cfg_attr(feature = "schema", schemars(with = "texts::OneOrMore"))]
    pub cron: Vec<String>,
    /// Lengths of intervals: `90s`.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "texts")]
    #[cfg_attr(feature = "schema", schemars(with = "texts::OneOrMore"))]
    pub every: Vec<String>,
    /// Where intervals begin, counted from 1970; a place that comes from the name, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub phase: Option<String>,
    /// Instants: RFC 3339.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5_000)))]
    pub at: Vec<Timestamp>,
    /// The IANA zone of patterns, excluded dates and quiet windows; UTC, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(example = &"Europe/Berlin"))]
    pub tz: Option<String>,
    /// How patterns are meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// What becomes of times that clocks leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// What becomes of times that clocks show twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
    /// No slot before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// No slot after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// It ends after so many runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub limit: Option<u64>,
    /// Each slot leaves up to so much later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub jitter: Option<String>,
    /// Dates on which nothing fires: `2027-12-24`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 1_000), inner(regex(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")))
    )]
    pub exclude: Vec<String>,
    /// Windows in which nothing fires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub quiet: Vec<QuietSpec>,
}

/// A window in which nothing fires.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QuietSpec {
    /// The days on which it begins: `mon` to `sun`; all, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// When it begins: `22:00`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9]{2}:[0-9]{2}")))]
    pub from: String,
    /// When it ends, on the next day if that is not later: `06:00`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9]{2}:[0-9]{2}")))]
    pub to: String,
}

/// What is sent, and where to.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WebhookSpec {
    /// The URL that is called: http or https.
    #[cfg_attr(feature = "schema", schemars(length(max = 2_048), regex(pattern = "^https?://"), example = &"https://hooks.example/bell"))]
    pub url: String,
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`; `POST`, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", null])))]
    pub method: Option<String>,
    /// Headers that are sent, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("propertyNames" = { "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }))
    )]
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are never told again: `***` stands for them, and keeps them when it is sent back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("propertyNames" = { "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }))
    )]
    pub secret_headers: BTreeMap<String, String>,
    /// What the body is; `application/json`, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 102_400)))]
    pub body: Option<String>,
    /// How long an attempt may take: 1 to 30 seconds; `15s`, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub timeout: Option<String>,
}

impl std::fmt::Debug for WebhookSpec {
    /// Without headers, path and body, which may be secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("WebhookSpec")
    }
}

/// When a failed attempt is followed by another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetrySpec {
    /// So many attempts at most: 1 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10)))]
    pub attempts: Option<u64>,
    /// The first pause: 1 second to 5 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub delay: Option<String>,
    /// How it grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// How far it grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub max_delay: Option<String>,
}

/// What becomes of slots that nobody was there to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are skipped.
    Skip,
    /// The last one fires.
    Latest,
    /// They fire, up to a cap.
    All,
}

/// What becomes of a slot while another run is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It fires all the same.
    Allow,
    /// It is skipped.
    Skip,
    /// It waits, if none waits already.
    QueueOne,
    /// It fires, and the other one is cancelled.
    Replace,
}

/// What becomes of a run when nobody knows whether it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It is sent again, under the same id.
    AtLeastOnce,
    /// It is recorded as unknown.
    AtMostOnce,
}

/// How the pause between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// Not at all.
    Constant,
    /// It doubles after each attempt.
    Exponential,
}

/// How a cron pattern is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The Open Cron Pattern Specification.
    Open,
    /// As Quartz, the scheduler for Java, means them.
    Quartz,
}

/// What becomes of times that clocks leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// They come once, right after.
    Fire,
    /// They are left out.
    Skip,
}

/// What becomes of times that clocks show twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// Only the first time counts.
    First,
    /// Only the second time counts.
    Second,
    /// Both times count.
    Both,
}

/// One text, or a list of them.
mod texts {
    /// One text, or a list of them.
    #[cfg(feature = "schema")]
    #[derive(schemars::JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "it is a shape, and nothing more")]
    pub(super) enum OneOrMore {
        One(String),
        More(Vec<String>),
    }

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(texts: &[String], out: S) -> Result<S::Ok, S::Error> {
        match texts {
            [text] => out.serialize_str(text),
            texts => texts.serialize(out),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        })
    }
}
