//! Workers with real processes: commands that do not want to end, and all that is refused; and against servers that say what a test
//! wants them to say.

mod answer;
mod command;
mod permission;
mod refusal;
mod script;
mod stage;
