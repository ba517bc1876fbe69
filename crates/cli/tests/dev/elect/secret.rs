//! A password in a URL or a variable is told to nobody, whatever goes well and whatever goes wrong.

use std::process::Output;

use rig::redis::{Redis, Setup};
use rig::{PATIENCE, machine, until};

use super::super::process::WATCHBELL;
use super::*;

const CANARY: &str = "canary-of-an-election";

/// How the password gets in.
#[derive(Debug, Clone, Copy)]
enum Way {
    Flag,
    Variable,
    Ancestor,
}

fn command(way: Way, url: &str, port: u16, hook: &str) -> Command {
    let mut command = Command::new(WATCHBELL);
    command.args(["elect", "--log-level", "trace", "--metrics", "127.0.0.1:0", "--wait", "3s"]);
    command.args(["--on-elected", hook, "--on-lost", hook]);
    match way {
        Way::Flag => command.args([NAME, "--store", url]),
        Way::Variable => command.arg(NAME).env("WATCHBELL_STORE", url),
        Way::Ancestor => {
            command.env("REDIS_HOST", "127.0.0.1").env("REDIS_PORT", port.to_string());
            command.env("REDIS_PASSWORD", CANARY).env("REDIS_LEADER_KEY", "leader:uuid")
        }
    };
    command
}

#[track_caller]
fn check(who: &str, text: &str) {
    let line = text.lines().find(|line| line.contains(CANARY));
    assert!(line.is_none(), "{who} tells it: {}", line.unwrap_or_default());
}

/// Everything that it has said.
fn said(candidate: &Candidate) -> String {
    candidate.log() + &std::fs::read_to_string(&candidate.out).unwrap()
}

async fn check_led(way: Way, redis: &Redis, dir: &Path) {
    let name = format!("{way:?}");
    let env = dir.join(format!("{name}.env"));
    let hook = format!("env >> {}", env.display());
    let port = redis.address().port();
    let mut anna = Candidate::spawn(command(way, &redis.url(), port, &hook), dir, &name);
    let log = anna.logs("metrics are served").await;
    let at = log.split("at=127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap();
    let at: SocketAddr = ([127, 0, 0, 1], at.parse().unwrap()).into();
    until("it leads", PATIENCE, || async {
        let page = page(at).await;
        check("metrics", &page);
        (metric(&page, "watchbell_leader_refreshed_total") > 0).then_some(())
    })
    .await;
    anna.logs("a hook is done").await;
    anna.stop().await;
    check(&name, &said(&anna));
    assert!(anna.log().contains("TRACE") || anna.log().contains("DEBUG"), "it told everything");
    let env = std::fs::read_to_string(env).unwrap();
    // More, if it lapsed meanwhile, as it may on a busy machine.
    assert!(env.matches("WATCHBELL_TOKEN=").count() >= 2, "{env}");
    check("the environment of a hook", &env);
}

/// Starts one that does not get far; its code.
async fn check_ended(way: Way, url: &str, port: u16, dir: &Path, change: &[(&str, &str)]) -> i32 {
    let mut command = command(way, url, port, "true");
    command.envs(change.iter().copied());
    let mut anna = Candidate::spawn(command, dir, "ended");
    let code = anna.ended().await.code().unwrap();
    assert!(!anna.log().is_empty());
    check(&format!("{way:?} with {code}"), &said(&anna));
    code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_of_a_store_is_told_to_nobody_by_a_candidate() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let mut redis = Setup::durable().password(CANARY).tls().start();
    let (url, port) = (redis.url(), redis.address().port());
    for way in [Way::Flag, Way::Variable, Way::Ancestor] {
        check_led(way, &redis, dir.path()).await;
        let wrong = url.replace(CANARY, &format!("{CANARY}-wrong"));
        let other = format!("{CANARY}-wrong");
        let change = [("REDIS_PASSWORD", other.as_str())];
        let code = check_ended(way, &wrong, port, dir.path(), &change).await;
        assert_eq!(code, 7, "{way:?}: a wrong password");
    }
    for way in [Way::Flag, Way::Variable] {
        let encrypted = url.replace("redis://", "rediss://");
        assert_eq!(check_ended(way, &encrypted, port, dir.path(), &[]).await, 9, "no TLS there");
        let untrusted = redis.tls_url();
        assert_eq!(
            check_ended(way, &untrusted, port, dir.path(), &[]).await,
            9,
            "nobody trusts it"
        );
        let odd = format!("{url}?pass={CANARY}");
        assert_eq!(check_ended(way, &odd, port, dir.path(), &[]).await, 2, "an unknown option");
    }
    redis.kill();
    for way in [Way::Flag, Way::Variable, Way::Ancestor] {
        assert_eq!(check_ended(way, &url, port, dir.path(), &[]).await, 3, "{way:?}: away");
    }
    let said = |args: &[&str]| -> Output {
        let mut command = Command::new(WATCHBELL);
        command.args(args).env("REDIS_PASSWORD", CANARY).env("WATCHBELL_STORE", &url);
        command.output().unwrap()
    };
    for args in [&["elect", "--help"][..], &["elect", NAME, "--ttl", "0s"], &["config", "show"]] {
        let output = said(args);
        let text = [output.stdout, output.stderr].concat();
        check(&args.join(" "), &String::from_utf8_lossy(&text));
    }
}
