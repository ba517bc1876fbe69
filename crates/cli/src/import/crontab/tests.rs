use super::super::NOW;
use super::*;

const BASE: &str = "https://example.com/cron";

fn user(text: &str) -> CrontabRead {
    read(text, CrontabColumns::User, Some("UTC"), BASE, NOW)
}

/// The pattern, the zone and the body of the only trigger.
#[track_caller]
fn only(read: &CrontabRead) -> (String, Option<String>, serde_json::Value) {
    let [Imported { spec, .. }] = &read.triggers[..] else { panic!("{read:?}") };
    let schedule = spec.schedule.clone().unwrap();
    let webhook = spec.webhook.as_ref().unwrap();
    let body = serde_json::from_str(webhook.body.as_deref().unwrap()).unwrap();
    (schedule.cron[0].clone(), schedule.tz, body)
}

#[test]
fn a_line_becomes_a_trigger_that_sends_its_command() {
    let read =
        user("# nightly\n\n*/15 9-17 * * MON-FRI  /usr/bin/report --daily >/dev/null 2>&1\n");
    let (pattern, zone, body) = only(&read);
    assert_eq!((pattern.as_str(), zone.as_deref()), ("*/15 9-17 * * MON-FRI", Some("UTC")));
    assert_eq!(body, json!({"command": "/usr/bin/report --daily >/dev/null 2>&1"}));
    let spec = &read.triggers[0].spec;
    let name = spec.name.as_deref().unwrap();
    assert!(name.starts_with("report-daily-"), "{name}");
    assert_eq!(spec.webhook.as_ref().unwrap().url, format!("{BASE}/{name}"));
    assert_eq!((read.triggers[0].line, spec.catch_up), (3, Some(CatchUp::Skip)));
    assert!(read.notes.is_empty() && read.left_out.is_empty(), "{read:?}");
}

#[test]
fn a_name_depends_on_the_command_and_not_on_its_line_or_time() {
    let name = |text: &str| user(text).triggers[0].spec.name.clone().unwrap();
    let first = name("0 3 * * * backup\n");
    assert_eq!(name("# moved\n\n0 4 * * * backup\n"), first);
    assert_ne!(name("0 3 * * * backup --full\n"), first);
    let twice = user("0 3 * * * backup\n0 4 * * * backup\n0 3 * * * backup\n0 3 * * * backup\n");
    let names: std::collections::BTreeSet<_> =
        twice.triggers.iter().map(|one| one.spec.name.clone()).collect();
    assert_eq!((names.len(), twice.left_out.len()), (3, 1), "{twice:?}");
}

#[test]
fn a_system_crontab_names_users() {
    let read = read(
        "0 3 * * * root /bin/backup now\n@daily www\n",
        CrontabColumns::System,
        None,
        BASE,
        NOW,
    );
    let (_, zone, body) = only(&read);
    assert_eq!((zone, body), (None, json!({"command": "/bin/backup now", "user": "root"})));
    assert_eq!(read.triggers[0].spec.labels["user"], "root");
    assert!(read.notes[0].why.contains("--tz"), "{read:?}");
    assert!(read.left_out[0].why.contains("the command is missing"), "{read:?}");
}

#[test]
fn zones_hold_for_the_lines_that_follow() {
    let text = "0 1 * * * a\nCRON_TZ=Europe/Berlin\n0 1 * * * b\nTZ=Asia/Tokyo\n0 1 * * * c\nCRON_TZ=\"Mars/Base\"\n0 1 * * * d\n";
    let read = user(text);
    let zones: Vec<_> = read
        .triggers
        .iter()
        .map(|one| one.spec.schedule.as_ref().unwrap().tz.clone().unwrap())
        .collect();
    assert_eq!(zones, ["UTC", "Europe/Berlin", "Europe/Berlin"]);
    assert_eq!((read.left_out.len(), read.left_out[0].line), (1, 7));
    assert!(read.left_out[0].why.contains("line 6 sets a zone that is not known"), "{read:?}");
    let tz_alone = user("TZ=Asia/Tokyo\n0 1 * * * c\n");
    assert_eq!(only(&tz_alone).1.as_deref(), Some("Asia/Tokyo"));
}

#[test]
fn what_follows_a_percent_sign_is_what_the_command_reads() {
    let read = user("0 0 * * * mail -s 50\\% me%Hello%there\\%\n");
    let body = only(&read).2;
    assert_eq!(body, json!({"command": "mail -s 50% me", "stdin": "Hello\nthere%"}));
    assert!(read.notes[0].why.contains("stdin"), "{read:?}");
}

#[test]
fn a_step_in_one_day_field_means_both_in_cron() {
    let read = user("0 0 */2 * MON a\n");
    assert_eq!(only(&read).0, "0 0 */2 * +MON");
    assert!(read.notes[0].why.contains("both day fields"), "{read:?}");
    for either in ["0 0 1 * MON a\n", "0 0 * * MON a\n", "0 0 */2 * * a\n"] {
        assert!(user(either).notes.is_empty(), "{either}");
    }
}

#[test]
fn words_are_kept_and_a_start_of_the_machine_is_left_out() {
    for word in ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"] {
        assert_eq!(only(&user(&format!("{word} a b\n"))).0, word);
    }
    assert!(user("@reboot a\n").left_out[0].why.contains("a start of the machine"));
}

#[test]
fn every_line_that_cannot_be_carried_over_is_told_with_its_number() {
    let text = "61 * * * * a\n* * * *\n0 0 31 2 * b\n0 0 1 1 * \nnonsense\n* * * * * fine\n";
    let read = user(text);
    let lines: Vec<usize> = read.left_out.iter().map(|left| left.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5], "{read:?}");
    assert_eq!(read.triggers.len(), 1);
}

#[test]
fn variables_are_told_and_leave_nothing_out() {
    let read = user("MAILTO=me@example.com\nPATH = /bin\nRANDOM_DELAY=5\n- * * * * * x\n");
    let lines: Vec<usize> = read.notes.iter().map(|note| note.line).collect();
    assert_eq!(lines, [1, 2, 3, 4], "{read:?}");
    assert_eq!((read.triggers.len(), read.left_out.len()), (1, 0));
}

#[test]
fn any_text_is_read_without_a_panic() {
    for text in ["%", "@", "=", "\\", "* * * * * %", "* * * * * \\", "ä=ö", "@daily \u{1f600}"] {
        let _ = user(text);
        let _ = read(text, CrontabColumns::System, None, "nonsense", NOW);
    }
}
