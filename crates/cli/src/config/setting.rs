//! The settings that there are: every flag, of whatever verb, that has a variable of ours.

use clap::{Arg, ArgAction, Command};

use crate::args::without_secret;

/// What the variables of all settings begin with.
const PREFIX: &str = "WATCHBELL_";

/// The file itself is named by a flag and a variable, but not in the file.
const FILE: &str = "config";

/// A flag that has a variable `WATCHBELL_…`.
pub(super) struct Setting {
    /// The name of its flag, which is its key in the file.
    pub(super) name: String,
    pub(super) variable: String,
    /// Its flags: several verbs may have it.
    flags: Vec<Arg>,
}

impl Setting {
    /// All settings of a command line, by name.
    pub(super) fn all(command: &Command) -> Vec<Self> {
        let mut settings = Vec::new();
        collect(command, &mut settings);
        settings.sort_by(|one, other| one.name.cmp(&other.name));
        settings
    }

    /// Which setting a flag is for, if for any.
    pub(super) fn name_of(arg: &Arg) -> Option<String> {
        let is_ours = arg.get_env()?.to_str()?.starts_with(PREFIX);
        arg.get_long().filter(|name| is_ours && *name != FILE).map(str::to_owned)
    }

    /// Whether every verb has it.
    pub(super) fn is_global(&self) -> bool {
        self.flags[0].is_global_set()
    }

    /// Whether these values of it are for nobody else. A store on this machine has no password; any other may have
    /// one anywhere in its URL.
    pub(super) fn is_secret(&self, texts: &[String]) -> bool {
        let is_local = |text: &String| text.starts_with("file:") || text == "memory:";
        self.flags.iter().any(Arg::is_hide_env_values_set) && !texts.iter().all(is_local)
    }

    /// Whether it is there or not, and has no value.
    pub(super) fn is_switch(&self) -> bool {
        matches!(self.flags[0].get_action(), ArgAction::SetTrue)
    }

    /// Whether it may be given several times.
    pub(super) fn is_many(&self) -> bool {
        matches!(self.flags[0].get_action(), ArgAction::Append)
    }

    /// Under which name the parser knows it.
    pub(super) fn id(&self) -> &str {
        self.flags[0].get_id().as_str()
    }

    /// A flag like its first one, alone: without what that one needs or excludes among its neighbours.
    pub(super) fn arg(&self) -> Arg {
        copy(&self.flags[0])
            .env(self.variable.clone())
            .default_values(self.flags[0].get_default_values().to_vec())
    }

    /// What is wrong with these values, in the parser's words.
    pub(super) fn check(&self, texts: &[String]) -> Result<(), String> {
        if self.is_switch() {
            let is_right = matches!(texts, [text] if text == "true" || text == "false");
            return if is_right { Ok(()) } else { Err("it is true or false".to_owned()) };
        }
        if !self.is_many() && texts.len() != 1 {
            return Err("it has one value".to_owned());
        }
        for flag in &self.flags {
            let alone = Command::new("watchbell").disable_help_flag(true).arg(copy(flag));
            let words = texts.iter().map(|text| format!("--{}={text}", self.name));
            let parsed =
                alone.try_get_matches_from(["watchbell".to_owned()].into_iter().chain(words));
            if let Err(error) = parsed {
                let told = without_secret(error).render().to_string();
                let told = told.split("\n\n").next().unwrap_or_default().replace("\n  ", " ");
                let told = told.trim_start_matches("error: ");
                // The value is in front of it, which may be secret; the reason is behind.
                let why = told.split_once("': ").map_or(told, |(_, why)| why);
                return Err(why.to_owned());
            }
        }
        Ok(())
    }
}

fn collect(command: &Command, settings: &mut Vec<Setting>) {
    for arg in command.get_arguments() {
        let Some(name) = Setting::name_of(arg) else { continue };
        if let Some(setting) = settings.iter_mut().find(|setting| setting.name == name) {
            setting.flags.push(arg.clone());
            continue;
        }
        let variable = arg.get_env().unwrap_or_default().to_string_lossy().into_owned();
        settings.push(Setting { name, variable, flags: vec![arg.clone()] });
    }
    for command in command.get_subcommands() {
        collect(command, settings);
    }
}

fn copy(flag: &Arg) -> Arg {
    let mut arg = Arg::new(flag.get_id().clone())
        .long(flag.get_long().unwrap_or_default().to_owned())
        .action(flag.get_action().clone())
        .hide_env_values(flag.is_hide_env_values_set());
    if let Some(help) = flag.get_help() {
        arg = arg.help(help.clone());
    }
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    if let Some(names) = flag.get_value_names() {
        arg = arg.value_names(names.to_vec());
    }
    arg.value_parser(flag.get_value_parser().clone()).value_delimiter(flag.get_value_delimiter())
}
