use clap::Parser;

use super::*;
use crate::args::{Args, Verb};

fn parse(line: &[&str]) -> Result<Args, clap::Error> {
    Args::try_parse_from([&["watchbell", "trigger"], line].concat())
}

fn create(line: &[&str]) -> CreateArgs {
    let line = [&["create", "--webhook", "http://x.example"], line].concat();
    match parse(&line).unwrap().verb {
        Verb::Trigger(TriggerVerb::Create(typed)) => *typed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trigger_is_typed_with_all_its_rules() {
    let typed = create(&[
        "--cron=* * * * *",
        "--cron=@daily",
        "--every=90s",
        "--at=2027-03-28T02:00:00+01:00",
        "--header=x-a: 1:2",
        "--header",
        "x-b:3",
        "--overlap=queue_one",
        "--catch-up=all",
        "--delivery=at_most_once",
        "--retry-backoff=constant",
        "--gap=skip",
        "--fold=both",
    ]);
    assert_eq!(typed.cron, ["* * * * *", "@daily"]);
    assert_eq!(typed.at[0].to_string(), "2027-03-28T01:00:00Z");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(typed.header, [pair("x-a", "1:2"), pair("x-b", "3")]);
    assert_eq!((typed.overlap, typed.gap), (Some(Overlap::QueueOne), Some(Gap::Skip)));
    assert_eq!(typed.server.server, "http://127.0.0.1:7400");
}

#[test]
fn what_is_mistyped_is_refused_with_what_is_right() {
    for (flag, said) in [
        ("--overlap=maybe", "'allow', 'skip', 'queue_one', 'replace'"),
        ("--at=tomorrow", "write it like 2027-03-28T01:00:00Z"),
        ("--header=x", "write it like 'name: value'"),
        ("--limit=-1", "invalid digit"),
    ] {
        let line = ["create", "--webhook", "http://x.example", flag];
        let why = parse(&line).unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn a_trigger_comes_from_the_command_line_or_from_a_file() {
    assert!(parse(&["create"]).unwrap_err().to_string().contains("--webhook"));
    assert!(parse(&["create", "--file=x.json"]).is_ok());
    assert!(parse(&["create", "--file=x.json", "--replace"]).is_ok());
    for field in FIELDS.split(' ') {
        let named = [("zone", "tz"), ("labels", "label")];
        let named = named.iter().find(|(name, _)| *name == field);
        let flag =
            if let Some((_, flag)) = named { (*flag).to_owned() } else { field.replace('_', "-") };
        let value = match field {
            "at" | "start" | "end" => "2027-03-28T01:00:00Z",
            "header" | "secret_header" => "a:b",
            "labels" => "team=billing",
            "dialect" => "open",
            "gap" | "catch_up" | "overlap" => "skip",
            "fold" => "both",
            "delivery" => "at_most_once",
            "retry_backoff" => "constant",
            "env" => "A=1",
            _ => "1",
        };
        let typed = format!("--{flag}={value}");
        let line: &[&str] = match field {
            "command" => &["create", "--file=x.json", "--", "/bin/true"],
            _ => &["create", "--file=x.json", &typed],
        };
        let why = parse(line).unwrap_err();
        assert_eq!(why.kind(), clap::error::ErrorKind::ArgumentConflict, "{why}");
    }
}

#[test]
fn a_wait_is_a_length_or_a_number_of_seconds() {
    let wait = |text: &str| match parse(&["run", "hello", "--wait", text]).unwrap().verb {
        Verb::Trigger(TriggerVerb::Run(typed)) => typed.wait,
        other => panic!("{other:?}"),
    };
    for (text, seconds) in [("5", 5), ("5s", 5), ("1m", 60)] {
        assert_eq!(wait(text), Some(Duration::from_secs(seconds)), "{text}");
    }
    for bad in ["0s", "61s", "2m", "0.5s", "soon"] {
        assert!(parse(&["run", "hello", "--wait", bad]).is_err(), "{bad}");
    }
}

#[test]
fn counts_are_taken_up_to_their_limits_and_refused_one_past_them() {
    for (verb, flag, most) in
        [("next", "--count", 1_000), ("run", "--wait", 60), ("list", "--limit", 500)]
    {
        let parse = |count: i64| {
            let flag = format!("{flag}={count}");
            let name: &[&str] = if verb == "list" { &[] } else { &["hello"] };
            parse(&[&[verb, flag.as_str()], name].concat()).is_ok()
        };
        assert!(parse(1) && parse(most), "{verb}");
        assert!(!parse(0) && !parse(most + 1), "{verb}");
    }
}
