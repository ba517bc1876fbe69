//! `watchbell store dump`: what is in a store, key by key.
//!
//! It goes page by page, and keeps no more than a page: a store may be larger than memory.

use std::io::{self, BufWriter, Write};

use engine::limits::PAGE_ENTRIES_MAX;
use store::{Entry, Range, StoreUrl};

use crate::args::OutputFormat;
use crate::exit::{Ending, say};
use crate::mask::masked;
use crate::table::terminal_width;
use crate::value::Readable;

/// Columns kept for keys in a table; longer keys push their own line to the right.
const KEY_COLUMNS_MAX: usize = 40;

/// A value is given at least this much room, even if its line then takes two.
const VALUE_COLUMNS_MIN: usize = 24;

pub(crate) async fn dump(url: &StoreUrl, prefix: &str, output: OutputFormat) -> Result<(), Ending> {
    let store = store::open_existing(url).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut lines = Lines::new(output);
    let mut pages = store.pages(Range::prefix(prefix), PAGE_ENTRIES_MAX);
    while let Some(entries) = pages.next().await? {
        lines.write(&mut out, &entries)?;
        out.flush()?;
    }
    if !lines.begun() {
        say(&nothing_found(prefix));
    }
    Ok(())
}

fn nothing_found(prefix: &str) -> String {
    if prefix.is_empty() {
        return "the store is empty".into();
    }
    format!("no key in the store begins with {prefix:?}")
}

/// How entries become lines.
enum Lines {
    Table(Columns),
    Json { begun: bool },
}

impl Lines {
    fn new(output: OutputFormat) -> Self {
        match output {
            OutputFormat::Table => {
                Self::Table(Columns { width: terminal_width(), key: 0, version: 0 })
            }
            OutputFormat::Json => Self::Json { begun: false },
        }
    }

    /// Whether there was anything to write.
    fn begun(&self) -> bool {
        match self {
            Self::Table(columns) => columns.begun(),
            Self::Json { begun } => *begun,
        }
    }

    fn write(&mut self, out: &mut impl Write, page: &[Entry]) -> io::Result<()> {
        match self {
            Self::Table(columns) => columns.write(out, page),
            Self::Json { begun } => {
                *begun |= !page.is_empty();
                page.iter().try_for_each(|entry| write_json(out, entry))
            }
        }
    }
}

/// The members stay in this order, and the value as it was written, but for its secrets.
fn write_json(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let key = serde_json::Value::from(entry.key.as_str());
    let value = Readable::of(&masked(entry.value.as_bytes())).json();
    writeln!(out, r#"{{"key":{key},"version":{},"value":{value}}}"#, entry.version.0)
}

/// A table whose columns grow with what comes by, as its end is not known at its beginning.
struct Columns {
    /// Of the terminal, if it is one.
    width: Option<usize>,
    key: usize,
    version: usize,
}

impl Columns {
    fn begun(&self) -> bool {
        self.key > 0
    }

    fn write(&mut self, out: &mut impl Write, page: &[Entry]) -> io::Result<()> {
        let begun = self.begun();
        for entry in page {
            self.key = self.key.max(entry.key.as_str().len()).min(KEY_COLUMNS_MAX);
            self.version = self.version.max(entry.version.0.to_string().len());
        }
        if !begun && self.begun() {
            self.key = self.key.max("key".len());
            self.version = self.version.max("version".len());
            let line = self.begin_line("key", "version");
            writeln!(out, "{line}value")?;
        }
        page.iter().try_for_each(|entry| self.write_entry(out, entry))
    }

    fn write_entry(&self, out: &mut impl Write, entry: &Entry) -> io::Result<()> {
        let line = self.begin_line(entry.key.as_str(), &entry.version.0.to_string());
        let value = Readable::of(&masked(entry.value.as_bytes()));
        let value = match self.width {
            Some(width) => {
                let room = width.saturating_sub(line.len()).max(VALUE_COLUMNS_MIN);
                value.line_within(room, entry.value.len())
            }
            None => value.line(),
        };
        writeln!(out, "{line}{value}")
    }

    fn begin_line(&self, key: &str, version: &str) -> String {
        format!("{key:<0$}  {version:>1$}  ", self.key, self.version)
    }
}
