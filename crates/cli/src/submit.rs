//! `watchbell run submit`: from what was typed to a run of a queue.

use std::path::Path;

use client::queue::{CommandSpec, RunSpec};
use serde_json::Value;

use crate::apply::file::read_text;
use crate::args::submit::SubmitArgs;
use crate::exit::Ending;
use crate::trigger::print;

pub(crate) async fn submit(typed: SubmitArgs) -> Result<(), Ending> {
    let (client, output) = (typed.server.client()?, typed.server.output);
    let taken = client.submit(&spec(typed)?).await?;
    print(output, &taken, || {
        let id = &taken.id;
        let said = if taken.created {
            format!("{id} is submitted.")
        } else {
            format!("Nothing was submitted: {id} has this unique key.")
        };
        format!("{said} Look at it: watchbell run show {id}\n")
    })
}

/// What was typed, as a run.
fn spec(typed: SubmitArgs) -> Result<RunSpec, Ending> {
    let from_file = typed.payload_file.as_deref().map(read).transpose()?;
    let command = CommandSpec {
        argv: typed.command,
        env: typed.env.into_iter().collect(),
        dir: typed.dir,
        stdin: typed.stdin,
    };
    Ok(RunSpec {
        queue: Some(typed.queue),
        handler: typed.handler,
        payload: typed.payload.or(from_file),
        command: (!command.argv.is_empty()).then_some(command),
        priority: typed.priority,
        delay: typed.delay,
        not_before: typed.not_before,
        expires_after: typed.expires_after,
        key: typed.concurrency_key,
        unique_key: typed.unique_key,
        unique_window: typed.unique_window,
        delivery: typed.delivery,
        retry: typed.retry.spec(),
        timeout: typed.timeout,
        pick: typed.pick,
        count: typed.count,
        labels: typed.labels.into_iter().collect(),
    })
}

/// Reads a payload from a file, or from stdin if its name is `-`.
pub(crate) fn read(path: &Path) -> Result<Value, Ending> {
    let wrong =
        |why: String| Ending::wrong_input(format!("--payload-file {}: {why}", path.display()));
    serde_json::from_str(&read_text(path).map_err(wrong)?).map_err(|why| wrong(why.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::run::RunVerb;
    use crate::args::{Args, Verb};

    fn parse(line: &[&str]) -> Result<SubmitArgs, clap::Error> {
        let words = [&["watchbell", "run", "submit", "--queue", "mail"], line].concat();
        match Args::try_parse_from(words)?.verb {
            Verb::Run(RunVerb::Submit(typed)) => Ok(*typed),
            other => panic!("{other:?}"),
        }
    }

    /// The run as it is sent.
    #[track_caller]
    fn sent(line: &[&str]) -> Value {
        serde_json::to_value(spec(parse(line).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_handler_is_typed_with_all_its_rules() {
        let line = "--handler welcome --priority 2 --not-before 2027-03-28T02:00:00+01:00 \
            --expires-after 1h --timeout 5m --concurrency-key k --unique-key u --unique-window 1d \
            --delivery at_most_once --retry-attempts 5 --retry-delay 2s --retry-backoff constant \
            --retry-max-delay 1m --label team=billing --label tier=gold --pick next --count 3";
        let line: Vec<&str> = line.split_whitespace().collect();
        let expected = json!({
            "queue": "mail", "handler": "welcome", "payload": {"to": ["ann"]}, "priority": 2,
            "not_before": "2027-03-28T01:00:00Z", "expires_after": "1h", "timeout": "5m", "key": "k",
            "unique_key": "u", "unique_window": "1d", "delivery": "at_most_once",
            "retry": {"attempts": 5, "delay": "2s", "backoff": "constant", "max_delay": "1m"},
            "labels": {"team": "billing", "tier": "gold"}, "pick": "next", "count": 3,
        });
        assert_eq!(sent(&[&line[..], &["--payload", r#"{"to": ["ann"]}"#]].concat()), expected);
        let least = json!({"queue": "mail", "handler": "welcome"});
        assert_eq!(
            sent(&["--handler", "welcome"]),
            least,
            "what is not typed is left to the server"
        );
    }

    #[test]
    fn a_command_is_all_that_stands_behind_the_dashes() {
        let line = [
            "--env=A=1=2",
            "--dir=/tmp",
            "--stdin=x",
            "--delay=1m",
            "--",
            "/bin/x",
            "--queue",
            "y",
        ];
        let command = json!({
            "argv": ["/bin/x", "--queue", "y"], "env": {"A": "1=2"}, "dir": "/tmp", "stdin": "x",
        });
        assert_eq!(sent(&line), json!({"queue": "mail", "delay": "1m", "command": command}));
    }

    #[test]
    fn a_payload_is_read_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let line = ["--handler=a", "--payload-file", &path];
        file.write_all(b"[1, \"two\"]\n").unwrap();
        assert_eq!(sent(&line)["payload"], json!([1, "two"]));
        file.write_all(b"three").unwrap();
        let why = spec(parse(&line).unwrap()).unwrap_err();
        assert!(format!("{why:?}").contains("--payload-file /"), "{why:?}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for (line, said) in [
            (&[][..], "<--handler <NAME>|COMMAND>"),
            (&["--handler=a", "--", "/bin/x"], "cannot be used with"),
            (&["--payload=1"], "<--handler <NAME>|COMMAND>"),
            (&["--handler=a", "--env=A=1"], "cannot be used with"),
            (&["--payload=1", "--", "/bin/x"], "cannot be used with"),
            (&["--handler=a", "--payload=1", "--payload-file=x"], "cannot be used with"),
            (
                &["--handler=a", "--delay=1m", "--not-before=2027-03-28T01:00:00Z"],
                "cannot be used with",
            ),
            (&["--handler=a", "--unique-window=1m"], "--unique-key"),
            (&["--handler=a", "--payload=ann"], "a text has quotes of its own"),
            (&["--env=A", "--", "/bin/x"], "write it like LANG=en"),
        ] {
            let why = parse(line).unwrap_err().to_string();
            assert!(why.contains(said), "{line:?}: {why}");
        }
    }
}
