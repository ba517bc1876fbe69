//! What verbs print for people, as files below `tests/golden/table`. What differs from run to run is masked.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rig::{Receiver, Reply, machine};

use super::command::{said, watchbell};
use super::process::{Dev, WATCHBELL, place};

/// A word without what differs from run to run.
fn masked_word(word: &str) -> String {
    let bare = word.trim_matches(|char: char| "(),.;:\"".contains(char));
    let is_instant = bare.len() >= 20 && bare.ends_with('Z') && bare[4..].starts_with('-');
    let mask = match bare {
        _ if is_instant && bare.starts_with("2099") => return word.to_owned(),
        _ if is_instant => "INSTANT",
        _ if bare.starts_with("run_") => "RUN",
        _ if bare.starts_with("trg_") => "TRIGGER",
        _ if bare.starts_with("http://127.0.0.1:") => "URL",
        _ => return word.to_owned(),
    };
    word.replace(bare, mask)
}

/// A text without what differs from run to run: columns are as wide as their contents, so gaps are alike too.
fn masked(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let cells: Vec<String> = line
            .trim()
            .split("  ")
            .filter(|cell| !cell.trim().is_empty())
            .map(|cell| cell.trim().split(' ').map(masked_word).collect::<Vec<_>>().join(" "))
            .collect();
        let mut cells = cells.join("  ");
        // How long a call took.
        if cells.contains("RUN") && cells.ends_with(|char: char| char.is_ascii_digit()) {
            let end = cells.trim_end_matches(|char: char| char.is_ascii_digit()).len();
            cells.replace_range(end.., "MS");
        }
        if let Some((before, after)) = cells.split_once(" after ")
            && let Some((_, after)) = after.split_once(" ms")
        {
            cells = format!("{before} after MS ms{after}");
        }
        lines.push(format!("{}{cells}\n", " ".repeat(indent)));
    }
    // Which of two slots comes first depends on the time of day.
    let is_slot = |line: &String| line.ends_with("+ INSTANT\n") || line.ends_with("- INSTANT\n");
    for slots in lines.chunk_by_mut(|one, next| is_slot(one) && is_slot(next)) {
        slots.sort();
    }
    lines.concat()
}

#[track_caller]
fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/table/{name}.txt"));
    let text = masked(text);
    if std::env::var_os("WATCHBELL_GOLDEN").is_some_and(|word| word == "write") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &text).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert!(text == expected, "{name} is not as {} says:\n{text}", file.display());
}

fn triggers(url: &str, hour: u8) -> String {
    format!(
        "triggers:\n\
         - name: daily\n  labels: {{team: billing, env: prod}}\n  schedule: {{cron: '0 {hour} * * *'}}\n  \
           webhook: {{url: '{url}', headers: {{authorization: 'Bearer {hour}'}}}}\n\
         - name: far\n  schedule: {{at: ['2099-01-01T00:00:00Z', '2099-01-02T00:00:00Z']}}\n  webhook: {{url: '{url}'}}\n\
         - name: on-demand\n  webhook: {{url: '{url}'}}\n"
    )
}

fn typed_with(dev: &Dev, args: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(WATCHBELL)
        .args(args)
        .args(["--server", dev.client.url()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_look_as_their_files_say() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let url = receiver.url(0, "/x");
    let apply = ["trigger", "apply", "-"];
    check("list-empty", &said(&watchbell(&dev, &["trigger", "list"]).await, 0).0);
    let dry = ["trigger", "apply", "-", "--dry-run"];
    check("apply-dry-run-new", &said(&typed_with(&dev, &dry, &triggers(&url, 9)), 0).0);
    check("apply", &said(&typed_with(&dev, &apply, &triggers(&url, 9)), 0).0);
    check("apply-dry-run", &said(&typed_with(&dev, &dry, &triggers(&url, 10)), 0).0);
    check("apply-again", &said(&typed_with(&dev, &apply, &triggers(&url, 10)), 0).0);
    said(&watchbell(&dev, &["trigger", "run", "on-demand", "--wait", "20s"]).await, 0);
    for (name, args) in [
        ("list", &["trigger", "list"][..]),
        ("show", &["trigger", "show", "daily"]),
        ("show-run", &["trigger", "show", "on-demand"]),
        ("explain", &["trigger", "explain", "on-demand"]),
        ("next", &["trigger", "next", "far"]),
        ("runs", &["run", "list"]),
    ] {
        check(name, &said(&watchbell(&dev, args).await, 0).0);
    }
    dev.kill();
}
