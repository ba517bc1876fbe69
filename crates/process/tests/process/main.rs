//! Trees of real processes, and real ends of them.
//!
//! Every claim is tried with every isolation that this user may have: as root all four, otherwise two. What tests look at
//! is the machine's own list of processes: all processes of a tree inherit a variable with a value that no other tree
//! has, so they are found wherever they went.

mod confirmation;
mod deadline;
mod ending;
mod guard;
mod init;
mod limit;
mod lock;
mod permission;
mod running;
mod stage;
mod stream;
