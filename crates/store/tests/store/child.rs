//! Running `store-committer` and reading what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use store::file::{FileStore, Sizes};
use store::{Range, Store};

pub(crate) const COMMITTER: &str = env!("CARGO_BIN_EXE_store-committer");

/// The same as the child's.
pub(crate) const SIZES: Sizes = Sizes { segment_bytes: 64 * 1024, layer_bytes: 32 * 1024 };

/// What a child said about one writer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) tried: u64,
    pub(crate) acknowledged: u64,
    /// Version of the last acknowledgement.
    pub(crate) version: u64,
}

/// Everything that children have said about one directory, over all of their lives.
#[derive(Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) writers: BTreeMap<String, Said>,
    pub(crate) versions: BTreeSet<u64>,
    pub(crate) errors: Vec<String>,
    pub(crate) acknowledgements: usize,
}

impl Testimony {
    /// Takes a line down. A version that was told before is an error at once.
    pub(crate) fn hear(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.splitn(4, ' ');
        let (kind, writer) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let number: u64 = words.next().and_then(|word| word.parse().ok()).ok_or(line)?;
        let said = self.writers.entry(writer.to_owned()).or_default();
        match kind {
            "try" => said.tried = number,
            "ack" => {
                let version = words.next().and_then(|word| word.parse().ok()).ok_or(line)?;
                (said.acknowledged, said.version) = (number, version);
                self.acknowledgements += 1;
                if !self.versions.insert(version) {
                    return Err(format!("version {version} was given twice"));
                }
            }
            "err" => self.errors.push(words.next().unwrap_or_default().to_owned()),
            _ => return Err(format!("the child said {line:?}")),
        }
        Ok(())
    }

    /// Compares the store with what was said: every acknowledged batch is there, none by half.
    pub(crate) async fn check(&self, dir: &Path) -> Result<(), String> {
        let opened = FileStore::open_existing(dir, SIZES).map_err(|why| why.to_string())?;
        let store = Store::new(opened);
        for (writer, said) in &self.writers {
            let range = Range::prefix(&format!("writer/{writer}/"));
            let page = store.scan(range, 10).await.map_err(|why| why.to_string())?;
            let first = page.entries.first();
            let whole = page.entries.iter().all(|entry| {
                Some((&entry.value, entry.version))
                    == first.map(|first| (&first.value, first.version))
            });
            if !whole || !matches!(page.entries.len(), 0 | 3) {
                return Err(format!("half a batch of writer {writer}: {:?}", page.entries));
            }
            let number = first.map_or(0, |entry| {
                let record: serde_json::Value =
                    serde_json::from_slice(entry.value.as_bytes()).expect("the child wrote JSON");
                record["number"].as_u64().expect("with a number in it")
            });
            if number < said.acknowledged || number > said.tried {
                return Err(format!("writer {writer}: batch {number} is there, and {said:?}"));
            }
            if let Some(first) = first
                && number == said.acknowledged
                && first.version.0 != said.version
            {
                return Err(format!("writer {writer}: {:?} is there, and {said:?}", first.version));
            }
        }
        Ok(())
    }
}

/// Starts `command` and gives each of its lines to `hear`, until that returns false; then it is
/// killed with SIGKILL. Returns when it is dead and everything it said was heard.
pub(crate) fn listen(command: &mut Command, mut hear: impl FnMut(&str) -> bool) {
    let mut child: Child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("{command:?} does not start: {why}"));
    let mut killed = false;
    let lines = BufReader::new(child.stdout.take().expect("piped above")).lines();
    for line in lines.map_while(Result::ok) {
        if !hear(&line) && !killed {
            child.kill().expect("our own child can be killed");
            killed = true;
        }
    }
    child.wait().expect("our own child can be waited for");
}
