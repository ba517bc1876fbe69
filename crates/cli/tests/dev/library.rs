//! What the libraries for workers promise alike: one list of cases for all of them, each against a real server.
//!
//! Each library has a program `case_worker` with the same handlers, which says on stdout what they do: `begin ID ATTEMPT TOKEN`,
//! `told ID REASON` when one has seen that it is to end, `end ID ATTEMPT`, and `drained`. Whatever is particular to a library is
//! tested beside it.
//!
//! - `place`: a server, the proxy before it, and such a program as a process; `case`: the cases; `cluster`: one with encrypted servers

mod case;
mod cluster;
mod place;

use rig::machine;

use self::place::Library;

macro_rules! promises {
    ($module:ident: $library:expr) => {
        mod $module {
            use super::{Library, case, machine};

            promises! {
                $library;
                a_run_gets_what_its_handler_made_of_it: results,
                output_has_times_and_a_worker_has_labels: sight,
                a_handler_that_has_seen_the_cancel_is_cancelled_and_one_that_never_looked_is_what_it_did: cancel,
                what_takes_too_long_has_failed: timeout,
                answers_that_are_lost_neither_lose_a_run_nor_begin_one_twice: lost_answers,
                requests_that_are_lost_late_and_repeated_neither_lose_a_run_nor_begin_one_twice: bad_network,
                a_frozen_worker_loses_its_runs_and_its_results_do_not_count: stale_token,
                whoever_drains_finishes_what_it_has_and_takes_nothing_more: drain,
                a_second_signal_stops_what_executes_and_counts_no_failure: stop,
                a_worker_that_somebody_wants_to_drain_does: drained_by_server,
                results_are_kept_while_no_server_is_there: server_gone,
                only_strict_runs_end_when_no_server_is_heard: strict,
                a_killed_worker_is_given_its_run_again: killed,
                a_run_under_which_three_workers_die_is_poison: poison,
            }
        }
    };
    ($library:expr; $($name:ident: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let _machine = machine::waits().await;
                case::$case($library).await;
            }
        )*
    };
}

promises!(rust: Library::Rust);
promises!(python: Library::Python);
promises!(typescript: Library::TypeScript);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_worker_with_a_key_of_its_own_serves_a_cluster_that_encrypts() {
    let _machine = machine::works().await;
    cluster::encrypted(Library::Python).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_worker_with_a_key_of_its_own_serves_a_cluster_that_encrypts() {
    let _machine = machine::works().await;
    cluster::encrypted(Library::TypeScript).await;
}
