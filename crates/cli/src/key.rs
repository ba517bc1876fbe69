//! `watchbell key`.

use client::KeyFilter;
use client::key::{ApiKey, KeySpec, NewKey, RotateKeyRequest};

use crate::args::OutputFormat;
use crate::args::key::{
    KeyCreateArgs, KeyDeleteArgs, KeyListArgs, KeyRotateArgs, KeyShowArgs, KeyVerb,
};
use crate::args::trigger::ServerArgs;
use crate::exit::{Ending, say};
use crate::table;
use crate::trigger::{print, print_list};
use crate::value::escape;

pub(crate) async fn key(verb: KeyVerb) -> Result<(), Ending> {
    match verb {
        KeyVerb::Create(typed) => create(typed).await,
        KeyVerb::List(typed) => list(typed).await,
        KeyVerb::Show(typed) => show(&typed).await,
        KeyVerb::Rotate(typed) => rotate(typed).await,
        KeyVerb::Delete(typed) => delete(&typed).await,
        KeyVerb::Own(typed) => own(&typed).await,
    }
}

async fn create(typed: KeyCreateArgs) -> Result<(), Ending> {
    let spec = KeySpec { name: typed.name, scopes: typed.scope, expires: typed.expires };
    let made = typed.server.client()?.create_key(&spec).await?;
    tell(typed.server.output, &made)
}

async fn list(typed: KeyListArgs) -> Result<(), Ending> {
    let filter = KeyFilter {
        project: typed.server.credentials.project.clone(),
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.keys(&filter).await?;
    let none = "There are no such keys. Make one: watchbell key create --help";
    let header = ["id", "name", "scopes", "project", "expires", "last used"];
    let or_never = |instant: Option<client::Timestamp>| {
        instant.map_or_else(|| "never".to_owned(), |instant| instant.to_string())
    };
    print_list(typed.server.output, &page, Some(none), header, |key| {
        let project = key.project.as_deref().map_or_else(|| "all".to_owned(), escape);
        let (expires, last_used) = (or_never(key.expires), or_never(key.last_used));
        [escape(&key.id), escape(&key.name), scopes(key), project, expires, last_used]
    })
}

async fn show(typed: &KeyShowArgs) -> Result<(), Ending> {
    let key = typed.server.client()?.key(&typed.id).await?;
    print(typed.server.output, &key, || show_text(&key))
}

async fn own(typed: &ServerArgs) -> Result<(), Ending> {
    let key = typed.client()?.own_key().await?;
    print(typed.output, &key, || show_text(&key))
}

async fn rotate(typed: KeyRotateArgs) -> Result<(), Ending> {
    let request = RotateKeyRequest { grace: typed.grace, expires: typed.expires };
    let made = typed.server.client()?.rotate_key(&typed.id, &request).await?;
    tell(typed.server.output, &made)
}

async fn delete(typed: &KeyDeleteArgs) -> Result<(), Ending> {
    typed.consent.check("nothing was deleted")?;
    let client = typed.server.client()?;
    let key = client.key(&typed.id).await?;
    let question = format!("Take the key {} ({}) back?", escape(&key.name), scopes(&key));
    typed.consent.ask(&question, "nothing was deleted")?;
    client.delete_key(&key.id).await?;
    let gone = serde_json::json!({ "deleted": key.id, "name": key.name });
    print(typed.server.output, &gone, || {
        format!("{} ({}) lets nobody in any more.\n", escape(&key.id), escape(&key.name))
    })
}

/// The secret alone on stdout, so that it can be kept in a file; what it is, on stderr.
fn tell(output: OutputFormat, made: &NewKey) -> Result<(), Ending> {
    let (id, name) = (escape(&made.key.id), escape(&made.key.name));
    let Some(secret) = &made.secret else {
        return Err(Ending::failed(format!(
            "the key {id} ({name}) was made, but its text was lost with an answer that did not arrive: delete it with watchbell key delete {id}, and make another"
        )));
    };
    print(output, made, || format!("{secret}\n"))?;
    say(&format!("the key {id} ({name}) is on stdout, and is told this once; keep it"));
    Ok(())
}

fn scopes(key: &ApiKey) -> String {
    key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

fn show_text(key: &ApiKey) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("id", escape(&key.id));
    row("name", escape(&key.name));
    row("scopes", scopes(key));
    row("project", key.project.as_deref().map_or_else(|| "all".to_owned(), escape));
    row("made", format!("{} by {}", key.created, escape(&key.author)));
    if let Some(expires) = key.expires {
        row("expires", expires.to_string());
    }
    if let Some(used) = key.last_used {
        row("last used", used.to_string());
    }
    table::finish(table, 2)
}
