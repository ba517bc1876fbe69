//! Programs on descriptors of their supervisor's, and signals that are passed on to them.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use process::{Cause, End, PROGRESS_VARIABLE, Program, Signal, Started, Streams};

use crate::stage::{As, SUPERVISOR, Supervisor, isolations, launcher, sh, signal, start, stop};

/// Streams of which the output and error can be read again.
fn streams() -> (Streams, [File; 2]) {
    let [stdout, stderr] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    let stdin = File::open("/dev/null").unwrap().into();
    let of = |file: &tempfile::NamedTempFile| -> OwnedFd {
        File::options().append(true).open(file.path()).unwrap().into()
    };
    let given = Streams { stdin, stdout: of(&stdout), stderr: of(&stderr) };
    (given, [stdout.reopen().unwrap(), stderr.reopen().unwrap()])
}

fn text(file: &mut File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn a_program_prints_to_what_it_is_given_each_time_that_it_is_started() {
    for isolation in isolations() {
        let (given, [mut stdout, mut stderr]) = streams();
        for code in [3, 4] {
            let program = sh(&format!("cat; echo out; echo err >&2; exit {code}"));
            let tree = launcher(isolation).start_on(&given, &program).await;
            let outcome = tree.unwrap().ended().await.unwrap();
            let expected = (End::Exited(code), Cause::Itself);
            assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
            assert_eq!(outcome.kill_late, None, "{isolation}");
        }
        assert_eq!(text(&mut stdout), "out\nout\n", "{isolation}");
        assert_eq!(text(&mut stderr), "err\nerr\n", "{isolation}");
    }
}

#[tokio::test]
async fn a_program_on_streams_has_three_descriptors_and_no_progress() {
    for isolation in isolations() {
        let (given, [mut stdout, _]) = streams();
        let program = sh(&format!("echo ${PROGRESS_VARIABLE}; exec ls /proc/self/fd"));
        let tree = launcher(isolation).start_on(&given, &program).await;
        tree.unwrap().ended().await.unwrap();
        // The fourth is the directory that is listed.
        assert_eq!(text(&mut stdout), "\n0\n1\n2\n3\n", "{isolation}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_on_streams_is_an_error_that_names_it() {
    for isolation in isolations() {
        let (given, _) = streams();
        let missing = Program::new("/no/such/program");
        let refused = launcher(isolation).start_on(&given, &missing).await.unwrap_err();
        assert!(refused.to_string().contains("/no/such/program"), "{isolation}: {refused}");
    }
}

#[tokio::test]
async fn what_a_program_prints_comes_out_while_its_supervisor_is_stopped() {
    for isolation in isolations() {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        let script =
            format!("while [ ! -e {} ]; do sleep 0.01; done; echo out; exit 5", go.display());
        let words = ["env", "TEST_STREAMS=own"];
        let mut supervisor = Supervisor::start_through(&words, As::Me, isolation.word(), &script);
        supervisor.started().await;
        stop([supervisor.id()]).await;
        std::fs::write(go, "").unwrap();
        assert_eq!(supervisor.line().await, "out", "{isolation}");
        signal(supervisor.id(), Signal::CONT);
        assert_eq!(supervisor.line().await, "ended Exited(5) Itself", "{isolation}");
    }
}

#[tokio::test]
async fn signals_come_through_to_the_program_and_its_exit_code_comes_back() {
    let passed = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::WINCH,
        Signal::TERM,
    ];
    for isolation in isolations() {
        let program = Program::new(SUPERVISOR).argument("signals");
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        assert_eq!(stdout.read(&mut [0; 100]).await.unwrap(), "hears\n".len());
        let mut buffer = [0; 100];
        for signal in passed {
            // Waiting for each keeps their order.
            tree.signal(signal);
            let len = stdout.read(&mut buffer).await.unwrap();
            let heard = std::str::from_utf8(&buffer[..len]).unwrap();
            assert_eq!(heard, format!("{}\n", signal.as_raw()), "{isolation}");
        }
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(7), Cause::Itself), "{isolation}");
    }
}

/// Whoever asks for nothing but a signal to be passed on has not asked for an end.
#[tokio::test]
async fn a_signal_that_is_passed_on_is_heard_by_the_program_alone() {
    for isolation in isolations() {
        let script = "trap 'echo heard; kill $!; exit 6' USR1; \
            (trap 'echo too' USR1; echo ready; while :; do sleep 0.01; done) & \
            while :; do wait; done";
        let Started { mut tree, mut stdout, .. } = start(isolation, &sh(script)).await;
        assert_eq!(stdout.read(&mut [0; 100]).await.unwrap(), "ready\n".len());
        tree.signal(Signal::USR1);
        let ended = tokio::time::timeout(Duration::from_secs(60), tree.ended()).await;
        assert_eq!(ended.unwrap().unwrap().end, End::Exited(6), "{isolation}");
        assert_eq!(stdout.read_to_end().await.unwrap(), b"heard\n", "{isolation}");
    }
}
