//! Lists come in pages.

use serde::{Deserialize, Serialize};

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PageOf{T}"))]
pub struct ListPage<T> {
    /// The items of this page. There may be none although more follow: a request does a bounded amount of work.
    pub items: Vec<T>,
    /// Ask with this cursor for what follows; at the end there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
