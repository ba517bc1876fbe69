//! Reading a crontab, as Vixie's cron and its descendants read it.
//!
//! Five fields or a word such as `@daily`, in system crontabs a user, then a command. `CRON_TZ` and `TZ` hold for
//! the lines that follow. An unescaped `%` ends a command; what follows is what the command reads, in which
//! each `%` is a line's end.

use std::collections::BTreeMap;

use client::spec::{CatchUp, ScheduleSpec, TriggerSpec, WebhookSpec};
use engine::hash::hash;
use engine::instant::Instant;
use engine::schedule::zone::ZoneId;
use engine::trigger::check_label;
use serde_json::json;

use crate::apply::file::draft;

/// Columns of a name that come from the command.
const SLUG_CHARS_MAX: usize = 40;

/// Whether a line names a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrontabColumns {
    User,
    System,
}

/// What stands in a crontab.
#[derive(Debug, Default)]
pub(super) struct CrontabRead {
    pub(super) triggers: Vec<Imported>,
    /// What people should know of lines that were carried over, or set something.
    pub(super) notes: Vec<CrontabNote>,
    /// Lines that would have fired and do not.
    pub(super) left_out: Vec<CrontabNote>,
}

/// A line that became a trigger.
#[derive(Debug)]
pub(super) struct Imported {
    pub(super) line: usize,
    pub(super) spec: TriggerSpec,
}

/// Something about a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CrontabNote {
    pub(super) line: usize,
    pub(super) why: String,
}

/// Reads all lines. `zone` is where a line is read that no `CRON_TZ` stands before.
pub(super) fn read(
    text: &str,
    columns: CrontabColumns,
    zone: Option<&str>,
    base: &str,
    now: Instant,
) -> CrontabRead {
    let reader = Reader {
        columns,
        base: base.trim_end_matches('/'),
        now,
        zone: Ok(zone.map(str::to_owned)),
        says_cron_tz: false,
        is_zone_told: zone.is_some(),
        names: BTreeMap::new(),
        read: CrontabRead::default(),
    };
    reader.lines(text)
}

struct Reader<'a> {
    columns: CrontabColumns,
    base: &'a str,
    now: Instant,
    /// The zone of the lines that follow, or why there is none.
    zone: Result<Option<String>, String>,
    says_cron_tz: bool,
    /// Whether it was told that lines without a zone are read in UTC.
    is_zone_told: bool,
    names: BTreeMap<String, usize>,
    read: CrontabRead,
}

impl Reader<'_> {
    fn lines(mut self, text: &str) -> CrontabRead {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((name, value)) = variable(line) {
                self.variable(number, name, value);
            } else if let Err(why) = self.entry(number, line) {
                self.read.left_out.push(CrontabNote { line: number, why });
            }
        }
        self.read
    }

    fn note(&mut self, line: usize, why: impl Into<String>) {
        self.read.notes.push(CrontabNote { line, why: why.into() });
    }

    fn variable(&mut self, number: usize, name: &str, value: &str) {
        match name {
            "CRON_TZ" => {
                self.says_cron_tz = true;
                self.set_zone(number, value);
            }
            "TZ" if self.says_cron_tz => {
                self.note(
                    number,
                    "TZ is not carried over: CRON_TZ says when, and the receiver sets its own",
                );
            }
            "TZ" => {
                self.note(
                    number,
                    "TZ is read as the zone of the lines that follow; some crons read CRON_TZ only",
                );
                self.set_zone(number, value);
            }
            "MAILTO" | "MAILFROM" => self.note(
                number,
                format!("{name} is not carried over: watchbell project set NAME --notify-url URL has people told of failures"),
            ),
            "RANDOM_DELAY" => self.note(
                number,
                "RANDOM_DELAY is not carried over: give the triggers a schedule.jitter",
            ),
            _ => self.note(
                number,
                format!("{name} is not carried over: whatever runs the commands has to set it"),
            ),
        }
    }

    fn set_zone(&mut self, number: usize, value: &str) {
        self.zone = match ZoneId::get(value) {
            Ok(_) => Ok(Some(value.to_owned())),
            Err(why) => Err(format!("line {number} sets a zone that is not known: {why}")),
        };
    }

    /// A line that fires. What is wrong with it, if it cannot be carried over.
    fn entry(&mut self, number: usize, line: &str) -> Result<(), String> {
        let zone = self.zone.clone()?;
        let (line, is_silent) = match line.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let (mut pattern, rest) = pattern(line)?;
        if let Some(strict) = both_days(&pattern) {
            self.note(
                number,
                format!("both day fields must hold in cron here: it is written {strict:?}"),
            );
            pattern = strict;
        }
        let (user, command) = match self.columns {
            CrontabColumns::User => (None, rest),
            CrontabColumns::System => {
                let (user, command) = word(rest).ok_or("the command is missing after the user")?;
                (Some(user), command)
            }
        };
        if command.is_empty() {
            return Err("the command is missing".to_owned());
        }
        let (command, stdin) = split_at_percent(command);
        if stdin.is_some() {
            self.note(
                number,
                "what follows the first % is what the command reads: it is \"stdin\" in the body",
            );
        }
        let name = self.name(user, &command, &pattern, zone.as_deref(), number)?;
        let spec = self.spec(&name, user, &command, stdin.as_deref(), &pattern, zone.as_deref());
        self.check(&spec)?;
        if is_silent {
            self.note(
                number,
                "the - at its beginning keeps cron from logging, and means nothing here",
            );
        }
        if zone.is_none() && !self.is_zone_told {
            self.is_zone_told = true;
            self.note(
                number,
                "no zone is set: it and all lines like it are read in UTC; say which with --tz",
            );
        }
        self.names.insert(name, number);
        self.read.triggers.push(Imported { line: number, spec });
        Ok(())
    }

    /// A name that comes from the command alone, unless another line has the same one.
    fn name(
        &self,
        user: Option<&str>,
        command: &str,
        pattern: &str,
        zone: Option<&str>,
        number: usize,
    ) -> Result<String, String> {
        let who = format!("{}\n{command}", user.unwrap_or_default());
        let when = format!("{who}\n{pattern}\n{}", zone.unwrap_or_default());
        let mut before = number;
        for text in [who, when] {
            let name = format!("{}-{:08x}", slug(command), hash(&text, "crontab") >> 32);
            match self.names.get(&name) {
                None => return Ok(name),
                Some(line) => before = *line,
            }
        }
        Err(format!("it says the same as line {before}, and one trigger fires once"))
    }

    fn spec(
        &self,
        name: &str,
        user: Option<&str>,
        command: &str,
        stdin: Option<&str>,
        pattern: &str,
        zone: Option<&str>,
    ) -> TriggerSpec {
        let mut labels = BTreeMap::from([("source".to_owned(), "crontab".to_owned())]);
        if let Some(user) = user.filter(|user| check_label("user", user).is_ok()) {
            labels.insert("user".to_owned(), user.to_owned());
        }
        let mut body = json!({ "command": command });
        if let Some(stdin) = stdin {
            body["stdin"] = json!(stdin);
        }
        if let Some(user) = user {
            body["user"] = json!(user);
        }
        let webhook = WebhookSpec {
            url: format!("{}/{name}", self.base),
            body: Some(body.to_string()),
            ..WebhookSpec::default()
        };
        let schedule = ScheduleSpec {
            cron: vec![pattern.to_owned()],
            tz: zone.map(str::to_owned),
            ..ScheduleSpec::default()
        };
        TriggerSpec {
            name: Some(name.to_owned()),
            labels,
            schedule: Some(schedule),
            webhook: Some(webhook),
            // Cron does not make up for what it missed.
            catch_up: Some(CatchUp::Skip),
            ..TriggerSpec::default()
        }
    }

    /// Whether a server would take it.
    fn check(&self, spec: &TriggerSpec) -> Result<(), String> {
        let draft = draft(spec).expect("a spec is a draft: a test holds them together");
        draft.build(self.now).map(drop).map_err(|faults| {
            let faults = faults.iter().map(|fault| match fault.pointer.as_str() {
                "/webhook/url" => format!("--webhook-base: {}", fault.why),
                _ => fault.why.clone(),
            });
            faults.collect::<Vec<_>>().join("; ")
        })
    }
}

