//! What a program gets, prints and leaves.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use process::{
    Cause, End, Fault, Isolation, PROGRESS_VARIABLE, Program, StartError, Started, User,
};

use crate::stage::{As, Mark, NOBODY, Supervisor, isolations, launcher, sh, start};

/// Runs a program to its end, and gives what it printed.
async fn printed(isolation: Isolation, program: &Program) -> String {
    let Started { mut tree, mut stdout, mut stderr, .. } = start(isolation, program).await;
    let (out, err) = (stdout.read_to_end().await.unwrap(), stderr.read_to_end().await.unwrap());
    let outcome = tree.ended().await.unwrap();
    let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
    assert_eq!(outcome.end, End::Exited(0), "{isolation}: {err}");
    out
}

#[tokio::test]
async fn an_exit_code_is_told() {
    for isolation in isolations() {
        let Started { mut tree, .. } = start(isolation, &sh("exit 7")).await;
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(7), Cause::Itself), "{isolation}");
        assert_eq!(outcome.isolation, isolation);
        assert_eq!(tree.ended().await, Ok(outcome), "it says the same again");
    }
}

#[tokio::test]
async fn the_signal_that_ended_a_program_is_told() {
    for isolation in isolations() {
        let Started { mut tree, .. } = start(isolation, &sh("kill -USR1 $$")).await;
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Signaled(10), Cause::Itself), "{isolation}");
    }
}

#[tokio::test]
async fn output_and_errors_come_apart() {
    for isolation in isolations() {
        let program = sh("echo out; echo err >&2");
        let Started { tree: _tree, mut stdout, mut stderr, .. } = start(isolation, &program).await;
        assert_eq!(stdout.read_to_end().await.unwrap(), b"out\n");
        assert_eq!(stderr.read_to_end().await.unwrap(), b"err\n");
    }
}

#[tokio::test]
async fn progress_has_a_descriptor_of_its_own() {
    for isolation in isolations() {
        let program = sh(&format!("echo half >&${PROGRESS_VARIABLE}"));
        let Started { tree: _tree, mut progress, mut stdout, .. } =
            start(isolation, &program).await;
        assert_eq!(progress.read_to_end().await.unwrap(), b"half\n", "{isolation}");
        assert_eq!(stdout.read_to_end().await.unwrap(), b"");
    }
}

#[tokio::test]
async fn standard_input_is_what_was_given_or_nothing() {
    for isolation in isolations() {
        let bytes: Vec<u8> = (0..3_000_000).map(|at: u32| at.to_le_bytes()[1]).collect();
        let count = sh("wc -c").stdin(bytes);
        assert_eq!(printed(isolation, &count).await.trim(), "3000000", "{isolation}");
        assert_eq!(printed(isolation, &sh("wc -c")).await.trim(), "0", "{isolation}");
    }
}

#[tokio::test]
async fn nothing_is_inherited() {
    for isolation in isolations() {
        let program = Program::new("/usr/bin/env").variable("ONLY", "this").directory("/usr");
        let all = printed(isolation, &program).await;
        let mut all: Vec<&str> = all.lines().collect();
        all.retain(|line| !line.starts_with(PROGRESS_VARIABLE));
        assert_eq!(all, ["ONLY=this"], "{isolation}");
        assert_eq!(printed(isolation, &sh("pwd").directory("/usr")).await, "/usr\n");
    }
}

#[tokio::test]
async fn a_program_has_its_four_descriptors_and_no_others() {
    for isolation in isolations() {
        let listed = printed(isolation, &Program::new("/bin/ls").argument("/proc/self/fd")).await;
        // The fifth is the directory that is listed.
        assert_eq!(listed.lines().count(), 5, "{isolation}: {listed}");
    }
}

#[tokio::test]
async fn a_program_may_open_as_many_files_as_its_supervisor_was_started_with() {
    let words = ["sh", "-c", "ulimit -S -n 200 && exec \"$@\"", "sh"];
    for isolation in isolations() {
        let mut supervisor = Supervisor::start_through(
            &words,
            As::Me,
            isolation.word(),
            "ulimit -S -n; ulimit -H -n",
        );
        supervisor.started().await;
        assert_eq!(supervisor.line().await, "200", "{isolation}");
        assert_ne!(supervisor.line().await, "200", "{isolation}: it may raise it itself");
    }
}

#[tokio::test]
async fn a_program_begins_with_no_signal_blocked_or_ignored_but_what_its_supervisor_was_to_ignore()
{
    // Under `nohup`, and behind `&` in a script, that is something.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let own = u64::from_str_radix(own, 16).unwrap();
    for isolation in isolations() {
        let program =
            Program::new("/bin/grep").arguments(["-E", "Sig(Blk|Ign)", "/proc/self/status"]);
        let shown = printed(isolation, &program).await;
        let masks: Vec<u64> = shown
            .lines()
            .map(|line| u64::from_str_radix(line.split_once('\t').unwrap().1, 16).unwrap())
            .collect();
        // Beyond 31 are those that the C library has to itself, and ignores while it starts a process.
        let [0, ignored] = masks[..] else { panic!("{isolation}: {shown}") };
        assert_eq!(ignored & 0x7fff_ffff & !own, 0, "{isolation}: {shown}");
    }
}

