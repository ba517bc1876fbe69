//! `watchbell audit`.

use client::AuditFilter;

use crate::args::system::AuditListArgs;
use crate::exit::Ending;
use crate::table;
use crate::trigger::{more, print};
use crate::value::escape;

pub(crate) async fn list(typed: AuditListArgs) -> Result<(), Ending> {
    let filter = AuditFilter {
        project: typed.server.project.clone(),
        author: typed.author,
        action: typed.action,
        from: typed.from,
        to: typed.to,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.audit(&filter).await?;
    print(typed.server.output, &page, || {
        if page.items.is_empty() && page.next.is_none() {
            return "There are no such changes.\n".to_owned();
        }
        let mut table = table::plain();
        table.set_header(["at", "action", "object", "project", "author", "address"]);
        for entry in &page.items {
            table.add_row([
                entry.at.to_string(),
                escape(&entry.action),
                escape(&entry.object),
                entry.project.as_deref().map_or_else(|| "-".to_owned(), escape),
                escape(&entry.author),
                entry.address.as_deref().map_or_else(|| "-".to_owned(), escape),
            ]);
        }
        format!("{}{}", table::finish(table, 6), more(page.next.as_deref()))
    })
}
