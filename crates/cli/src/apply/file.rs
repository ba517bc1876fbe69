//! Which triggers, queues or rings files want, checked as a server would check them.
//!
//! Everything is read and judged before anything is sent, and all that is wrong is told at once: by its file,
//! its line if that is known, its name, and a JSON pointer to the field. A file may have triggers, queues and rings: `trigger
//! apply` reads the ones, `queue apply` and `ring apply` the others.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use client::spec::TriggerSpec;
use engine::instant::Instant;
use engine::limits::{APPLY_FAULTS_TOLD_MAX, FILE_BYTES_MAX, FILE_TRIGGERS_MAX};
use engine::trigger::{BadField, Definition, Draft};
use serde_json::Value;
use server::api::pointer;

use super::document::{self, Document};
use crate::exit::Ending;
use crate::value::escape;

/// What a file wants there to be.
pub(super) trait FileItem: Sized {
    /// What one is called.
    const WORD: &'static str;
    /// The field of an object with a list of them.
    const LIST: &'static str;

    /// By which it is found again.
    fn name(&self) -> &str;

    /// What a value means, or all that is wrong with it.
    fn judge(value: &Value, now: Instant) -> Result<Self, Vec<BadField>>;
}

/// The lists that an object of a file may have.
const LISTS: [&str; 3] = ["triggers", "queues", "rings"];

/// A trigger that a file wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// What the file says, to be sent and compared.
    pub(super) spec: TriggerSpec,
    pub(super) definition: Definition,
    /// What is wrong with its schedule if it is a new one: it has no slot that comes yet.
    pub(super) stale: Option<String>,
}

/// All triggers, queues or rings of all files, in their order.
pub(super) fn read_all<T: FileItem>(files: &[PathBuf], now: Instant) -> Result<Vec<T>, Ending> {
    let mut reading = FileReader::new();
    for path in files {
        match read_text(path) {
            Ok(text) => reading.file(&shown(path), &text, now),
            Err(why) => reading.faults.push(format!("{}: {why}", shown(path))),
        }
    }
    reading.end()
}

fn shown(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { escape(&path.display().to_string()) }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The text of a file, or of stdin if its name is `-`.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let read = |from: &mut dyn Read| {
        let mut text = String::new();
        from.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).map(|_| text)
    };
    let text = if is_stdin(path) {
        read(&mut io::stdin())
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    let text = text.map_err(|why| why.to_string())?;
    if text.len() > FILE_BYTES_MAX {
        return Err(format!("a file has at most {FILE_BYTES_MAX} bytes: split it"));
    }
    Ok(text)
}

struct FileReader<T> {
    wanted: Vec<T>,
    faults: Vec<String>,
    /// Where each name stands.
    known: BTreeMap<String, String>,
}

impl<T: FileItem> FileReader<T> {
    fn new() -> Self {
        Self { wanted: Vec::new(), faults: Vec::new(), known: BTreeMap::new() }
    }

    fn file(&mut self, file: &str, text: &str, now: Instant) {
        let documents = match document::read(text) {
            Ok(documents) => documents,
            Err(bad) => return self.faults.push(format!("{}: {}", place(file, bad.line), bad.why)),
        };
        let before = (self.wanted.len(), self.faults.len());
        for document in &documents {
            for (pointer, value) in items(&document.value, T::LIST) {
                self.item(file, document, &pointer, value, now);
            }
        }
        if before == (self.wanted.len(), self.faults.len()) {
            self.faults.push(format!("{file}: there is no {} in it", T::WORD));
        }
    }

    fn item(&mut self, file: &str, document: &Document, at: &str, value: &Value, now: Instant) {
        let name = value.get("name").and_then(Value::as_str);
        let called = name.map_or_else(String::new, |name| format!("{} {name:?}: ", T::WORD));
        let tell = |fault: &BadField| {
            let place = place(file, document.line(&format!("{at}{}", fault.pointer)));
            let pointer = if fault.pointer.is_empty() { "" } else { &fault.pointer };
            let colon = if pointer.is_empty() { "" } else { ": " };
            format!("{place}: {called}{pointer}{colon}{}", fault.why)
        };
        match T::judge(value, now) {
            Ok(wanted) => {
                let here = place(file, document.line(at));
                if let Some(there) = self.known.insert(wanted.name().to_owned(), here) {
                    let why = format!("it is in {there} already");
                    self.faults.push(tell(&BadField { pointer: "/name".to_owned(), why }));
                }
                self.wanted.push(wanted);
            }
            Err(faults) => self.faults.extend(faults.iter().map(tell)),
        }
    }

