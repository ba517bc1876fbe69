//! Settings: what was typed, over variables, over a file, over defaults.
//!
//! A setting is a flag that has a variable `WATCHBELL_…`: there is no other list of them. Its key in the file is the
//! flag's name. What the file says becomes the flag's default before the command line is read, so the parser puts
//! the layers in their order, checks them and shows them in its help, as it does with any flag.
//!
//! - [`place`]: which file
//! - [`file`](mod@file): what it says, and what is wrong with it
//! - [`setting`]: the settings that there are
//! - [`show`]: `watchbell config show`

mod file;
mod place;
mod setting;
mod show;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use self::file::SettingsFile;
use self::setting::Setting;
use crate::args::{self, Args, without_secret};
use crate::exit::{Ending, say};

/// Settings of which one is enough: the one from the higher layer counts, and the other is left out.
const ALTERNATIVES: [(&str, &str); 2] = [("key", "key-file"), ("key-file", "key")];

/// Where each setting comes from.
pub(crate) struct Layers {
    settings: Vec<Setting>,
    file: Option<SettingsFile>,
    matches: ArgMatches,
}

/// Reads the command line and what is beneath it. Ends the process when the parser does: for help, or for what it
/// does not understand.
pub(crate) fn read() -> Result<(Args, Layers), Ending> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let settings = Setting::all(&args::command());
    let file = match place::find(&typed).and_then(|place| file::read(place, &settings)) {
        Ok(file) => file,
        // Help is there also for those whose file is broken.
        Err(_) if asks_for_help(&typed) => None,
        Err(ending) => return Err(ending),
    };
    let command = layered(args::command(), &settings, file.as_ref(), &typed);
    let matches = command.try_get_matches_from(&typed);
    let matches = matches.unwrap_or_else(|error| without_secret(error).exit());
    let args = Args::from_arg_matches(&matches);
    let args = args.unwrap_or_else(|error| without_secret(error).exit());
    Ok((args, Layers { settings, file, matches }))
}

fn asks_for_help(typed: &[OsString]) -> bool {
    typed
        .iter()
        .any(|word| ["-h", "--help", "help", "-V", "--version"].iter().any(|help| word == help))
}

/// The command line with what the file says as its defaults.
fn layered(
    command: Command,
    settings: &[Setting],
    file: Option<&SettingsFile>,
    typed: &[OsString],
) -> Command {
    let command = command.mut_subcommand("config", |config| {
        let own = settings.iter().filter(|setting| !setting.is_global());
        config.args(own.map(|setting| setting.arg().global(true)))
    });
    let mut command = beneath(command, &|arg| match file {
        Some(file) => with_file(arg, file),
        None => arg,
    });
    for (one, other) in ALTERNATIVES {
        let Some(setting) = settings.iter().find(|setting| setting.name == one) else { continue };
        let is_typed = place::value_of(typed, &format!("--{one}")).is_some();
        let is_variable = place::variable(&setting.variable).is_some();
        command = beneath(command, &|arg| match arg.get_long() == Some(other) {
            true if is_typed => unset(arg).env(None),
            true if is_variable => unset(arg),
            true | false => arg,
        });
    }
    command
}

/// Changes the flags of a command and of all beneath it.
fn beneath(command: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    command.mut_args(change).mut_subcommands(|command| beneath(command, change))
}

fn with_file(arg: Arg, file: &SettingsFile) -> Arg {
    let Some(value) = Setting::name_of(&arg).and_then(|name| file.values.get(&name)) else {
        return arg;
    };
    let arg = if arg.is_hide_env_values_set() { arg.hide_default_value(true) } else { arg };
    arg.required(false).default_values(value.texts.clone())
}

fn unset(arg: Arg) -> Arg {
    arg.default_values(None::<&str>)
}

impl Layers {
    /// Whether anybody says anything for this setting: typed, by its variable, or in the file.
    pub(crate) fn says(&self, name: &str) -> bool {
        let mut leaf = &self.matches;
        while let Some((_, beneath)) = leaf.subcommand() {
            leaf = beneath;
        }
        let Some(setting) = self.settings.iter().find(|setting| setting.name == name) else {
            return false;
        };
        let is_above = !matches!(
            leaf.value_source(setting.id()),
            None | Some(clap::parser::ValueSource::DefaultValue)
        );
        is_above || self.file.as_ref().is_some_and(|file| file.values.contains_key(name))
    }

    /// `watchbell config show`.
    pub(crate) fn show(&self) -> Result<(), Ending> {
        show::show(&self.settings, self.file.as_ref(), &self.matches)
    }
}

/// Says so if others on this machine can read a file that holds a secret.
pub(crate) fn warn_if_shared(file: &File, path: &Path) {
    let mode = file.metadata().map_or(0, |about| about.permissions().mode());
    if mode & 0o044 != 0 {
        let path = path.display();
        say(&format!("{path} holds a key, and others can read it: chmod 600 {path}"));
    }
}