#[tokio::test]
async fn a_program_finds_itself_in_proc() {
    for isolation in isolations() {
        let shown = printed(isolation, &sh("echo $$; sh -c 'echo $PPID'; readlink /proc/self/exe >/dev/null && cut -d' ' -f4 /proc/self/stat")).await;
        let ids: Vec<&str> = shown.lines().collect();
        assert_eq!(ids.len(), 3, "{isolation}: {shown}");
        assert!(ids.iter().all(|id| *id == ids[0]), "{isolation}: {shown}");
    }
}

#[tokio::test]
async fn a_program_may_be_somebody_without_groups() {
    if !rig::is_root() {
        return;
    }
    let nobody = User { uid: NOBODY, gid: NOBODY };
    for isolation in [Isolation::Namespace, Isolation::Cgroup, Isolation::Group] {
        let program = sh("id -u; id -g; id -G; grep CapEff /proc/self/status").user(nobody);
        let shown = printed(isolation, &program).await;
        let expected = "65534\n65534\n65534\nCapEff:\t0000000000000000\n";
        assert_eq!(shown, expected, "{isolation}");
    }
}

#[tokio::test]
async fn what_cannot_be_started_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let plain = file("plain", "", 0o644);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    let missing = dir.path().join("missing");
    for isolation in isolations() {
        let (launcher, mark) = (launcher(isolation), Mark::new());
        for (program, expected, path, kind) in [
            (Program::new(&missing), Fault::Program, &missing, ErrorKind::NotFound),
            (Program::new(&plain), Fault::Program, &plain, ErrorKind::PermissionDenied),
            (Program::new(&orphan), Fault::Interpreter, &orphan, ErrorKind::NotFound),
            (sh("").directory(&missing), Fault::Directory, &missing, ErrorKind::NotFound),
        ] {
            let refused = launcher.start(&mark.on(program)).await.unwrap_err();
            assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
            let StartError::NotStartable { fault, path: named, why } = refused else {
                panic!("{isolation}: {refused}")
            };
            assert_eq!((fault, &named, why.kind()), (expected, path, kind), "{isolation}: {why}");
        }
        assert_eq!(launcher.counts().started, 0);
    }
}

#[tokio::test]
async fn what_a_tree_used_is_counted_with_its_orphans() {
    for isolation in isolations() {
        // An orphan counts and is ended with the tree; the program has 64 MiB in memory for a while.
        let program = sh("(setsid sh -c 'while :; do :; done' &) ; \
            head -c 67108864 /dev/zero | tail -c 67108864 >/dev/null; \
            while [ $(cut -d' ' -f1 /proc/loadavg | wc -l) -lt 1 ]; do :; done; sleep 0.3");
        let Started { mut tree, .. } = start(isolation, &program).await;
        let outcome = tree.ended().await.unwrap();
        let usage = outcome.usage.expect("the shim counted");
        assert!(usage.memory_peak_bytes >= 64 << 20, "{isolation}: {usage:?}");
        assert!(usage.cpu_user + usage.cpu_system >= Duration::from_millis(20), "{usage:?}");
        assert!(outcome.duration >= Duration::from_millis(300), "{isolation}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_program_may_print_a_lot() {
    for isolation in isolations() {
        let program = sh("head -c 20000000 /dev/zero");
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
        loop {
            match stdout.read(&mut buffer).await.unwrap() {
                0 => break,
                len => all += len,
            }
        }
        assert_eq!(all, 20_000_000, "{isolation}");
        assert_eq!(tree.ended().await.unwrap().end, End::Exited(0));
    }
}

#[tokio::test]
async fn what_was_printed_is_there_after_the_end() {
    for isolation in isolations() {
        let Started { mut tree, mut stdout, .. } = start(isolation, &sh("echo last words")).await;
        tree.ended().await.unwrap();
        assert_eq!(stdout.read_to_end().await.unwrap(), b"last words\n", "{isolation}");
    }
}

#[tokio::test]
async fn a_program_may_have_another_name_than_its_path() {
    for isolation in isolations() {
        let program = Program::new("/bin/sh").arguments(["-c", "echo $0"]);
        assert_eq!(printed(isolation, &program.clone()).await, "/bin/sh\n", "{isolation}");
        assert_eq!(printed(isolation, &program.name("watch")).await, "watch\n", "{isolation}");
    }
}
