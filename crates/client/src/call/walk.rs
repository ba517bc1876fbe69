//! Lists, page after page.

use super::Client;
use crate::{ClientError, ListPage};

/// Most items that one request gives.
const PAGE_LEN_MAX: usize = 500;

impl Client {
    /// Follows the cursors from `start` until there are `most` items, or no more. No request asks for more than is
    /// still wanted, so nothing is left out between the last item and `next`.
    pub(super) async fn walk<T>(
        &self,
        start: Option<String>,
        most: usize,
        page: impl AsyncFn(usize, Option<String>) -> Result<ListPage<T>, ClientError>,
    ) -> Result<ListPage<T>, ClientError> {
        let (mut items, mut cursor) = (Vec::new(), start);
        loop {
            let wanted = most.saturating_sub(items.len()).min(PAGE_LEN_MAX);
            if wanted == 0 {
                return Ok(ListPage { items, next: cursor });
            }
            let found = page(wanted, cursor.clone()).await?;
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
