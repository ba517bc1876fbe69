//! Labels: short words by which people find triggers again, and by which files know what is theirs.
//!
//! They decide nothing about when and what is fired. As text they are `env=prod,team=billing`, sorted by key:
//! that is how they are compared, filtered, and kept in memory.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::BadField;
use crate::limits::{LABEL_CHARS_MAX, LABELS_MAX};

/// The labels of a trigger, a run or a worker, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels(Box<str>);

impl Labels {
    /// Checks what a person wrote.
    pub fn of(written: &BTreeMap<String, String>) -> Result<Self, Vec<BadField>> {
        let mut faults = Vec::new();
        if written.len() > LABELS_MAX {
            let len = written.len();
            let why = format!("at most {LABELS_MAX} labels are allowed, and these are {len}");
            return Err(vec![BadField { pointer: "/labels".to_owned(), why }]);
        }
        let mut text = String::new();
        for (key, value) in written {
            if let Err(why) = check_label(key, value) {
                let pointer = format!("/labels/{}", key.replace('~', "~0").replace('/', "~1"));
                faults.push(BadField { pointer, why });
            }
            let comma = if text.is_empty() { "" } else { "," };
            write!(text, "{comma}{key}={value}").expect("a String takes everything");
        }
        if faults.is_empty() { Ok(Self(text.into())) } else { Err(faults) }
    }

    /// As they were kept.
    pub(crate) fn kept(text: &str) -> Self {
        Self(text.into())
    }

    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether this can be a label, or why not.
pub fn check_label(key: &str, value: &str) -> Result<(), String> {
    for (what, text) in [("key", key), ("value", value)] {
        let len = text.chars().count();
        if len == 0 || len > LABEL_CHARS_MAX {
            return Err(format!(
                "the {what} of a label has 1 to {LABEL_CHARS_MAX} characters, and this one has {len}"
            ));
        }
        if let Some(odd) = text.chars().find(|char| !super::read::is_of_a_name(*char)) {
            return Err(format!(
                "the {what} of a label is made of letters from a to z, digits, '.', '_' and '-', and {odd:?} is none of them"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let many = |len: usize| (0..len).map(|n| (format!("k{n}"), "v".to_owned())).collect();
        assert!(Labels::of(&many(LABELS_MAX)).is_ok());
        assert_eq!(Labels::of(&many(LABELS_MAX + 1)).unwrap_err()[0].pointer, "/labels");
        let long = "x".repeat(LABEL_CHARS_MAX);
        assert!(Labels::of(&labels(&[(&long, &long)])).is_ok());
        let longer = "x".repeat(LABEL_CHARS_MAX + 1);
        for bad in [(longer.as_str(), "v"), ("k", &longer), ("", "v"), ("k", ""), ("k", "a=b")] {
            assert_eq!(Labels::of(&labels(&[bad])).unwrap_err().len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn a_bad_label_is_pointed_at_by_its_key() {
        let faults = Labels::of(&labels(&[("a/b", "1"), ("team", "x y")])).unwrap_err();
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/labels/a~1b", "/labels/team"]);
    }

    #[test]
    fn labels_as_text_are_sorted() {
        let text = Labels::of(&labels(&[("team", "billing"), ("env", "prod")])).unwrap();
        assert_eq!(text.as_str(), "env=prod,team=billing");
    }
}
