//! A trigger as a person wrote it: the text that is stored, and given back.
//!
//! Words, lengths and instants stay text here, so that one look at a draft finds everything that is wrong
//! with it: see [`Draft::build`]. Only what no draft can be, such as a field that nobody knows, is refused
//! while it is read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::queue::feed::FeedDraft;

/// What a person wrote.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/api.md tells them")]
pub struct Draft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(deserialize_with = "once::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Without one it is run on demand.
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleDraft>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookDraft>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub queue: Option<FeedDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_cap: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lateness: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<String>,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    pub notify: Texts,
}

/// When a trigger is due, as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/api.md tells them")]
pub struct ScheduleDraft {
    #[serde(skip_serializing_if = "Texts::is_empty")]
    pub cron: Texts,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    pub every: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    #[serde(deserialize_with = "object::list", skip_serializing_if = "Vec::is_empty")]
    pub quiet: Vec<QuietDraft>,
}

/// A window of certain days in which nothing fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuietDraft {
    /// On which days it begins; on all, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// When it begins: `22:00`.
    pub from: String,
    /// When it ends, on the next day if that is not later: `06:00`.
    pub to: String,
}

/// What, and where to.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/api.md tells them")]
pub struct WebhookDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(deserialize_with = "header::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Never told again: see [`WebhookDraft::MASK`].
    #[serde(deserialize_with = "header::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// When a failed attempt is followed by another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/api.md tells them")]
pub struct RetryDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<String>,
}

impl fmt::Debug for Draft {
    /// Only the name: a webhook's headers and body may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Draft({:?})", self.name)
    }
}

impl WebhookDraft {
    /// What stands for the value of a secret header wherever it is told; who sends it back keeps the value.
    pub const MASK: &str = "***";

    /// Puts the stored values where the mask stands for them. Whether it stood for any.
    pub fn unmask(&mut self, stored: &Self) -> bool {
        let mut is_any = false;
        for (name, value) in &mut self.secret_headers {
            let is_it = |(known, _): &(&String, &String)| known.eq_ignore_ascii_case(name);
            if value == Self::MASK
                && let Some((_, kept)) = stored.secret_headers.iter().find(is_it)
            {
                value.clone_from(kept);
                is_any = true;
            }
        }
        is_any
    }
}

impl fmt::Debug for WebhookDraft {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WebhookDraft")
    }
}

/// One text, or a list of them. One alone is written without its list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Texts(pub Vec<String>);

impl Texts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Texts {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [text] => out.serialize_str(text),
            texts => texts.serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// What is an object must be written as one: serde would also take a list of its values, without their names.
pub(crate) mod object {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserialize, Deserializer};

    struct Object<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_map(Reader(PhantomData)).map(Self)
        }
    }

    struct Reader<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
        type Value = T;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    pub(crate) fn option<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Option::<Object<T>>::deserialize(from)?.map(|object| object.0))
    }

    pub(crate) fn list<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let objects = Vec::<Object<T>>::deserialize(from)?;
        Ok(objects.into_iter().map(|object| object.0).collect())
    }
}

/// A label that is written twice is refused, as fields are.
pub(crate) mod once {
    use std::collections::BTreeMap;
    use std::fmt;

    use serde::Deserializer;
    use serde::de::{Error, MapAccess, Visitor};

    pub(crate) fn map<'de, D>(from: D) -> Result<BTreeMap<String, String>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_map(Reader)
    }

    struct Reader;

    impl<'de> Visitor<'de> for Reader {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((key, value)) = map.next_entry::<String, String>()? {
                if labels.contains_key(&key) {
                    return Err(A::Error::custom(format!("the label {key:?} is there twice")));
                }
                labels.insert(key, value);
            }
            Ok(labels)
        }
    }
}

/// A header that is written twice is refused, as fields are: nobody can tell which of the two was meant.
mod header {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt;

    use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
    use serde::{Deserialize, Deserializer};

    pub(super) fn map<'de, D>(from: D) -> Result<BTreeMap<String, String>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_map(Reader)
    }

    struct Reader;

    impl<'de> Visitor<'de> for Reader {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut headers, mut known) = (BTreeMap::new(), BTreeSet::new());
            while let Some(name) = map.next_key::<String>()? {
                let is_new = known.insert(name.to_ascii_lowercase());
                let value = map.next_value_seed(if is_new { Value::New } else { Value::Twice })?;
                headers.insert(name, value);
            }
            Ok(headers)
        }
    }

    /// Refused where the value stands, so that the pointer to it names the header.
    enum Value {
        New,
        Twice,
    }

    impl<'de> DeserializeSeed<'de> for Value {
        type Value = String;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
            match self {
                // Without what serde says of it, which may be a secret.
                Self::New => String::deserialize(from)
                    .map_err(|_| D::Error::custom("the value of a header is a text")),
                Self::Twice => Err(D::Error::custom(
                    "the header is there twice: capitals make no difference in names of headers",
                )),
            }
        }
    }
}
