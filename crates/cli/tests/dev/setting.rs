//! Settings: what was typed, over variables, over a file, over defaults; and what is wrong with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::command::said;
use super::process::WATCHBELL;

/// A directory to type in, which is also the home, and nothing in the environment.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(WATCHBELL);
        command.args(args).current_dir(self.0.path()).env_clear().env("HOME", self.0.path());
        command
    }

    /// What `config show` says about a setting: its value, and where it comes from.
    #[track_caller]
    fn setting(&self, name: &str, args: &[&str], variables: &[(&str, &str)]) -> (Value, String) {
        let mut command = self.command(&[&["config", "show", "--output", "json"], args].concat());
        let (out, _) = said(&command.envs(variables.iter().copied()).output().unwrap(), 0);
        let told: Value = serde_json::from_str(&out).unwrap();
        let settings = told["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not in {out}"));
        (found["value"].clone(), found["from"].as_str().unwrap().to_owned())
    }
}

#[test]
fn each_layer_counts_over_the_one_beneath_it() {
    let home = Home::new();
    let flag = &["--server", "http://flag"][..];
    let variable = &[("WATCHBELL_SERVER", "http://variable")][..];
    let check = |args: &[&str], variables: &[(&str, &str)], value: &str, origin: &str| {
        let expected = (Value::from(value), origin.to_owned());
        assert_eq!(home.setting("server", args, variables), expected);
    };
    check(&[], &[], "http://127.0.0.1:7400", "default");
    home.write("watchbell.toml", "# ours\nserver = \"http://file\"\n");
    check(&[], &[], "http://file", "watchbell.toml:2");
    check(&[], variable, "http://variable", "variable WATCHBELL_SERVER");
    check(flag, variable, "http://flag", "flag --server");
}

#[test]
fn the_file_is_the_first_that_is_there() {
    let home = Home::new();
    let origin =
        |args: &[&str], variables: &[(&str, &str)]| home.setting("project", args, variables).1;
    assert_eq!(origin(&[], &[]), "not set");
    home.write(".config/watchbell/config.toml", "project = 'home'");
    assert!(origin(&[], &[]).ends_with("/.config/watchbell/config.toml:1"));
    home.write("xdg/watchbell/config.toml", "project = 'xdg'");
    let xdg = home.0.path().join("xdg");
    let xdg = &[("XDG_CONFIG_HOME", xdg.to_str().unwrap())][..];
    assert!(origin(&[], xdg).ends_with("/xdg/watchbell/config.toml:1"));
    home.write("watchbell.toml", "project = 'here'");
    assert_eq!(origin(&[], xdg), "watchbell.toml:1");
    home.write("variable.toml", "project = 'variable'");
    let named = &[("WATCHBELL_CONFIG", "variable.toml")][..];
    assert_eq!(origin(&[], named), "variable.toml:1");
    home.write("flag.toml", "project = 'flag'");
    assert_eq!(origin(&["--config", "flag.toml"], named), "flag.toml:1");
    assert_eq!(origin(&["--config=flag.toml"], named), "flag.toml:1");
}

#[test]
fn what_the_file_says_is_what_verbs_do() {
    let home = Home::new();
    home.write("watchbell.toml", "server = 'http://127.0.0.1:1'\noutput = 'json'\n");
    let (_, err) = said(&home.command(&["trigger", "list"]).output().unwrap(), 3);
    assert!(err.contains("http://127.0.0.1:1:"), "{err}");
    let next = ["cron", "next", "@daily", "--from", "2027-01-15T00:00:00Z", "--count", "1"];
    let (out, _) = said(&home.command(&next).output().unwrap(), 0);
    assert_eq!(out, "[\"2027-01-15T00:00:00Z\"]\n");
    // Also what a verb cannot do without.
    home.write(
        "watchbell.toml",
        "store = 'nonsense:x'\nwebhook-allow = ['10.0.0.0/8', '::1/128']\n",
    );
    let (_, err) = said(&home.command(&["server"]).output().unwrap(), 2);
    assert!(err.contains("nonsense"), "{err}");
    let (allowed, _) = home.setting("webhook-allow", &[], &[]);
    assert_eq!(allowed, "10.0.0.0/8, ::1/128");
    let (_, err) = said(&home.command(&["server", "--tls-cert", "x"]).output().unwrap(), 2);
    assert!(err.contains("give --tls-key"), "{err}");
}

#[test]
fn what_is_wrong_with_a_file_is_told_by_its_line_and_help_is_there_all_the_same() {
    let home = Home::new();
    home.write("watchbell.toml", "server = 'http://x'\nkee = 'wbk_hush'\n");
    for args in [&["config"][..], &["trigger", "list"], &["cron", "next", "@daily"]] {
        let (out, err) = said(&home.command(args).output().unwrap(), 2);
        let told = "watchbell: watchbell.toml:2: there is no setting kee: did you mean key?";
        assert!(err.starts_with(told) && out.is_empty() && !err.contains("hush"), "{err}");
    }
    said(&home.command(&["trigger", "list", "--help"]).output().unwrap(), 0);
    let nowhere = home.command(&["config", "--config", "/nope/x.toml"]).output().unwrap();
    assert!(said(&nowhere, 2).1.contains("cannot read the settings in /nope/x.toml"));
}

#[test]
fn a_secret_is_masked_wherever_it_comes_from_and_in_help() {
    let home = Home::new();
    home.write("watchbell.toml", "key = 'wbk_hush'\nstore = 'postgres://u:hush@h/db'\n");
    let masked = |args: &[&str], variables: &[(&str, &str)]| home.setting("key", args, variables);
    let mask = Value::from("********");
    assert_eq!(masked(&[], &[]), (mask.clone(), "watchbell.toml:1".to_owned()));
    assert_eq!(masked(&[], &[("WATCHBELL_KEY", "hush")]).0, mask);
    assert_eq!(masked(&["--key", "hush"], &[]), (mask, "flag --key".to_owned()));
    // What counts is one of the two: the one that was typed.
    assert_eq!(masked(&["--key-file", "x"], &[]).1, "not set");
    for args in [&["config"][..], &["config", "--output", "json"], &["trigger", "list", "--help"]] {
        let output = home.command(args).env("WATCHBELL_KEY", "hush").output().unwrap();
        let (out, err) = said(&output, 0);
        assert!(!out.contains("hush") && !err.contains("hush"), "{out}{err}");
    }
}

#[test]
fn a_secret_in_a_file_that_others_can_read_is_told() {
    let home = Home::new();
    home.write("watchbell.toml", "key = 'wbk_hush'\n");
    let told = |mode: u32| {
        let path: &Path = &home.0.path().join("watchbell.toml");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        said(&home.command(&["config"]).output().unwrap(), 0).1
    };
    assert_eq!(told(0o600), "");
    assert!(told(0o640).contains("watchbell.toml holds a key, and others can read it: chmod 600"));
    home.write("watchbell.toml", "server = 'http://x'\n");
    assert_eq!(told(0o644), "");
}
