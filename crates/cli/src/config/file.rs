//! A file of settings: what it says, and what is wrong with it.
//!
//! All of it is checked, also what the verb at hand does not need: a wrong line is told the first time, and not on the
//! night when it matters.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use engine::limits::SETTINGS_FILE_BYTES_MAX;
use toml::de::{DeTable, DeValue};

use super::place::{PlaceKind, SettingsPlace};
use super::setting::Setting;
use super::warn_if_shared;
use crate::exit::Ending;
use crate::value::escape;

/// What a file says.
#[derive(Debug)]
pub(super) struct SettingsFile {
    pub(super) path: PathBuf,
    /// By the name of the setting.
    pub(super) values: BTreeMap<String, SettingValue>,
}

/// What it says for one setting. It may be secret: there is no `Debug` of it.
pub(super) struct SettingValue {
    pub(super) texts: Vec<String>,
    pub(super) line: usize,
}

impl std::fmt::Debug for SettingValue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "line {}", self.line)
    }
}

/// Reads the file at this place, if there is one.
pub(super) fn read(
    place: Option<SettingsPlace>,
    settings: &[Setting],
) -> Result<Option<SettingsFile>, Ending> {
    let Some(SettingsPlace { path, file: kind }) = place else { return Ok(None) };
    let told = path.display().to_string();
    let unreadable = |why: std::io::Error| {
        let then = match kind {
            PlaceKind::Named => "name another with --config FILE",
            PlaceKind::Usual => "mend it, or take it away",
        };
        Ending::wrong_input(format!("cannot read the settings in {told}: {why}; {then}"))
    };
    let open = fs::File::open(&path).map_err(unreadable)?;
    let mut text = String::new();
    (&open).take(SETTINGS_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > SETTINGS_FILE_BYTES_MAX {
        let why = format!("{told}: a file of settings has at most {SETTINGS_FILE_BYTES_MAX} bytes");
        return Err(Ending::wrong_input(why));
    }
    let values = values(&text, settings)
        .map_err(|(line, why)| Ending::wrong_input(format!("{told}:{line}: {why}")))?;
    let is_secret = |setting: &Setting| {
        values.get(&setting.name).is_some_and(|value| setting.is_secret(&value.texts))
    };
    if settings.iter().any(is_secret) {
        warn_if_shared(&open, &path);
    }
    Ok(Some(SettingsFile { path, values }))
}

/// What a text says; or the number of a line, and what is wrong with it.
fn values(
    text: &str,
    settings: &[Setting],
) -> Result<BTreeMap<String, SettingValue>, (usize, String)> {
    let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|why| {
        let at = why.span().map_or(0, |span| span.start.min(text.len()));
        (line(at), format!("this is no TOML: {}", why.message().replace('\n', ", ")))
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let line = line(key.span().start);
        let name = key.get_ref().as_ref();
        let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
            return Err((line, unknown(name, settings)));
        };
        let texts = texts(value.get_ref())
            .and_then(|texts| setting.check(&texts).map(|()| texts))
            .map_err(|why| (line, format!("{name}: {why}")))?;
        values.insert(name.to_owned(), SettingValue { texts, line });
    }
    Ok(values)
}

/// A value as it would be typed.
fn texts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    const RIGHT: &str = "write a text in quotes, a number, true or false, or a list of these";
    match value {
        DeValue::String(text) => Ok(vec![text.as_ref().to_owned()]),
        DeValue::Integer(number) => Ok(vec![number.to_string()]),
        DeValue::Boolean(is_so) => Ok(vec![is_so.to_string()]),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| match item.get_ref() {
                DeValue::Array(_) => Err(RIGHT.to_owned()),
                item => texts(item),
            });
            Ok(items.collect::<Result<Vec<_>, _>>()?.concat())
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Err(RIGHT.to_owned()),
    }
}

fn unknown(name: &str, settings: &[Setting]) -> String {
    let nearest = settings.iter().min_by_key(|setting| distance(name, &setting.name));
    let nearest = nearest.map_or("", |setting| &setting.name);
    let name = escape(&name.chars().take(100).collect::<String>());
    format!(
        "there is no setting {name}: did you mean {nearest}? watchbell config shows all of them"
    )
}

/// How many letters have to be put in, taken out or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for (column, found) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *found);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    fn read(text: &str) -> Result<BTreeMap<String, SettingValue>, (usize, String)> {
        values(text, &Setting::all(&Args::command()))
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let read = read("# so\nserver = 'http://x'\noutput = \"json\"\n\nlog-level = 'debug'\n");
        let read = read.unwrap();
        let texts: Vec<_> = read.values().map(|value| value.texts[0].as_str()).collect();
        assert_eq!(texts, ["debug", "json", "http://x"]);
        assert_eq!(read["server"].line, 2);
        assert_eq!(read["log-level"].line, 5);
    }

    #[test]
    fn the_example_in_the_documentation_is_right() {
        let document = include_str!("../../../../docs/cli.md");
        let example = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let values = read(example.unwrap()).unwrap();
        assert_eq!(values["webhook-allow"].texts, ["10.0.0.0/8"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_would_be_right() {
        for (text, line, said) in [
            ("\nservr = 'x'", 2, "there is no setting servr: did you mean server?"),
            ("log_level = 'info'", 1, "did you mean log-level?"),
            ("config = 'x'", 1, "there is no setting config"),
            ("log-level = 'loud'", 1, "[possible values: error, warn, info, debug, trace]"),
            ("listen = '7400'", 1, "listen: that is a port without an address"),
            ("server = 1.5", 1, "server: write a text in quotes"),
            ("server = ['a', 'b']", 1, "server: it has one value"),
            ("[server]\nurl = 'x'", 1, "server: write a text in quotes"),
            ("\n\nserver = ", 3, "this is no TOML"),
            ("server = 'a'\nserver = 'b'", 2, "this is no TOML"),
        ] {
            let Err((found, why)) = read(text) else { panic!("{text}") };
            assert!(found == line && why.contains(said), "{text}: {found}: {why}");
        }
    }

    #[test]
    fn the_nearest_is_the_one_with_the_fewest_changes() {
        for (one, other, expected) in [("", "abc", 3), ("server", "server", 0), ("a", "b", 1)] {
            assert_eq!(distance(one, other), expected);
        }
        assert_eq!(distance("kye", "key"), 2);
        assert_eq!(distance("projct", "project"), 1);
    }
}