    fn end(mut self) -> Result<Vec<T>, Ending> {
        if self.wanted.len() > FILE_TRIGGERS_MAX {
            let len = self.wanted.len();
            self.faults.push(format!(
                "at most {FILE_TRIGGERS_MAX} {} are applied at a time, and these are {len}: split the files",
                T::LIST
            ));
        }
        if self.faults.is_empty() {
            return Ok(self.wanted);
        }
        let more = self.faults.len().saturating_sub(APPLY_FAULTS_TOLD_MAX);
        self.faults.truncate(APPLY_FAULTS_TOLD_MAX);
        if more > 0 {
            self.faults.push(format!("and {more} more"));
        }
        self.faults.push("nothing was sent".to_owned());
        Err(Ending::wrong_input(self.faults.join("\nwatchbell: ")))
    }
}

fn place(file: &str, line: Option<usize>) -> String {
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

/// What a document has of one kind, each with a pointer to it.
fn items<'a>(document: &'a Value, list: &str) -> Vec<(String, &'a Value)> {
    let listed = |at: &str, items: &'_ [Value]| -> Vec<String> {
        (0..items.len()).map(|index| format!("{at}/{index}")).collect()
    };
    match document {
        Value::Null => Vec::new(),
        Value::Array(items) => listed("", items).into_iter().zip(items).collect(),
        Value::Object(fields) if has_lists(fields) => match fields.get(list) {
            Some(Value::Array(items)) => {
                listed(&format!("/{list}"), items).into_iter().zip(items).collect()
            }
            Some(_) | None => Vec::new(),
        },
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            vec![(String::new(), document)]
        }
    }
}

/// Whether an object has lists and nothing else.
fn has_lists(fields: &serde_json::Map<String, Value>) -> bool {
    !fields.is_empty()
        && fields.iter().all(|(name, value)| LISTS.contains(&name.as_str()) && value.is_array())
}

impl FileItem for Wanted {
    const WORD: &'static str = "trigger";
    const LIST: &'static str = "triggers";

    fn name(&self) -> &str {
        &self.name
    }

    fn judge(value: &Value, now: Instant) -> Result<Self, Vec<BadField>> {
        judge(value, now)
    }
}

fn judge(value: &Value, now: Instant) -> Result<Wanted, Vec<BadField>> {
    let one = |pointer: &str, why: &str| {
        vec![BadField { pointer: pointer.to_owned(), why: why.to_owned() }]
    };
    if !value.is_object() {
        return Err(one("", "a trigger is an object: name: …, webhook: …"));
    }
    let draft: Draft = serde_path_to_error::deserialize(value).map_err(|error| {
        let why = error.inner().to_string();
        vec![BadField { pointer: pointer(error.path(), &why), why }]
    })?;
    if draft.name.is_none() {
        return Err(one(
            "/name",
            "a trigger in a file has a name: by it the trigger is found again",
        ));
    }
    let (definition, stale) = match draft.build(now) {
        Ok(definition) => (definition, None),
        // What is there already may be over.
        Err(faults) => match draft.build(Instant(0)) {
            Ok(definition) => (definition, faults.first().map(|fault| fault.why.clone())),
            Err(_) => return Err(faults),
        },
    };
    let spec = spec(&draft);
    Ok(Wanted { name: definition.name.to_string(), spec, definition, stale })
}

/// What was written, as it is sent.
fn spec(draft: &Draft) -> TriggerSpec {
    let json = serde_json::to_value(draft).expect("a draft always serializes");
    serde_json::from_value(json)
        .expect("a draft that was built is a spec: a test holds them together")
}

