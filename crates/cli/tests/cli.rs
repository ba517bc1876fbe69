//! The real binary, as a person or a script meets it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use store::file::{FileStore, Sizes};
use store::{Commit, Key, Range, Store};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

const WATCHBELL: &str = env!("CARGO_BIN_EXE_watchbell");

/// A directory for a store, not made yet, and what keeps it until the test is over.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    (dir, data)
}

fn url(dir: &Path) -> String {
    format!("file:{}", dir.display())
}

fn watchbell(args: &[&str]) -> Output {
    Command::new(WATCHBELL).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// It ended with this code and one sentence, which says this.
#[track_caller]
fn check_refused(output: &Output, code: i32, said: &str) {
    let sentence = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(sentence.starts_with("watchbell: ") && sentence.lines().count() == 1, "{sentence}");
    assert!(sentence.contains(said), "{sentence}");
    assert_eq!(stdout(output), "");
}

#[track_caller]
fn check_fine(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
}

#[test]
fn cron_next_gives_programs_an_array_of_instants() {
    let args = ["--tz", "Europe/Berlin", "--from", "2027-03-27T12:00:00Z", "--count", "2"];
    let next = [&["cron", "next", "30 2 * * *", "--output", "json"], &args[..]].concat();
    let instants: Value = serde_json::from_str(&check_fine(&watchbell(&next))).unwrap();
    // On 28 March clocks go from 02:00 to 03:00, at 01:00 UTC; on the 29th 02:30 is 00:30 UTC.
    assert_eq!(instants, json!(["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]));
}

#[test]
fn cron_next_gives_people_both_clocks_and_the_version_of_the_zones() {
    let args = ["--tz", "Asia/Kolkata", "--from", "2026-01-01T00:00:00Z", "--count", "1"];
    let said = check_fine(&watchbell(&[&["cron", "next", "@daily"], &args[..]].concat()));
    assert!(said.contains("Asia/Kolkata (tzdata 2"), "{said}");
    assert!(said.contains("2026-01-01T18:30:00Z       2026-01-02 00:00:00 +05:30"), "{said}");
}

#[test]
fn cron_next_reads_quartz_when_told_so() {
    let pattern = ["cron", "next", "0 0 12 ? * 6L", "--dialect", "quartz", "--output", "json"];
    let args = ["--from", "2026-11-01T00:00:00Z", "--count", "1"];
    let said = check_fine(&watchbell(&[&pattern, &args[..]].concat()));
    assert_eq!(said, "[\"2026-11-27T12:00:00Z\"]\n", "the last Friday of November");
}

#[test]
fn cron_explain_says_what_a_pattern_means_and_what_clocks_do_to_it() {
    let args = ["cron", "explain", "30 2 * * *", "--tz", "Europe/Berlin"];
    let said = check_fine(&watchbell(&args));
    assert!(said.starts_with("At 02:30 every day.\nOn "), "{said}");
    for sentence in [
        "clocks in Europe/Berlin go forward from 02:00 to 03:00: 02:30 does not come, and it fires at 03:00 instead.\n",
        "clocks in Europe/Berlin go back from 03:00 to 02:00: 02:30 comes twice, and it fires the first time only.\n",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
    let said = check_fine(&watchbell(&["cron", "explain", "*/15 * * * *", "--tz=Europe/Berlin"]));
    assert!(said.starts_with("Every 15 minutes.\nOn "), "{said}");
    assert_eq!(said.matches(": it goes on at its usual pace.\n").count(), 2, "{said}");
    let said = check_fine(&watchbell(&["cron", "explain", "30 2 * * *", "--tz=Asia/Kolkata"]));
    let not_set = "Clocks in Asia/Kolkata are not set forward or back.";
    assert_eq!(said, format!("At 02:30 every day.\n{not_set}\n"));
    let said = check_fine(&watchbell(&["cron", "explain", "30 2 * * *"]));
    assert_eq!(said, "At 02:30 every day.\n", "UTC goes without saying");
}

#[test]
fn cron_explain_says_how_an_interval_goes() {
    let said = check_fine(&watchbell(&["cron", "explain", "@every 90s"]));
    let every = "Every 1 minute 30 seconds, however clocks are set.";
    assert_eq!(said, format!("{every} When it begins comes from the trigger's name.\n"));
    let said = check_fine(&watchbell(&["cron", "explain", "@every 90s", "--name", "hello"]));
    let named = format!("{every} For a trigger named \"hello\" it comes next at 2");
    assert!(said.starts_with(&named), "{said}");
}

#[test]
fn cron_explain_gives_programs_an_object() {
    let explain = |pattern| watchbell(&["cron", "explain", pattern, "--output", "json"]);
    let said: Value = serde_json::from_str(&check_fine(&explain("0 0 1 1 *"))).unwrap();
    assert_eq!((&said["pattern"], &said["tz"]), (&json!("0 0 1 1 *"), &json!("UTC")));
    assert_eq!(said["sentences"], json!(["At 00:00 on 1 January."]));
    assert!(said["next"].as_str().unwrap().ends_with("-01-01T00:00:00Z"), "{said}");
    let never = explain("0 0 30 2 *");
    let said: Value = serde_json::from_str(&stdout(&never)).unwrap();
    assert_eq!((never.status.code(), &said["next"]), (Some(2), &Value::Null));
}

#[test]
fn a_pattern_that_never_comes_is_told_so() {
    let never = watchbell(&["cron", "explain", "0 0 30 2 *"]);
    assert_eq!(
        (never.status.code(), stdout(&never).as_str()),
        (Some(2), "At 00:00 on 30 February.\n")
    );
    let said = stderr(&never);
    assert!(said.starts_with("watchbell: the pattern never comes: no date from 2"), "{said}");
    assert!(!said.contains("quiet"), "{said}");
}

#[test]
fn cron_next_begins_with_the_instant_that_is_given() {
    let args = ["--from", "2027-01-15T00:00:00Z", "--count", "1", "--output", "json"];
    let said = check_fine(&watchbell(&[&["cron", "next", "@daily"], &args[..]].concat()));
    assert_eq!(said, "[\"2027-01-15T00:00:00Z\"]\n");
}

#[test]
fn a_bad_pattern_is_refused_with_a_mark_below_the_place() {
    let refused = watchbell(&["cron", "next", "0 25 * * *"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.starts_with("watchbell: hour, character 3: 25 is too large; 0 to 23"), "{said}");
    assert!(said.ends_with("\n  0 25 * * *\n    ^\n"), "{said}");
    for (args, what) in [
        (["cron", "next", "0 0 30 2 *", "--tz=UTC"], "the pattern never comes"),
        (
            ["cron", "next", "0 0 * * *", "--tz=Mars/Olympus"],
            "--tz: \"Mars/Olympus\" is no time zone",
        ),
        (["cron", "next", "0 0 * * *", "--from=tomorrow"], "--from: \"tomorrow\" is no instant"),
    ] {
        check_refused(&watchbell(&args), 2, what);
    }
}

/// Puts values into the store in `dir`, and closes it.
fn put(dir: &Path, entries: &[(&str, &[u8])]) {
    put_with(dir, Sizes::default(), entries);
}

fn put_with(dir: &Path, sizes: Sizes, entries: &[(&str, &[u8])]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = Store::new(FileStore::open_or_create(dir, sizes).unwrap());
    for (key, value) in entries {
        let commit = Commit::new().put(Key::new(*key).unwrap(), value.to_vec());
        runtime.block_on(store.commit(commit)).unwrap();
    }
}

/// The keys that are left in the store in `dir`, at most a page of them.
fn keys(dir: &Path) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = Store::new(FileStore::open_existing(dir, Sizes::default()).unwrap());
    let page = runtime.block_on(store.scan(Range::all(), 1_000)).unwrap();
    page.entries.into_iter().map(|entry| entry.key.to_string()).collect()
}

#[test]
fn a_check_of_a_new_store_finds_all_well_and_leaves_nothing() {
    let (_keep, dir) = place();
    let output = watchbell(&["store", "check", &url(&dir), "--seconds", "1", "--output", "json"]);
    let report: Value = serde_json::from_str(&check_fine(&output)).unwrap();
    assert_eq!(stderr(&output), "", "nobody watches, so nothing moves");
    assert_eq!((&report["fine"], &report["entries"]), (&json!(true), &json!(0)));
    let clauses = report["clauses"].as_array().unwrap();
    assert_eq!(clauses.len(), store::conformance::CLAUSES.len());
    for clause in clauses {
        let well = ["held", "not applicable"].map(|result| json!(result));
        assert!(well.contains(&clause["result"]), "{clause}");
    }
    let speeds = report["speeds"].as_array().unwrap();
    assert_eq!(speeds.len(), 3);
    for speed in speeds {
        assert!(speed["per_second"].as_f64().unwrap() > 0.0, "{speed}");
        assert!(speed["p50_ms"].as_f64() <= speed["max_ms"].as_f64(), "{speed}");
    }
    assert_eq!(keys(&dir), Vec::<String>::new());
}

#[test]
fn a_check_counts_what_is_there_leaves_it_and_fits_eighty_columns() {
    let (_keep, dir) = place();
    put(&dir, &[("bell/noon", b"8"), ("bell/night", b"4")]);
    let output = watchbell(&["store", "check", &url(&dir), "--seconds", "1"]);
    let table = check_fine(&output);
    assert!(table.contains("2, all readable (21 bytes of keys and values)"), "{table}");
    for part in ["clause", "all_or_nothing", "held", "not applicable (", "p99.9 ms", "64 writers"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    // The sentences above the tables are folded on a terminal only.
    for line in table.lines().skip_while(|line| !line.is_empty()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(keys(&dir), ["bell/night", "bell/noon"]);
}

#[test]
fn what_a_killed_check_left_is_removed_by_the_next_one() {
    let (_dir, data) = place();
    put(&data, &[("scratch/1-0/clause/x", b"left"), ("scratch/1-0/~owner", b"1"), ("kept", b"")]);
    check_fine(&watchbell(&["store", "check", &url(&data), "--seconds", "0"]));
    assert_eq!(keys(&data), ["kept"]);
}

#[test]
fn a_directory_in_use_names_the_process_that_holds_it() {
    let (_keep, dir) = place();
    let _held = FileStore::open_or_create(&dir, Sizes::default()).unwrap();
    let holder = format!("process {}", std::process::id());
    for verb in ["check", "dump"] {
        check_refused(&watchbell(&["store", verb, &url(&dir)]), 3, &holder);
    }
}

#[test]
fn a_directory_without_permission_is_refused() {
    let (keep, dir) = place();
    fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o755)).unwrap();
    put(&dir, &[("k", b"v")]);
    let mut command = if is_root() {
        // Permissions do not hold for root: ask as nobody, with a binary that nobody can reach.
        let binary = keep.path().join("watchbell");
        // Copied by another process: whatever this one starts meanwhile would have the file open for writing for a
        // moment, and such a file cannot be run.
        let copied = Command::new("cp").arg("-p").arg(WATCHBELL).arg(&binary).status().unwrap();
        assert!(copied.success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).arg(binary);
        command
    } else {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(dir.join("lock"), fs::Permissions::from_mode(0o400)).unwrap();
        Command::new(WATCHBELL)
    };
    let output = command.args(["store", "check", &url(&dir)]).output().unwrap();
    check_refused(&output, 4, "no permission for");
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output().unwrap();
    user.stdout.trim_ascii() == b"0"
}

#[test]
fn a_bad_url_is_named_without_its_password() {
    check_refused(&watchbell(&["store", "check", "nowhere"]), 2, "\"nowhere\" is not a store URL");
    let output = watchbell(&["store", "dump", "mongodb://me:hunter2@db/x"]);
    check_refused(&output, 2, "\"mongodb:…\" is not a store URL");
    assert!(!stderr(&output).contains("hunter2"));
}

#[test]
fn a_wrong_command_line_says_so() {
    for args in [
        &["store", "check"][..],
        &["store", "chekc", "memory:"],
        &["store", "check", "memory:", "--seconds", "soon"],
        &["--log", "loud", "store", "check", "memory:"],
        &[],
    ] {
        let output = watchbell(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains("--help"), "{}", stderr(&output));
    }
}

#[test]
fn a_newer_format_is_refused() {
    let (_keep, dir) = place();
    put(&dir, &[("k", b"v")]);
    let json = r#"{"format":3,"id":7,"shape":"new"}"#;
    let text = format!("{json}\n{:016x}\n", xxh3_64(json.as_bytes()));
    fs::write(dir.join("format"), text).unwrap();
    for verb in ["check", "dump"] {
        check_refused(&watchbell(&["store", verb, &url(&dir)]), 4, "upgrade Watchbell");
    }
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_is() {
    let (_keep, dir) = place();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("letter.txt"), "dear").unwrap();
    check_refused(&watchbell(&["store", "check", &url(&dir)]), 4, "holds no Watchbell store");
}

#[test]
fn a_damaged_log_is_told_from_everything_else() {
    let (_keep, dir) = place();
    put(&dir, &[("k1", b"a telling value"), ("k2", b"2"), ("k3", b"3")]);
    fs::remove_dir_all(dir.join("index")).unwrap();
    flip_a_bit(&dir.join("log"), b"a telling value");
    for verb in ["check", "dump"] {
        check_refused(&watchbell(&["store", verb, &url(&dir)]), 5, "the store is damaged");
    }
}

#[test]
fn damage_deep_in_a_table_shows_once_everything_is_read() {
    let (_keep, dir) = place();
    let tables_soon = Sizes { segment_bytes: 256 * 1024, layer_bytes: 16 * 1024 };
    let names: Vec<String> = (0..200).map(|number| format!("k{number:03}")).collect();
    // Nothing that can be packed.
    let value: Vec<u8> =
        (0..125_u64).flat_map(|n| xxh3_64(&n.to_le_bytes()).to_le_bytes()).collect();
    let entries: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), value.as_slice())).collect();
    put_with(&dir, tables_soon, &entries);
    flip_a_bit_far_back(&dir.join("index/tables"), &value[..8]);
    for verb in ["check", "dump"] {
        check_refused(&watchbell(&["store", verb, &url(&dir)]), 5, "the store is damaged");
    }
}

/// Damages this value where it stands last in each file that is longer than the blocks that are read at open: damage
/// there would be mended from the log at once.
fn flip_a_bit_far_back(dir: &Path, value: &[u8]) {
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.len() > 16_000 {
            let at = bytes.windows(value.len()).rposition(|window| window == value).unwrap();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// Damages this value where it stands in a file of the directory.
fn flip_a_bit(dir: &Path, value: &[u8]) {
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("the value is nowhere in {}", dir.display());
}

const DUMPED: [(&str, &[u8]); 4] = [
    ("a/binary", &[0xff, 0x00, 0x10]),
    ("a/json", b"{\n  \"format\": 1, \"bells\": [1.50] }"),
    ("a/text", "acht\nGläser".as_bytes()),
    ("b/other", b""),
];

#[test]
fn a_dump_shows_json_text_and_bytes_for_people() {
    let (_keep, dir) = place();
    put(&dir, &DUMPED);
    let table = check_fine(&watchbell(&["store", "dump", &url(&dir)]));
    let expected = "\
key       version  value
a/binary        1  ff0010 (3 bytes in hexadecimal)
a/json          2  {\"format\":1,\"bells\":[1.50]}
a/text          3  acht\\nGläser
b/other         4  (empty)
";
    assert_eq!(table, expected);
}

#[test]
fn a_dump_is_one_json_object_per_line_for_programs() {
    let (_keep, dir) = place();
    put(&dir, &DUMPED);
    let lines = check_fine(&watchbell(&["store", "dump", &url(&dir), "a/", "--output", "json"]));
    let entries: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        json!({ "key": "a/binary", "version": 1, "value": { "base16": "ff0010" } }),
        json!({ "key": "a/json", "version": 2, "value": { "format": 1, "bells": [1.5] } }),
        json!({ "key": "a/text", "version": 3, "value": { "text": "acht\nGläser" } }),
    ];
    assert_eq!(entries, expected);
}

#[test]
fn a_dump_into_a_pipe_cuts_nothing() {
    let (_keep, dir) = place();
    let long = "bell".repeat(1_000);
    put(&dir, &[("k", long.as_bytes())]);
    assert!(check_fine(&watchbell(&["store", "dump", &url(&dir)])).contains(&long));
}

#[test]
fn a_dump_of_nothing_says_so() {
    let (_keep, dir) = place();
    put(&dir, &[("k", b"v")]);
    let output = watchbell(&["store", "dump", &url(&dir), "other/"]);
    assert_eq!(check_fine(&output), "");
    assert_eq!(stderr(&output), "watchbell: no key in the store begins with \"other/\"\n");
}

#[test]
fn a_dump_of_a_missing_store_is_refused_and_makes_none() {
    let (_keep, dir) = place();
    check_refused(&watchbell(&["store", "dump", &url(&dir)]), 4, "there is no store in");
    assert!(!dir.exists());
}

#[test]
fn a_dump_whose_reader_has_had_enough_ends_quietly() {
    let (_keep, dir) = place();
    // More than any pipe holds, so that the dump must notice.
    let large = vec![b'x'; 512 * 1024];
    let names: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let entries: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), large.as_slice())).collect();
    put(&dir, &entries);
    let mut dump = Command::new(WATCHBELL)
        .args(["store", "dump", &url(&dir)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(dump.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("key"), "{first}");
    let output = dump.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn without_a_server_one_is_told_how_to_start_one() {
    // Nothing listens on port 1.
    let nobody = ["--server", "http://127.0.0.1:1"];
    for verb in [
        &["trigger", "list"][..],
        &["trigger", "show", "hello"],
        &["trigger", "delete", "hello", "--yes"],
        &["trigger", "cancel", "hello", "--yes"],
        &["run", "list"],
        &["scheduler", "status"],
    ] {
        let output = watchbell(&[verb, &nobody].concat());
        check_refused(&output, 3, "no server answers at http://127.0.0.1:1");
        assert!(stderr(&output).contains("start one (watchbell dev"), "{}", stderr(&output));
    }
    let output = watchbell(&["trigger", "list", "--server", "localhost"]);
    check_refused(&output, 2, "is no server URL: it begins with http://");
}

#[test]
fn nothing_is_deleted_or_cancelled_without_a_word_where_nobody_can_be_asked() {
    for (verb, said) in [("delete", "nothing was deleted: "), ("cancel", "nothing was cancelled: ")]
    {
        let typed = ["trigger", verb, "hello", "--server", "http://127.0.0.1:1"];
        let output = Command::new(WATCHBELL).args(typed).stdin(Stdio::null()).output().unwrap();
        check_refused(&output, 2, said);
        assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    }
}

#[test]
fn every_shell_can_complete_the_words() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = check_fine(&watchbell(&["completions", shell]));
        for word in ["watchbell", "backfill", "dry-run", "crontab"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(watchbell(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn a_trigger_in_a_file_that_is_none_is_refused_before_anybody_is_asked() {
    let (keep, _) = place();
    let file = keep.path().join("trigger.json");
    let arg = file.to_str().unwrap();
    check_refused(&watchbell(&["trigger", "create", "--file", arg]), 2, "No such file");
    fs::write(&file, r#"{"webhook": {"url": "http://x.example"}, "overlap": "maybe"}"#).unwrap();
    check_refused(&watchbell(&["trigger", "create", "--file", arg]), 2, "unknown variant `maybe`");
}

#[test]
fn help_has_examples_and_exit_codes() {
    for verb in [
        &[][..],
        &["store", "check"],
        &["store", "dump"],
        &["trigger", "create"],
        &["trigger", "list"],
        &["trigger", "show"],
        &["trigger", "explain"],
        &["trigger", "next"],
        &["trigger", "pause"],
        &["trigger", "resume"],
        &["trigger", "cancel"],
        &["trigger", "run"],
        &["trigger", "delete"],
        &["run", "list"],
        &["run", "show"],
        &["scheduler", "status"],
        &["scheduler", "confirm-time"],
    ] {
        let help = check_fine(&watchbell(&[verb, &["--help"]].concat()));
        for part in [
            "Examples:\n  ",
            "watchbell ",
            "Exit codes:\n  0  fine",
            "  5  the store, or a backup, is damaged",
        ] {
            assert!(help.contains(part), "{help}");
        }
    }
    let help = check_fine(&watchbell(&["--help"]));
    let said = "Watchbell: rings on time, takes turns, and lets exactly one hold the watch\n";
    assert!(help.starts_with(said), "{help}");
    assert!(check_fine(&watchbell(&["--version"])).starts_with("watchbell "));
}

#[test]
fn the_log_goes_to_stderr_as_much_of_it_as_was_asked_for() {
    let (_keep, dir) = place();
    put(&dir, &[("k", b"v")]);
    let dump_with_damaged_index = |level: &str| {
        fs::write(dir.join("index/current"), "no index").unwrap();
        let mut command = Command::new(WATCHBELL);
        command.args(["store", "dump", &url(&dir)]).env("WATCHBELL_LOG_LEVEL", level);
        let output = command.output().unwrap();
        assert_eq!(check_fine(&output), "key  version  value\nk          1  v\n");
        stderr(&output)
    };
    let told = dump_with_damaged_index("warn");
    assert!(told.contains("WARN") && !told.contains('\x1b'), "{told}");
    assert_eq!(dump_with_damaged_index("error"), "");
}

/// All of our files that end so, below a directory.
fn files(dir: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
}

#[test]
fn every_test_that_a_page_for_newcomers_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    let code: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut pages = Vec::new();
    files(&root.join("docs"), ".md", &mut pages);
    pages.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("coming-from-"));
    assert!(!pages.is_empty());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let rows =
            text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
        let mut count = 0;
        for row in rows {
            let named = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            let tests: Vec<_> = named.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty(), "{}: no test is named: {row}", page.display());
            for test in tests {
                let is_there = code.contains(&format!("fn {test}("));
                assert!(is_there, "{}: there is no test {test}", page.display());
                count += 1;
            }
        }
        assert!(count > 20, "{}: {count}", page.display());
    }
}
