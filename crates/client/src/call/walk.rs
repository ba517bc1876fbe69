//! Lists, page after page.

use super::Client;
use crate::{ClientError, ListPage};

/// Most items that one request gives.
const PAGE_LEN_MAX: usize = 500;

/// A filter that says which page of a list is wanted.
pub(super) trait Paged {
    /// Asks for `limit` items from this cursor on.
    fn next_page(&mut self, limit: usize, cursor: Option<String>);
}

impl Client {
    /// Follows the cursors from `start` until there are `most` items, or no more. No request asks for more than is
    /// still wanted, so nothing is left out between the last item and `next`.
    pub(super) async fn walk<T, F: Paged>(
        &self,
        mut filter: F,
        start: Option<String>,
        most: usize,
        mut page: impl AsyncFnMut(&F) -> Result<ListPage<T>, ClientError>,
    ) -> Result<ListPage<T>, ClientError> {
        let (mut items, mut cursor) = (Vec::new(), start);
        loop {
            let wanted = most.saturating_sub(items.len()).min(PAGE_LEN_MAX);
            if wanted == 0 {
                return Ok(ListPage { items, next: cursor });
            }
            filter.next_page(wanted, cursor.clone());
            let found = page(&filter).await?;
            items.extend(found.items);
            match found.next {
                None => return Ok(ListPage { items, next: None }),
                // A page may be empty, but it never stays where it is.
                next if next == cursor => {
                    return Err(self.unexpected_answer("a list goes on where it was".to_owned()));
                }
                next => cursor = next,
            }
        }
    }
}
