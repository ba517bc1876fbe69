//! Workers with real processes: commands that do not want to end, and all that is refused.

mod command;
mod permission;
mod refusal;
mod stage;
