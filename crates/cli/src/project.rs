//! `watchbell project`.

use client::project::{
    NewProject, NewProjectSpec, Notify, Occasion, Project, ProjectLimits, ProjectSpec,
    RotateRequest,
};
use client::{Client, ProjectFilter};

use crate::args::OutputFormat;
use crate::args::project::{
    ProjectCreateArgs, ProjectDisableArgs, ProjectFields, ProjectListArgs, ProjectNameArgs,
    ProjectRotateArgs, ProjectSetArgs, ProjectVerb,
};
use crate::exit::{Ending, say};
use crate::table;
use crate::trigger::{print, print_list};
use crate::value::escape;

pub(crate) async fn project(verb: ProjectVerb) -> Result<(), Ending> {
    match verb {
        ProjectVerb::Create(typed) => create(typed).await,
        ProjectVerb::List(typed) => list(typed).await,
        ProjectVerb::Show(typed) => show(&typed).await,
        ProjectVerb::Set(typed) => set(typed).await,
        ProjectVerb::Enable(typed) => enable(&typed).await,
        ProjectVerb::Disable(typed) => disable(&typed).await,
        ProjectVerb::Rotate(typed) => rotate(typed).await,
    }
}

async fn create(typed: ProjectCreateArgs) -> Result<(), Ending> {
    let limits = limits(ProjectLimits::default(), &typed.fields);
    let limits = (limits != ProjectLimits::default()).then_some(limits);
    let spec = NewProjectSpec { name: typed.name, limits, notify: notify(typed.fields) };
    let made = typed.server.client()?.create_project(&spec).await?;
    tell(typed.server.output, &made, "made")
}

async fn list(typed: ProjectListArgs) -> Result<(), Ending> {
    let filter = ProjectFilter {
        prefix: typed.prefix,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.projects(&filter).await?;
    let header = ["name", "fires", "limits", "made by"];
    print_list(typed.server.output, &page, None, header, |project| {
        let (name, author) = (escape(&project.name), escape(&project.author));
        [name, fires(project), limits_text(&project.limits), author]
    })
}

async fn show(typed: &ProjectNameArgs) -> Result<(), Ending> {
    let project = typed.server.client()?.project(&typed.name).await?;
    print(typed.server.output, &project, || show_text(&project))
}

/// Reads, changes what is named, and writes: what somebody else changes in between is lost, as the answer shows.
async fn set(typed: ProjectSetArgs) -> Result<(), Ending> {
    let client: Client = typed.server.client()?;
    let now = client.project(&typed.name).await?;
    let base = if typed.unlimited { ProjectLimits::default() } else { now.limits };
    let limits = limits(base, &typed.fields);
    let notify = if typed.quiet { None } else { notify(typed.fields).or(now.notify) };
    let spec = ProjectSpec { limits: Some(limits), notify };
    let project = client.put_project(&typed.name, &spec).await?;
    print(typed.server.output, &project, || show_text(&project))
}

fn limits(base: ProjectLimits, fields: &ProjectFields) -> ProjectLimits {
    ProjectLimits {
        triggers: fields.triggers.or(base.triggers),
        fires_per_minute: fields.fires_per_minute.or(base.fires_per_minute),
        bytes: fields.bytes.or(base.bytes),
        waiting_runs: fields.waiting_runs.or(base.waiting_runs),
    }
}

fn notify(fields: ProjectFields) -> Option<Notify> {
    fields.notify_url.map(|url| Notify { url, on: fields.notify_on })
}

async fn enable(typed: &ProjectNameArgs) -> Result<(), Ending> {
    let project = typed.server.client()?.enable_project(&typed.name).await?;
    print(typed.server.output, &project, || {
        format!("{} is enabled: its triggers fire, and catch up.\n", escape(&project.name))
    })
}

async fn disable(typed: &ProjectDisableArgs) -> Result<(), Ending> {
    let question = format!("Let none of the triggers of {} fire?", escape(&typed.name));
    typed.consent.ask(&question, "nothing was disabled")?;
    let project = typed.server.client()?.disable_project(&typed.name).await?;
    print(typed.server.output, &project, || {
        let name = escape(&project.name);
        format!("{name} is disabled. Let it go on: watchbell project enable {name}\n")
    })
}

async fn rotate(typed: ProjectRotateArgs) -> Result<(), Ending> {
    let request = RotateRequest { grace: typed.grace };
    let made = typed.server.client()?.rotate_project(&typed.name, &request).await?;
    tell(typed.server.output, &made, "given a new secret")
}

/// The secret alone on stdout, so that it can be kept in a file; what it is, on stderr.
fn tell(output: OutputFormat, made: &NewProject, done: &str) -> Result<(), Ending> {
    let name = escape(&made.project.name);
    let Some(secret) = &made.secret else {
        return Err(Ending::failed(format!(
            "{name} was {done}, but its secret was lost with an answer that did not arrive: take another with watchbell project rotate {name}"
        )));
    };
    print(output, made, || format!("{secret}\n"))?;
    say(&format!(
        "{name} was {done}: its webhooks are signed with the secret on stdout, which is told this once; keep it"
    ));
    Ok(())
}

fn show_text(project: &Project) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("name", escape(&project.name));
    row("id", escape(&project.id));
    row("fires", fires(project));
    row("limits", limits_text(&project.limits));
    for secret in &project.secrets {
        let until = secret.until.map_or_else(String::new, |until| format!(", until {until}"));
        row("secret", format!("made {}{until}", secret.created));
    }
    if let Some(notify) = &project.notify {
        let on: Vec<&str> = notify.on.iter().map(|occasion| word(*occasion)).collect();
        let on = if on.is_empty() { "all but success".to_owned() } else { on.join(", ") };
        row("notify", format!("{} ({on})", escape(&notify.url)));
    }
    if let Some(created) = project.created {
        row("made", format!("{created} by {}", escape(&project.author)));
    }
    table::finish(table, 2)
}

fn fires(project: &Project) -> String {
    match (project.enabled, project.disabled) {
        (true, _) => "yes".to_owned(),
        (false, Some(since)) => format!("not since {since}"),
        (false, None) => "no".to_owned(),
    }
}

fn limits_text(limits: &ProjectLimits) -> String {
    let ProjectLimits { triggers, fires_per_minute, bytes, waiting_runs } = limits;
    let said = [
        (triggers, "triggers"),
        (fires_per_minute, "runs per minute"),
        (bytes, "bytes"),
        (waiting_runs, "waiting runs"),
    ];
    let said: Vec<String> = said
        .iter()
        .filter_map(|(limit, what)| limit.map(|limit| format!("{} {what}", table::grouped(limit))))
        .collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

fn word(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Failure => "failure",
        Occasion::Recovery => "recovery",
        Occasion::Paused => "paused",
        Occasion::Success => "success",
        Occasion::Overdue => "overdue",
    }
}
