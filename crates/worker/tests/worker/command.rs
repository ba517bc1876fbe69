//! Commands that do what they should, and commands that do not want to end.

use std::path::Path;

use client::output::OutputStream::{Stderr, Stdout};
use client::worker::RunResult;
use process::Limits;
use rig::machine;
use serde_json::json;
use worker::EndReason;
use worker::command::{AllowList, CommandPolicy, Commands};

use crate::stage::{
    Carried, GUARD, LONG, carry, carry_run, hands, is_root, isolations, policy, run_with, sh,
};

/// Programs that are hard to end, and how many processes each has at least.
const STUBBORN: [(&str, usize, &str); 6] = [
    ("deaf", 2, "trap '' TERM INT HUP; echo up; while :; do sleep 1000; done"),
    (
        "forked twice",
        3,
        "trap '' TERM; ( ( sleep 1000 & ) & ); echo up; while :; do sleep 1000; done",
    ),
    (
        "in sessions of their own",
        5,
        "trap '' TERM HUP; for i in 1 2; do ( setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & ); done; \
         echo up; while :; do sleep 1000; done",
    ),
    (
        "without descriptors",
        2,
        "echo up; for fd in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; trap '' TERM; \
         while :; do sleep 1000; done",
    ),
    ("that prints without end", 2, "trap '' TERM; echo up; yes & yes >&2"),
    (
        "in the background",
        2,
        "trap '' TERM; echo up; (sleep 1000; sleep 1000) & wait; wait; sleep 1000",
    ),
];

#[tokio::test]
async fn a_command_has_its_arguments_variables_directory_and_input() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(policy(isolation));
        let script = "echo \"$@\"; echo \"$A $WATCHBELL_RUN_ID $WATCHBELL_ATTEMPT $WATCHBELL_TOKEN \
            $WATCHBELL_SCHEDULED_AT $WATCHBELL_QUEUE $LANG\"; pwd; cat";
        let command = json!({
            "argv": ["/bin/sh", "-c", script, "sh", "one two", "", "three"],
            "env": {"A": "1=2"}, "dir": "/usr", "stdin": "read\n",
        });
        let (outcome, carried) = carry(&hands, command).await;
        assert_eq!(outcome.result, RunResult::Succeeded, "{isolation}: {outcome:?}");
        assert_eq!(outcome.exit_code, Some(0));
        let expected =
            "one two  three\n1=2 run_1 2 17 2027-01-15T09:00:00Z mail C.UTF-8\n/usr\nread\n";
        assert_eq!(carried.printed(Stdout), expected, "{isolation}");
    }
}

#[tokio::test]
async fn a_command_reads_the_payload_of_its_run_if_it_says_nothing_else() {
    let _share = machine::waits().await;
    let hands = hands(policy(isolations()[0]));
    let run = json!({"command": {"argv": ["/bin/cat"]}, "payload": {"to": ["ann"]}});
    let (_, carried) = carry_run(&hands, run_with(&run)).await;
    assert_eq!(carried.printed(Stdout), r#"{"to":["ann"]}"#);
    let run = json!({"command": {"argv": ["/bin/cat"]}});
    let (outcome, carried) = carry_run(&hands, run_with(&run)).await;
    assert_eq!((outcome.exit_code, carried.printed(Stdout)), (Some(0), String::new()));
}

#[tokio::test]
async fn an_exit_code_is_told_with_the_last_line_on_standard_error() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(policy(isolation));
        let script = "echo out; echo warning >&2; echo 'disk full' >&2; exit 3";
        let (outcome, carried) = carry(&hands, sh(script)).await;
        assert_eq!(outcome.error.as_deref(), Some("exit code 3: disk full"), "{isolation}");
        assert_eq!((outcome.result, outcome.exit_code), (RunResult::Failed, Some(3)));
        assert!(!outcome.final_failure);
        assert_eq!(carried.printed(Stdout), "out\n");
        assert_eq!(carried.printed(Stderr), "warning\ndisk full\n");
        let (outcome, _) = carry(&hands, sh("kill -SEGV $$")).await;
        assert_eq!(outcome.error.as_deref(), Some("ended by SIGSEGV"), "{isolation}");
    }
}