/// A line that sets something: a name, an equals sign, a value with or without quotes.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|char| char.is_ascii_alphabetic() || char == '_');
    let fits = chars.all(|char| char.is_ascii_alphanumeric() || char == '_');
    let value = value.trim();
    let quoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote)));
    (begins && fits).then_some((name, quoted.unwrap_or(value)))
}

/// The first word of a line, and what follows it.
fn word(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let end = line.find(char::is_whitespace)?;
    Some((&line[..end], line[end..].trim_start()))
}

/// When a line fires, and what follows.
fn pattern(line: &str) -> Result<(String, &str), String> {
    const RIGHT: &str = "five fields or a word such as @daily are followed by a command";
    if line.starts_with('@') {
        let (when, rest) = word(line).ok_or(RIGHT)?;
        if when == "@reboot" {
            return Err(
                "a start of the machine is no instant: run it from where the machine starts"
                    .to_owned(),
            );
        }
        return Ok((when.to_owned(), rest));
    }
    let mut fields = Vec::with_capacity(5);
    let mut rest = line;
    for _ in 0..5 {
        let (field, after) = word(rest).ok_or(RIGHT)?;
        fields.push(field);
        rest = after;
    }
    Ok((fields.join(" "), rest))
}

/// The pattern in our words, if both day fields must hold in cron: there a field that begins with a star
/// counts as not given, and with us only a star alone does.
fn both_days(pattern: &str) -> Option<String> {
    let fields: Vec<&str> = pattern.split(' ').collect();
    let [minute, hour, day, month, weekday] = fields[..] else { return None };
    let is_given = |field: &str| field != "*";
    let begins_with_a_star = day.starts_with('*') || weekday.starts_with('*');
    (is_given(day) && is_given(weekday) && begins_with_a_star)
        .then(|| format!("{minute} {hour} {day} {month} +{weekday}"))
}

/// The command, and what it reads.
fn split_at_percent(command: &str) -> (String, Option<String>) {
    let (mut before, mut after) = (String::new(), None::<String>);
    let mut chars = command.chars().peekable();
    while let Some(char) = chars.next() {
        let is_escaped = char == '\\' && chars.peek() == Some(&'%');
        let char = if is_escaped { chars.next().unwrap_or('%') } else { char };
        match (&mut after, char) {
            (None, '%') if !is_escaped => after = Some(String::new()),
            (None, char) => before.push(char),
            (Some(after), '%') if !is_escaped => after.push('\n'),
            (Some(after), char) => after.push(char),
        }
    }
    (before.trim_end().to_owned(), after)
}

/// A few words of a command that can stand in a name.
fn slug(command: &str) -> String {
    let command = command.split(['>', '<', '|', ';', '&']).next().unwrap_or_default().trim();
    let (program, rest) = word(command).unwrap_or((command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    let mut slug = String::new();
    for char in format!("{program} {rest}").chars() {
        let fits = char.is_ascii_alphanumeric() || matches!(char, '.' | '_');
        if fits {
            slug.push(char);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug: String = slug.chars().take(SLUG_CHARS_MAX).collect();
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() { "command".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests;
