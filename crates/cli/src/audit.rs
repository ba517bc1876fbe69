//! `watchbell audit`.

use client::AuditFilter;

use crate::args::system::AuditListArgs;
use crate::exit::Ending;
use crate::trigger::print_list;
use crate::value::escape;

pub(crate) async fn list(typed: AuditListArgs) -> Result<(), Ending> {
    let filter = AuditFilter {
        project: typed.server.credentials.project.clone(),
        author: typed.author,
        action: typed.action,
        from: typed.from,
        to: typed.to,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.audit(&filter).await?;
    let none = "There are no such changes.";
    let header = ["at", "action", "object", "project", "author", "address"];
    let or_dash = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), escape);
    print_list(typed.server.output, &page, Some(none), header, |entry| {
        let (action, object) = (escape(&entry.action), escape(&entry.object));
        let (project, address) =
            (or_dash(entry.project.as_deref()), or_dash(entry.address.as_deref()));
        [entry.at.to_string(), action, object, project, escape(&entry.author), address]
    })
}
