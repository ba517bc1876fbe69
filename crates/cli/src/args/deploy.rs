//! What `deploy` starts, read by the command line itself: systemd units, a compose file, and a Deployment.

use std::collections::BTreeMap;

use clap::Parser;

use super::{Args, Verb};

const SERVER: &str = include_str!("../../../../deploy/systemd/watchbell.service");
const WORKER: &str = include_str!("../../../../deploy/systemd/watchbell-worker.service");
const HOLD: &str = include_str!("../../../../deploy/systemd/watchbell-hold@.service");
const PODS: &str = include_str!("../../../../deploy/kubernetes/hold.yaml");
const SETTINGS: &str = include_str!("../../../../deploy/systemd/worker.toml");
const COMPOSE: &str = include_str!("../../../../deploy/compose.worker.yaml");

/// A unit by sections and keys; none is said twice.
fn unit(text: &str) -> BTreeMap<(String, String), String> {
    let mut unit = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            assert!(["Unit", "Service", "Install"].contains(&name), "{line}");
            name.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no setting: {line}"));
        assert!(!section.is_empty() && key.chars().all(char::is_alphanumeric), "{line}");
        let before = unit.insert((section.clone(), key.to_owned()), value.to_owned());
        assert_eq!(before, None, "twice: {line}");
    }
    unit
}

/// What the service says for a key.
fn service<'a>(unit: &'a BTreeMap<(String, String), String>, key: &str) -> Option<&'a str> {
    unit.get(&("Service".to_owned(), key.to_owned())).map(String::as_str)
}

/// A length of time as systemd and our settings write it.
fn seconds(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u64 = number.parse().unwrap();
    match unit {
        "s" => number,
        "m" => number * 60,
        _ => panic!("{text}"),
    }
}

#[test]
fn what_the_units_start_are_commands() {
    for text in [SERVER, WORKER, HOLD] {
        let unit = unit(text);
        let start = service(&unit, "ExecStart").unwrap();
        let words: Vec<&str> = start.split(' ').collect();
        assert_eq!(words[0], "/usr/local/bin/watchbell");
        let settings: Vec<&str> = SETTINGS
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, _)| name)
            .collect();
        // What the file says need not be typed.
        let parsed = Args::try_parse_from(&words);
        assert!(parsed.is_ok(), "{start}: {}", parsed.unwrap_err());
        for name in settings.iter().filter(|_| words.contains(&"worker")) {
            let flag = format!("--{name}");
            let typed = [&words[..], &[&flag]].concat();
            let why = Args::try_parse_from(typed).unwrap_err().to_string();
            assert!(why.contains("a value is required"), "{name} is no flag of the worker: {why}");
        }
    }
}

#[test]
fn who_starts_programs_may_make_namespaces_with_a_proc_of_their_own() {
    for unit in [WORKER, HOLD].map(unit) {
        for key in [
            "RestrictNamespaces",
            "SystemCallFilter",
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProtectHostname",
            "ProtectProc",
            "ProcSubset",
        ] {
            assert_eq!(service(&unit, key), None, "{key} would make every kill weak");
        }
    }
}

#[test]
fn a_hold_that_stops_its_program_is_not_killed_by_systemd() {
    let unit = unit(HOLD);
    assert_eq!(service(&unit, "KillMode"), Some("mixed"), "its program is not told to stop");
    let typed = ["watchbell", "hold", "mailer", "--", "true"];
    let Ok(Args { verb: Verb::Hold(hold), .. }) = Args::try_parse_from(typed) else {
        panic!("it is a command")
    };
    let patience = seconds(service(&unit, "TimeoutStopSec").unwrap());
    assert!(patience > hold.stop_timeout.as_secs());
}

#[test]
fn a_worker_that_drains_is_not_killed_by_systemd() {
    let unit = unit(WORKER);
    assert_eq!(service(&unit, "KillMode"), Some("mixed"), "its programs are not told to stop");
    let setting = |name: &str| {
        let line = SETTINGS.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        seconds(line.unwrap().trim_end_matches('"'))
    };
    let patience = seconds(service(&unit, "TimeoutStopSec").unwrap());
    assert!(patience > setting("drain-timeout") + setting("grace"));
}

/// The lists of words that follow `command:`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let lists = text.split("command: ").skip(1);
    let list = |list: &str| serde_json::from_str(&list[..=list.find(']').unwrap()]).unwrap();
    lists.map(list).collect()
}

#[test]
fn what_the_compose_file_starts_are_commands() {
    let commands = commands(COMPOSE);
    assert_eq!(commands.len(), 2);
    for words in commands {
        let parsed = Args::try_parse_from([vec!["watchbell".to_owned()], words].concat());
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }
}

#[test]
fn what_the_pods_of_a_hold_start_is_a_command() {
    let [words] = &commands(PODS)[..] else { panic!("there is one container") };
    let parsed = Args::try_parse_from(words);
    assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    let Ok(Args { verb: Verb::Hold(hold), .. }) = parsed else { panic!("{words:?}") };
    // A volume is root's, and everybody may write there: the supervisor makes a directory of its own in it.
    let locks = hold.lock_dir.unwrap();
    let volume = locks.parent().unwrap().display();
    assert!(PODS.contains(&format!("mountPath: {volume}}}")), "{volume} is no volume");
}
