//! From the text of a file to values that know their lines.
//!
//! YAML 1.2 by its core schema: `on`, `22:00` and `2027-12-24` are texts. Anchors, aliases and tags are refused
//! rather than followed: a file of a few bytes could stand for gigabytes. JSON is YAML, but for pairs of
//! escapes such as `\ud83d\ude00`: what YAML does not read is read as JSON, without lines.

use std::collections::BTreeMap;
use std::fmt;

use engine::limits::APPLY_DEPTH_MAX;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use server::api::push_key;

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// In which line something begins, by a JSON pointer to it.
    lines: BTreeMap<String, usize>,
}

/// Why a text is none of a file that can be applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) line: Option<usize>,
    pub(super) why: String,
}

impl Document {
    /// The line of what a pointer leads to, or of what it lies in.
    pub(super) fn line(&self, pointer: &str) -> Option<usize> {
        let mut pointer = pointer;
        loop {
            if let Some(line) = self.lines.get(pointer) {
                return Some(*line);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

/// All documents of a text.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Unreadable> {
    let why = match (Reader { events: Parser::new_from_str(text) }).documents() {
        Ok(documents) => return Ok(documents),
        Err(Fault::Refused(why)) => return Err(why),
        Err(Fault::NoYaml(why)) => why,
    };
    if !text.trim_start().starts_with(['{', '[']) {
        return Err(why);
    }
    match serde_json::from_str::<Once>(text) {
        Ok(Once(value)) => Ok(vec![Document { value, lines: BTreeMap::new() }]),
        // It is meant as JSON, but what is wrong with it the other reader has told with its line.
        Err(_) => Err(why),
    }
}

/// Why YAML was not read.
enum Fault {
    /// The text is no YAML.
    NoYaml(Unreadable),
    /// It is some that we do not take.
    Refused(Unreadable),
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), Fault> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, line(span))),
            Some(Err(why)) => Err(Fault::NoYaml(unreadable(&why))),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn documents(mut self) -> Result<Vec<Document>, Fault> {
        let mut documents = Vec::new();
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(documents),
                (Event::DocumentStart(_), _) => {
                    let mut lines = BTreeMap::new();
                    let (event, line) = self.next()?;
                    let value = self.node(event, line, &mut String::new(), 0, &mut lines)?;
                    documents.push(Document { value, lines });
                }
                _ => {}
            }
        }
    }

    /// The value that begins with this event. The pointer leads to it, and is left as it was.
    fn node(
        &mut self,
        event: Event<'a>,
        line: usize,
        pointer: &mut String,
        depth: usize,
        lines: &mut BTreeMap<String, usize>,
    ) -> Result<Value, Fault> {
        let bad =
            |why: &str| Err(Fault::Refused(Unreadable { line: Some(line), why: why.to_owned() }));
        if depth > APPLY_DEPTH_MAX {
            return bad("it is nested deeper than any trigger is");
        }
        let len = pointer.len();
        lines.insert(pointer.clone(), line);
        match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                bad("tags (!…) are not read: write the value without one")
            }
            Event::Alias(_)
            | Event::Scalar(_, _, 1.., None)
            | Event::SequenceStart(1.., None)
            | Event::MappingStart(1.., None) => {
                bad("anchors (&…) and aliases (*…) are not read: write the value where it is meant")
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    let (event, line) = self.next()?;
                    if event == Event::SequenceEnd {
                        return Ok(Value::Array(items));
                    }
                    push_key(pointer, &items.len().to_string());
                    items.push(self.node(event, line, pointer, depth + 1, lines)?);
                    pointer.truncate(len);
                }
            }
            Event::MappingStart(..) => {
                let mut fields = Map::new();
                loop {
                    let (event, line) = self.next()?;
                    let bad =
                        |why: String| Err(Fault::Refused(Unreadable { line: Some(line), why }));
                    let key = match event {
                        Event::MappingEnd => return Ok(Value::Object(fields)),
                        Event::Scalar(key, _, 0, None) => key.into_owned(),
                        _ => return bad("the name of a field is a text".to_owned()),
                    };
                    if fields.contains_key(&key) {
                        return bad(format!("{key:?} is there twice"));
                    }
                    push_key(pointer, &key);
                    let (event, value_line) = self.next()?;
                    let value = self.node(event, value_line, pointer, depth + 1, lines)?;
                    // Where its name stands is where people look for a field.
                    lines.insert(pointer.clone(), line);
                    pointer.truncate(len);
                    fields.insert(key, value);
                }
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => bad("a value is missing here"),
        }
    }
}