/// What was sent, as it was written.
pub(crate) fn draft(spec: &TriggerSpec) -> Option<Draft> {
    serde_json::from_value(serde_json::to_value(spec).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000);

    fn read(texts: &[&str]) -> Result<Vec<String>, Ending> {
        let mut reading = FileReader::<Wanted>::new();
        for (number, text) in texts.iter().enumerate() {
            reading.file(&format!("{number}.yaml"), text, NOW);
        }
        Ok(reading.end()?.into_iter().map(|wanted| wanted.name).collect())
    }

    fn told(texts: &[&str]) -> String {
        format!("{:?}", read(texts).unwrap_err())
    }

    #[test]
    fn a_file_is_one_trigger_a_list_an_object_of_them_or_several_documents() {
        let hook = "webhook: {url: 'http://x.example'}";
        for text in [
            format!("name: a\n{hook}\n---\nname: b\n{hook}\n---\n"),
            format!("- name: a\n  {hook}\n- {{name: b, {hook}}}\n"),
            format!("triggers:\n- name: a\n  {hook}\n- name: b\n  {hook}\n"),
            format!(
                "queues: [{{name: q}}]\ntriggers:\n- {{name: a, {hook}}}\n- {{name: b, {hook}}}\n"
            ),
            r#"[{"name": "a", "webhook": {"url": "http://x.example"}},
                {"name": "b", "webhook": {"url": "http://x.example"}}]"#
                .to_owned(),
        ] {
            assert_eq!(read(&[&text]).unwrap(), ["a", "b"], "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_file_line_trigger_and_pointer() {
        let bad = "triggers:\n- name: a\n  webhook: {url: 'http://x.example'}\n  schedule:\n    cron: '61 * * * *'\n  retry:\n    attempts: 99\n";
        let said = told(&[bad]);
        assert!(said.contains("0.yaml:5: trigger \\\"a\\\": /schedule/cron: minute"), "{said}");
        assert!(said.contains("0.yaml:7: trigger \\\"a\\\": /retry/attempts: 1 to 10"), "{said}");
        assert!(said.contains("nothing was sent"), "{said}");
        for (text, expected) in [
            ("name: a\nwebhok: 1\n", "0.yaml:2: trigger \\\"a\\\": /webhok: unknown field"),
            ("webhook: {url: 'http://x.example'}\n", "/name: a trigger in a file has a name"),
            ("name: [a]\n", "0.yaml:1: /name: invalid type"),
            ("just text\n", "a trigger is an object"),
            ("# nothing\n", "there is no trigger in it"),
            ("queues:\n- name: q\n", "there is no trigger in it"),
            ("a: [\n", "no YAML"),
        ] {
            let said = told(&[text]);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_told_with_both_places() {
        let text = "name: a\nwebhook: {url: 'http://x.example'}\n";
        let said = told(&[text, text]);
        assert!(said.contains("1.yaml:1: trigger \\\"a\\\": /name: it is in 0.yaml:1"), "{said}");
    }

    #[test]
    fn so_many_triggers_are_applied_at_a_time_and_not_one_more() {
        let text = |len: usize| {
            let one = |n| format!("- {{name: t{n}, webhook: {{url: 'http://x.example'}}}}\n");
            (0..len).map(one).collect::<String>()
        };
        assert_eq!(read(&[&text(FILE_TRIGGERS_MAX)]).unwrap().len(), FILE_TRIGGERS_MAX);
        assert!(told(&[&text(FILE_TRIGGERS_MAX + 1)]).contains("split the files"));
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_not_one_byte_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        std::fs::write(&path, " ".repeat(FILE_BYTES_MAX)).unwrap();
        assert!(read_text(&path).is_ok());
        std::fs::write(&path, " ".repeat(FILE_BYTES_MAX + 1)).unwrap();
        assert!(read_text(&path).unwrap_err().contains("split it"));
    }

    #[test]
    fn a_schedule_that_is_over_is_no_fault_of_the_file() {
        let text = "name: a\nwebhook: {url: 'http://x.example'}\nschedule: {at: ['2020-01-01T00:00:00Z']}\n";
        assert_eq!(read(&[text]).unwrap(), ["a"]);
    }
}