#[tokio::test]
async fn what_does_not_want_to_end_ends_after_its_grace_when_it_is_cancelled() {
    let _share = machine::works().await;
    for isolation in isolations() {
        let hands = hands(policy(isolation));
        for (kind, len, script) in STUBBORN {
            let mut carried = Carried::begin(&hands, sh(script));
            carried.mark.grown_to(len).await;
            carried.tell(EndReason::Cancelled);
            let outcome = carried.outcome().await;
            assert_eq!(outcome.result, RunResult::Cancelled, "{isolation}, {kind}: {outcome:?}");
            let why = outcome.error.unwrap();
            assert!(why.contains("killed after its grace"), "{isolation}, {kind}: {why}");
        }
    }
}

#[tokio::test]
async fn a_command_that_heeds_sigterm_ends_by_itself() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(CommandPolicy { grace: LONG, ..policy(isolation) });
        let script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done";
        let mut carried = Carried::begin(&hands, sh(script));
        carried.prints("up").await;
        carried.tell(EndReason::Stopping);
        let outcome = carried.outcome().await;
        assert_eq!((outcome.result, outcome.exit_code), (RunResult::Stopped, Some(4)));
        assert!(carried.printed(Stdout).ends_with("bye\n"), "{isolation}");
    }
}

#[tokio::test]
async fn what_took_too_long_has_failed_and_says_how_long_it_might_have_taken() {
    let _share = machine::waits().await;
    let hands = hands(policy(isolations()[0]));
    let run = json!({"command": sh("echo stuck >&2; echo up; sleep 1000"), "timeout_ms": 30_000});
    let context = worker::Context::detached(run_with(&run));
    let ended = async {
        let outcome = hands.carry_out(context.clone());
        let told = async {
            rig::until("it prints both", rig::PATIENCE, async || {
                (context.printed().len() == 2).then_some(())
            })
            .await;
            context.tell_to_end(EndReason::TimedOut);
        };
        tokio::join!(outcome, told).0
    };
    let outcome = ended.await;
    assert_eq!(outcome.error.as_deref(), Some("timed out after 30s: stuck"));
    assert_eq!(outcome.result, RunResult::Failed);
}

#[tokio::test]
async fn a_run_that_is_lost_is_killed_without_a_grace_also_while_it_has_one() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(CommandPolicy { grace: LONG, ..policy(isolation) });
        for first in [EndReason::Lost, EndReason::Cancelled, EndReason::Unconfirmed] {
            let mut carried = Carried::begin(&hands, sh(STUBBORN[0].2));
            carried.prints("up").await;
            carried.tell(first);
            carried.tell(EndReason::Lost);
            let outcome = carried.outcome().await;
            assert_eq!(outcome.result, RunResult::Stopped, "{isolation}, {first:?}");
        }
    }
}

#[tokio::test]
async fn nobody_has_a_grace_any_more_when_the_worker_is_in_a_hurry() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(CommandPolicy { grace: LONG, ..policy(isolation) });
        let mut told = Carried::begin(&hands, sh(STUBBORN[0].2));
        let mut untold = Carried::begin(&hands, sh(STUBBORN[0].2));
        told.prints("up").await;
        untold.prints("up").await;
        told.tell(EndReason::Cancelled);
        hands.hurry();
        assert_eq!(told.outcome().await.result, RunResult::Cancelled, "{isolation}");
        assert_eq!(untold.outcome().await.result, RunResult::Stopped, "{isolation}");
    }
}