fn line(span: Span) -> usize {
    span.start.line()
}

fn unreadable(why: &ScanError) -> Unreadable {
    Unreadable { line: Some(why.marker().line()), why: format!("this is no YAML: {}", why.info()) }
}

/// What a text without quotes means.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|char: char| char.is_ascii_digit() || char == '.') {
        return None;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok().map(Number::from);
        }
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let whole = unsigned.parse::<u64>().map(Number::from);
    let whole = whole.or_else(|_| unsigned.parse::<i64>().map(Number::from));
    whole.ok().or_else(|| unsigned.parse().ok().and_then(Number::from_f64))
}

/// JSON in which each field is there once.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Value;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(Once(item)) = list.next_element()? {
                    items.push(item);
                }
                Ok(Value::Array(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut fields = Map::new();
                while let Some((key, Once(value))) = map.next_entry::<String, Once>()? {
                    if fields.contains_key(&key) {
                        return Err(A::Error::custom(format!("{key:?} is there twice")));
                    }
                    fields.insert(key, value);
                }
                Ok(Value::Object(fields))
            }
        }
        from.deserialize_any(Reader).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(text: &str) -> Value {
        let mut documents = read(text).unwrap();
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0).value
    }

    #[test]
    fn texts_stay_texts_unless_they_are_numbers_or_words_of_json() {
        for (text, value) in [
            ("22:00", json!("22:00")),
            ("2027-12-24", json!("2027-12-24")),
            ("on", json!("on")),
            ("1.2.3", json!("1.2.3")),
            ("-", json!([null])),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("0x1f", json!(31)),
            ("1.5", json!(1.5)),
            ("\"12\"", json!("12")),
            ("'*/5 * * * *'", json!("*/5 * * * *")),
            ("true", json!(true)),
            ("~", json!(null)),
            ("|\n  a\n  b\n", json!("a\nb\n")),
        ] {
            assert_eq!(one(text), value, "{text}");
        }
    }

    #[test]
    fn documents_know_the_lines_of_their_fields() {
        let text = "# first\nname: a\nwebhook:\n  url: x\n---\n- name: b\n- name: c\n  schedule:\n    cron: [x,\n      y]\n";
        let documents = read(text).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].line("/webhook/url"), Some(4));
        assert_eq!(documents[0].line("/webhook/method"), Some(3), "what it lies in");
        assert_eq!(documents[1].line("/1/schedule/cron/1"), Some(10));
        assert_eq!(documents[1].line("/1"), Some(7));
    }

    #[test]
    fn json_is_read_with_lines_and_with_escapes_that_yaml_does_not_know() {
        let documents = read("{\n  \"name\": \"a\",\n\t\"webhook\": {}\n}").unwrap();
        assert_eq!(documents[0].line("/name"), Some(2));
        assert_eq!(one(r#"{"body": "\ud83d\ude00\/"}"#), json!({"body": "😀/"}));
        assert!(read(r#"{"a": "\ud83d\ude00", "a": 1}"#).is_err());
    }

    #[test]
    fn what_is_dangerous_or_ambiguous_is_refused_with_its_line() {
        for (text, line, said) in [
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: &x 1\nb: *x\n", 1, "anchors"),
            ("a:\n  !!binary x\n", 2, "tags"),
            ("a: [1\n", 2, "no YAML"),
            ("a: 1\n? [b]\n: 2\n", 2, "the name of a field is a text"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.why.contains(said), "{text}: {why:?}");
            assert_eq!(why.line, Some(line), "{text}: {why:?}");
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&deep(APPLY_DEPTH_MAX + 1)).is_ok());
        assert!(read(&deep(APPLY_DEPTH_MAX + 2)).unwrap_err().why.contains("deeper"));
    }
}
