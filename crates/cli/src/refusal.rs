//! What a server finds wrong, in the words of the command line.
//!
//! The API speaks of fields, parameters and paths; who types has flags and verbs.

use client::problem::Problem;

/// Fields that texts of the API name in quotes, and that are flags here.
const FLAGS: [&str; 7] = ["cron", "every", "at", "exclude", "from", "to", "until"];

/// What is wrong with what was typed.
pub(crate) fn of_flags(problem: &Problem) -> String {
    if problem.errors.is_empty() {
        return with_verbs(problem);
    }
    let sentences = problem.errors.iter().map(|error| {
        let place = match (&error.pointer, &error.parameter) {
            (Some(pointer), _) => flag(pointer),
            (None, Some(parameter)) => format!("--{parameter}"),
            (None, None) => "the request".to_owned(),
        };
        format!("{place}: {}", with_flags(&error.detail))
    });
    sentences.collect::<Vec<_>>().join("\nwatchbell: ")
}

/// What is wrong with a file, whose fields are those of the API.
pub(crate) fn of_file(problem: &Problem) -> String {
    if problem.errors.is_empty() { with_verbs(problem) } else { problem.detail.clone() }
}

/// What to do about it, where that is another command.
fn with_verbs(problem: &Problem) -> String {
    let then = match problem.kind.rsplit(':').next() {
        Some("no-trigger") => "watchbell trigger list shows those that there are",
        Some("no-queue") => "watchbell queue list shows those that there are",
        Some("name-taken") if problem.detail.contains("replace") => {
            "choose another, or give that trigger this text with --replace"
        }
        _ => return problem.detail.clone(),
    };
    let detail = &problem.detail;
    let what = detail.rsplit_once(": ").map_or(detail.as_str(), |(what, _)| what);
    format!("{what}: {then}")
}

fn with_flags(detail: &str) -> String {
    let detail = detail.replace("\"catch_up\": \"all\"", "--catch-up all");
    FLAGS
        .iter()
        .fold(detail, |text, name| text.replace(&format!("\"{name}\""), &format!("--{name}")))
}

/// The flag behind a JSON pointer.
fn flag(pointer: &str) -> String {
    let mut parts = pointer.split('/').skip(1);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    let name = match (first, second) {
        ("", None) => return "the request".to_owned(),
        ("schedule", None) => return "the schedule".to_owned(),
        ("webhook", Some("url") | None) => "webhook".to_owned(),
        ("webhook", Some("headers")) => "header".to_owned(),
        ("webhook", Some("secret_headers")) => "secret-header".to_owned(),
        ("labels", _) => "label".to_owned(),
        ("command", Some("argv") | None) => return "the command".to_owned(),
        ("rate", _) => "rate".to_owned(),
        // The key that lets one in has the name already.
        ("key", None) => "concurrency-key".to_owned(),
        ("retry", Some(field)) => format!("retry-{field}"),
        (_, Some(field)) | (field, None) => field.to_owned(),
    };
    format!("--{}", name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::problem::FieldProblem;

    fn problem(kind: &str, detail: &str, errors: Vec<FieldProblem>) -> Problem {
        Problem {
            kind: format!("urn:watchbell:problem:{kind}"),
            title: "Wrong".to_owned(),
            status: 422,
            detail: detail.to_owned(),
            request_id: None,
            limit: None,
            store: None,
            errors,
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_flag() {
        for (pointer, expected) in [
            ("/name", "--name"),
            ("/until", "--until"),
            ("/schedule/cron/1", "--cron"),
            ("/schedule", "the schedule"),
            ("/webhook", "--webhook"),
            ("/webhook/url", "--webhook"),
            ("/webhook/headers", "--header"),
            ("/webhook/secret_headers", "--secret-header"),
            ("/webhook/content_type", "--content-type"),
            ("/retry/max_delay", "--retry-max-delay"),
            ("/catch_up_cap", "--catch-up-cap"),
            ("/queue", "--queue"),
            ("/command", "the command"),
            ("/command/argv/0", "the command"),
            ("/command/env", "--env"),
            ("/key", "--concurrency-key"),
            ("/unique_key", "--unique-key"),
            ("/rate/per", "--rate"),
        ] {
            assert_eq!(flag(pointer), expected);
        }
    }

    #[test]
    fn parameters_and_fields_that_are_named_are_flags_too() {
        let detail = "it must lie before \"to\", which is now if it is not given".to_owned();
        let error = FieldProblem { pointer: None, parameter: Some("from".to_owned()), detail };
        let told = of_flags(&problem("invalid", "from: …", vec![error]));
        assert_eq!(told, "--from: it must lie before --to, which is now if it is not given");
        let sense = "it means something with \"catch_up\": \"all\" only";
        assert_eq!(with_flags(sense), "it means something with --catch-up all only");
    }

    #[test]
    fn advice_names_a_command_and_not_a_path() {
        for told in [of_flags, of_file] {
            let missing = "there is no trigger \"a: b\": list them at /v1/triggers";
            assert_eq!(
                told(&problem("no-trigger", missing, Vec::new())),
                "there is no trigger \"a: b\": watchbell trigger list shows those that there are"
            );
            let missing = "there is no queue \"mail\": list them at /v1/queues";
            assert_eq!(
                told(&problem("no-queue", missing, Vec::new())),
                "there is no queue \"mail\": watchbell queue list shows those that there are"
            );
            let taken = "the name is taken by trg_x: choose another, or replace that one";
            assert_eq!(
                told(&problem("name-taken", taken, Vec::new())),
                "the name is taken by trg_x: choose another, or give that trigger this text with --replace"
            );
        }
    }
}