#[tokio::test]
async fn a_child_that_keeps_the_output_open_does_not_hold_up_the_outcome() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = hands(policy(isolation));
        let (outcome, carried) = carry(&hands, sh("setsid sleep 1000 & echo done")).await;
        assert_eq!(outcome.result, RunResult::Succeeded, "{isolation}");
        assert_eq!(carried.printed(Stdout), "done\n");
    }
}

#[tokio::test]
async fn a_command_that_forks_without_end_meets_its_limit_and_is_ended() {
    if !is_root() {
        return;
    }
    let _share = machine::works().await;
    for isolation in isolations() {
        let limits = Limits { processes_max: Some(30), ..Limits::default() };
        let hands = hands(CommandPolicy { limits, ..policy(isolation) });
        let mut carried = Carried::begin(&hands, json!({"argv": [GUARD, "bomb"]}));
        carried.mark.grown_to(25).await;
        carried.tell(EndReason::Cancelled);
        assert_eq!(carried.outcome().await.result, RunResult::Cancelled, "{isolation}");
    }
}

/// So much is printed that a worker which kept it would be seen to.
const MUCH: u64 = 1 << 30;

#[tokio::test]
async fn a_command_that_prints_a_gigabyte_takes_no_memory_and_its_last_words_are_kept() {
    let _share = machine::works().await;
    let hands = hands(policy(isolations()[0]));
    let before = resident_kib();
    let script = format!("head -c {MUCH} /dev/zero; echo; echo last words");
    let (outcome, carried) = carry(&hands, sh(&script)).await;
    assert_eq!(outcome.result, RunResult::Succeeded);
    let chunks = carried.context.printed();
    let kept: usize = chunks.iter().map(|chunk| chunk.bytes().unwrap().len()).sum();
    assert!(kept <= 64 * 1024, "{kept}");
    let last = chunks.last().unwrap();
    assert_eq!(last.offset + last.bytes().unwrap().len() as u64, MUCH + 12, "all was counted");
    assert!(last.bytes().unwrap().ends_with(b"\nlast words\n"));
    let after = resident_kib();
    assert!(after < before + 32 * 1024, "{before} KiB before, {after} KiB after");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Some programs do by their name what they do.
#[tokio::test]
async fn a_link_that_is_allowed_is_started_under_its_own_name() {
    let _share = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().canonicalize().unwrap().join("other-name");
    std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
    let allow = AllowList::listed(vec![link.clone()]).unwrap();
    let hands = hands(CommandPolicy { allow, ..policy(isolations()[0]) });
    let (outcome, carried) = carry(&hands, json!({"argv": [link, "-c", "echo $0"]})).await;
    assert_eq!(outcome.result, RunResult::Succeeded, "{outcome:?}");
    assert_eq!(carried.printed(Stdout), format!("{}\n", link.display()));
}

#[tokio::test]
async fn lines_of_progress_that_are_none_are_counted_and_end_nothing() {
    let _share = machine::waits().await;
    let hands = hands(policy(isolations()[0]));
    let script = "for line in '10 one' nonsense '20' '- three' 101; do echo \"$line\"; done >&$WATCHBELL_PROGRESS_FD";
    let (outcome, _) = carry(&hands, sh(script)).await;
    assert_eq!(outcome.result, RunResult::Succeeded);
    assert_eq!(hands.counts().progress_lines_left_out, 2);
}

#[tokio::test]
async fn commands_and_weak_kills_are_counted() {
    let _share = machine::waits().await;
    for isolation in isolations() {
        let hands = Commands::through(Path::new(GUARD), policy(isolation), None);
        assert_eq!(hands.probe().await.unwrap(), isolation);
        let hands = std::sync::Arc::new(hands);
        for _ in 0..2 {
            carry(&hands, sh("true")).await;
        }
        let counts = hands.counts();
        let weak = if isolation.is_weak() { 2 } else { 0 };
        assert_eq!((counts.started, counts.weak, counts.refused), (2, weak, 0), "{isolation}");
    }
}
