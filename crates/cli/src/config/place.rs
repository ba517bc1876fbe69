//! Which file holds the settings.
//!
//! It has to be known before the command line is read, so the flag and the variable for it are looked for here, by
//! hand. No other file of the command line reads the environment.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::exit::{Ending, say};

/// Where a file of settings is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SettingsPlace {
    pub(super) path: PathBuf,
    pub(super) file: PlaceKind,
}

/// How it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// Somebody named it, so it must be there.
    Named,
    /// It is where such files are.
    Usual,
}

/// The first that is there.
pub(super) fn find(typed: &[OsString]) -> Result<Option<SettingsPlace>, Ending> {
    let named = value_of(typed, "--config").or_else(|| variable("WATCHBELL_CONFIG"));
    if let Some(path) = named {
        return Ok(Some(SettingsPlace { path: path.into(), file: PlaceKind::Named }));
    }
    let here = PathBuf::from("watchbell.toml");
    if let Ok(about) = fs::metadata(&here) {
        // A key goes to the server that the file names: not to one that a stranger chose.
        let me = rustix::process::geteuid().as_raw();
        if about.uid() != me && about.uid() != 0 {
            return Err(Ending::refused(
                "./watchbell.toml belongs to somebody else: name it by --config ./watchbell.toml if you mean it, or go to another directory",
            ));
        }
        return Ok(Some(SettingsPlace { path: here, file: PlaceKind::Usual }));
    }
    let own = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
    let own = own.map(|dir| dir.join("watchbell/config.toml"));
    let usual = own.into_iter().chain([PathBuf::from("/etc/watchbell/config.toml")]);
    // What is in a directory that is closed to us is not there, as far as we can tell.
    for path in usual.filter(|path| path.is_file()) {
        match fs::File::open(&path) {
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                say(&format!("{} is left out: {why}", path.display()));
            }
            Ok(_) | Err(_) => return Ok(Some(SettingsPlace { path, file: PlaceKind::Usual })),
        }
    }
    Ok(None)
}

/// A variable that says something.
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|text| !text.is_empty())
}

/// What was typed for a flag: `--flag value` or `--flag=value`.
pub(super) fn value_of(typed: &[OsString], flag: &str) -> Option<OsString> {
    let mut words = typed.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == flag {
            return words.next().cloned();
        }
        let rest = word.as_bytes().strip_prefix(flag.as_bytes());
        if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(OsStr::from_bytes(value).to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_in_both_spellings_and_not_behind_two_dashes() {
        let value = |words: &[&str]| {
            let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
            value_of(&typed, "--config")
        };
        assert_eq!(value(&["watchbell", "run", "--config", "a"]), Some("a".into()));
        assert_eq!(value(&["watchbell", "--config=b", "run"]), Some("b".into()));
        assert_eq!(value(&["watchbell", "--configure", "--", "--config", "c"]), None);
        assert_eq!(value(&["watchbell", "--config"]), None);
    }
}
