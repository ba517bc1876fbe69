//! What was found, for people and for programs.

use std::env;
use std::time::Duration;

use serde_json::{Map, Value, json};

use store::StoreUrl;

use super::machine::About;

/// Cores that others may keep busy before figures are doubted.
const OTHERS_MAX: f64 = 0.15;

/// How long a server may take to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What a measurement found.
pub(super) struct Report {
    about: About,
    sections: Vec<Section>,
    notes: Vec<String>,
    /// The most that others kept busy while something was measured, in cores.
    others: f64,
    /// Whether an engine is among the others.
    is_on_engine: bool,
}

/// A table.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A figure, with its names for programs and for people.
pub(super) struct Cell {
    name: &'static str,
    head: &'static str,
    value: Value,
    text: String,
}

impl Report {
    pub(super) fn new(about: About) -> Self {
        Self { about, sections: Vec::new(), notes: Vec::new(), others: 0.0, is_on_engine: false }
    }

    pub(super) fn add(&mut self, name: &'static str, rows: Vec<Vec<Cell>>) {
        self.sections.push(Section { name, rows });
    }

    /// Says something that a reader of the figures should know.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// A server took so long to stop.
    pub(super) fn stopped(&mut self, after: Duration) {
        if after > STOP_MAX {
            let seconds = after.as_secs_f64();
            self.note(format!(
                "WRONG: a server took {seconds:.1} s to stop, or did not and was killed"
            ));
        }
    }

    /// Others kept so many cores busy.
    pub(super) fn others(&mut self, cores: f64) {
        self.others = self.others.max(cores);
    }

    /// The store is an engine in processes of its own, whose work is work of others.
    pub(super) fn on_engine(&mut self) {
        self.is_on_engine = true;
    }

    fn doubt(&self) -> Option<String> {
        (self.others > OTHERS_MAX && !self.is_on_engine).then(|| {
            format!(
                "DO NOT QUOTE THESE FIGURES: others kept up to {:.2} of {} cores busy meanwhile",
                self.others, self.about.cores
            )
        })
    }

    fn engine(&self) -> Option<String> {
        self.is_on_engine.then(|| {
            format!(
                "all others, the store's engine among them, kept up to {:.2} of {} cores busy",
                self.others, self.about.cores
            )
        })
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut parts = vec![self.machine()];
        parts.extend(self.sections.iter().map(Section::table));
        let notes: Vec<String> = self
            .notes
            .iter()
            .cloned()
            .chain(self.doubt())
            .chain(self.engine())
            .map(|note| format!("{note}\n"))
            .collect();
        if !notes.is_empty() {
            parts.push(notes.concat());
        }
        parts.join("\n")
    }

    fn machine(&self) -> String {
        let About { version, cores, memory_bytes, kernel, sync } = &self.about;
        let memory = grouped(memory_bytes >> 20);
        let sync = sync.map_or_else(String::new, |(usual, longest)| {
            let (usual, longest) = (millis(usual), millis(longest));
            format!(", a sync of 4 KiB takes {usual} ms (longest of 100: {longest} ms)")
        });
        let build = if cfg!(debug_assertions) { ", measured by an UNOPTIMISED BUILD" } else { "" };
        format!(
            "machine  {cores} cores, {memory} MiB, Linux {kernel}{sync}\nversion  {version}{build}\nagain    {}\n",
            again()
        )
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let About { version, cores, memory_bytes, kernel, sync } = &self.about;
        let ms = |sync: Duration| sync.as_secs_f64() * 1_000.0;
        let sections =
            self.sections.iter().map(|section| (section.name.to_owned(), section.json()));
        let report = json!({
            "machine": {
                "cores": cores,
                "memory_bytes": memory_bytes,
                "kernel": kernel,
                "sync_ms": sync.map(|(usual, _)| ms(usual)),
                "sync_longest_ms": sync.map(|(_, longest)| ms(longest)),
            },
            "version": version,
            "optimised": !cfg!(debug_assertions),
            "again": again(),
            "others_cores": self.others,
            "quotable": self.doubt().is_none(),
            "notes": self.notes.iter().cloned().chain(self.engine()).collect::<Vec<_>>(),
            "figures": sections.collect::<Map<_, _>>(),
        });
        format!("{report:#}\n")
    }
}

/// What to type to measure again, without the secret of a URL.
fn again() -> String {
    let words = env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy();
        let (flag, url) = word.split_once('=').filter(|(flag, _)| flag.starts_with("--")).unzip();
        let masked = StoreUrl::parse(url.unwrap_or(&word)).map(|url| url.to_string());
        match (masked, flag) {
            (Ok(url), Some(flag)) => format!("{flag}={url}"),
            (Ok(url), None) => url,
            (Err(_), _) => word.into_owned(),
        }
    });
    let words: Vec<String> = words.collect();
    format!("cargo run --release --manifest-path bench/Cargo.toml -- {}", words.join(" "))
}

impl Section {
    fn table(&self) -> String {
        let mut rows: Vec<Vec<&str>> = Vec::new();
        rows.extend(self.rows.first().map(|row| row.iter().map(|cell| cell.head).collect()));
        rows.extend(self.rows.iter().map(|row| row.iter().map(|cell| &*cell.text).collect()));
        let columns = rows.first().map_or(0, Vec::len);
        let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let wide: Vec<usize> = (0..columns).filter_map(wide).collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&wide).enumerate().map(|(column, (cell, wide))| {
                if column == 0 { format!("{cell:<wide$}") } else { format!("{cell:>wide$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let fields = row.iter().map(|cell| (cell.name.to_owned(), cell.value.clone()));
            Value::Object(fields.collect())
        };
        self.rows.iter().map(row).collect()
    }
}

impl Cell {
    /// A word.
    pub(super) fn word(name: &'static str, head: &'static str, word: impl Into<String>) -> Self {
        let text = word.into();
        Self { name, head, value: text.clone().into(), text }
    }

    /// How many.
    pub(super) fn count(name: &'static str, head: &'static str, count: impl Into<u64>) -> Self {
        let count = count.into();
        Self { name, head, value: count.into(), text: grouped(count) }
    }

    /// Bytes, shown in millions.
    pub(super) fn bytes(name: &'static str, head: &'static str, bytes: u64) -> Self {
        Self { name, head, value: bytes.into(), text: format!("{:.1}", float(bytes) / 1e6) }
    }

    /// A number with so many places.
    pub(super) fn number(
        name: &'static str,
        head: &'static str,
        number: Option<f64>,
        places: usize,
    ) -> Self {
        let number = number.filter(|number| number.is_finite());
        let text = number.map_or_else(|| "-".to_owned(), |number| format!("{number:.places$}"));
        Self { name, head, value: number.into(), text }
    }
}

/// A number with its thousands apart: 1,048,576.
pub(super) fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds, down to the microsecond.
fn millis(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1_000.0)
}

/// A number for people needs no more than 53 bits.
#[expect(clippy::cast_precision_loss, reason = "counts and lengths here are far below 2^53")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// The whole number nearest to one that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is counted is positive and far below 2^64"
)]
pub(super) fn whole(number: f64) -> u64 {
    number.round() as u64
}
