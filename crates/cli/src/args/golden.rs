//! Every help text as it is shown, long and short (`.short.txt`), one file each below `tests/golden/help`.
//!
//! `WATCHBELL_GOLDEN=write cargo test -p watchbell golden` writes them anew; look at the difference before you
//! commit it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// How wide the help is in these files.
const WIDTH: usize = 100;

/// The most lines of a short help: it fits on a screen.
const SHORT_LINES_MAX: usize = 52;

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help")
}

/// Every command with its words, `watchbell trigger list`.
fn all(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
    let words = format!("{words} {}", command.get_name()).trim().to_owned();
    found.push((words.clone(), command.clone()));
    for below in
        command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        all(below, &words, found);
    }
}

fn helps() -> Vec<(String, String)> {
    // What the environment of whoever tests says is no part of the text.
    fn hidden(command: Command) -> Command {
        let command = command.mut_args(|arg| arg.hide_env_values(true));
        command.mut_subcommands(hidden)
    }
    let mut command = hidden(super::command()).term_width(WIDTH);
    command.build();
    let mut found = Vec::new();
    all(&command, "", &mut found);
    let help = |(words, command): (String, Command)| {
        let name = words.replace(' ', "-");
        let mut command = command.term_width(WIDTH);
        let long = command.render_long_help().to_string();
        [(format!("{name}.short"), command.render_help().to_string()), (name, long)]
    };
    found.into_iter().flat_map(help).collect()
}

#[test]
fn every_help_text_is_as_its_file_says_and_has_examples() {
    let write = std::env::var_os("WATCHBELL_GOLDEN").is_some_and(|word| word == "write");
    if write {
        let _ = fs::remove_dir_all(place());
        fs::create_dir_all(place()).unwrap();
    }
    let mut known = BTreeSet::new();
    for (name, help) in helps() {
        let file = place().join(format!("{name}.txt"));
        assert!(help.contains("Examples:\n  "), "{name} has no examples");
        let is_short =
            name.strip_suffix(".short").is_none() || help.lines().count() <= SHORT_LINES_MAX;
        assert!(is_short, "{name} is longer than {SHORT_LINES_MAX} lines");
        if write {
            fs::write(&file, &help).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            help == expected,
            "the help of {name} is not as {} says; if it is as it should be, write it anew: see CONTRIBUTING.md\n{help}",
            file.display()
        );
        known.insert(format!("{name}.txt"));
    }
    for file in fs::read_dir(place()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} is of no command");
    }
}
