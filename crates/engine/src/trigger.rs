//! A trigger: when, what, and by which rules.
//!
//! - [`Draft`]: what a person wrote
//! - [`Definition`]: what it means, checked and ready to be used

pub(crate) mod build;
pub(crate) mod draft;
mod label;
pub(crate) mod read;

pub use build::BadField;
pub use draft::{Draft, QuietDraft, RetryDraft, ScheduleDraft, Texts, WebhookDraft};
pub use label::{Labels, check_label};
pub use read::check_name;

use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::target::Target;

/// What a trigger is, checked and ready to be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The name, unique in its project.
    pub name: Box<str>,
    /// By what it is found.
    pub labels: Labels,
    /// When it is due.
    pub schedule: Schedule,
    /// What, and where to.
    pub target: Target,
    /// By which rules.
    pub policy: Policy,
}
