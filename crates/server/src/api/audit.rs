//! `/v1/audit`: who changed what, when, from where.

use axum::response::Json;
use client::ListPage;
use client::audit::AuditEntry;
use engine::instant::Instant;
use engine::limits::AUDIT_LINES_READ_MAX;
use engine::record::decode;
use store::{Key, Range};

use super::convert::timestamp;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::trigger::bad_cursor;
use crate::access::audit::{AUDIT, AuditRecord, until};
use crate::access::record::FORMAT;
use crate::handle::NodeHandle;

/// Lines that are read at a time.
const PAGE_LEN: usize = 500;

/// Which lines are wanted.
struct Filter {
    project: Option<String>,
    author: Option<String>,
    action: Option<String>,
    from: Option<Instant>,
}

impl Filter {
    fn wants(&self, entry: &AuditEntry) -> bool {
        let is_of = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
        };
        is_of(&self.project, entry.project.as_deref())
            && is_of(&self.author, Some(&entry.author))
            && is_of(&self.action, Some(&entry.action))
    }
}

pub(super) async fn list(
    handle: NodeHandle,
    query: Query,
) -> ApiResult<Json<ListPage<AuditEntry>>> {
    let rows = query.rows()?;
    let text = |name| query.text(name).map(str::to_owned);
    let filter = Filter {
        project: text("project"),
        author: text("author"),
        action: text("action"),
        from: query.get("from")?,
    };
    let mut range = match query.get("to")? {
        Some(to) => until(to),
        None => Range::prefix(AUDIT),
    };
    if let Some(cursor) = query.text("cursor") {
        let is_place = cursor.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'.');
        let key = Key::new(format!("{AUDIT}{cursor}")).ok().filter(|_| is_place);
        range = range.after(&key.ok_or_else(bad_cursor)?);
    }
    handle.access().refresh().await?;
    let book = handle.access().book();
    let (mut items, mut looked) = (Vec::new(), 0);
    let mut pages = handle.store().pages(range, PAGE_LEN);
    while let Some(entries) = pages.next().await? {
        for entry in &entries {
            let place = entry.key.as_str()[AUDIT.len()..].to_owned();
            let record: AuditRecord = decode(entry.value.as_bytes(), FORMAT)
                .map_err(|why| ApiError::of_record(entry.key.as_str(), &why))?;
            if filter.from.is_some_and(|from| record.at < from) {
                return Ok(Json(ListPage { items, next: None }));
            }
            let line = tell(record, |id| book.name_of(id).map(str::to_owned));
            if filter.wants(&line) {
                items.push(line);
            }
            looked += 1;
            if items.len() == rows || looked == AUDIT_LINES_READ_MAX {
                return Ok(Json(ListPage { items, next: Some(place) }));
            }
        }
    }
    Ok(Json(ListPage { items, next: None }))
}

fn tell(
    record: AuditRecord,
    name_of: impl Fn(engine::id::ProjectId) -> Option<String>,
) -> AuditEntry {
    AuditEntry {
        at: timestamp(record.at),
        action: record.action,
        object: record.object,
        project: record.project.and_then(name_of),
        author: record.author,
        key: record.key.map(|key| key.to_string()),
        address: record.address.map(|address| address.to_string()),
        via: record.via,
        request_id: record.request_id,
    }
}
