//! From what was typed to what a worker is made of. Whatever can be wrong about it is told before the worker begins.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Client;
use process::{Isolation, Limits, Wanted};
use worker::command::{Account, AllowList, CommandPolicy};

use crate::args::DevArgs;
use crate::args::worker::{AllowArgs, Isolate, SurroundingsArgs, WorkArgs};
use crate::exit::Ending;
use crate::server::host_name;

/// Where spools of root are if nobody says it.
const SPOOL_OF_ROOT: &str = "/var/lib/watchbell-worker";

/// Where those of others are, below the directory of their state.
const SPOOL_OF_OTHERS: &str = "watchbell-worker";

/// Open files that a command needs while it runs: its pipes, its guards, and its control socket.
const FILES_OF_A_COMMAND: u64 = 8;

/// Open files of everything else.
const FILES_OF_A_WORKER: u64 = 64;

/// What `watchbell worker` has by default.
const LEASE_OF_DEV: Duration = Duration::from_secs(15);
const DRAIN_OF_DEV: Duration = Duration::from_secs(20);

/// What a worker is made of.
#[derive(Clone)]
pub(crate) struct WorkPlan {
    pub(crate) name: String,
    pub(crate) servers: Vec<Client>,
    pub(crate) queues: Vec<(String, Option<u32>)>,
    pub(crate) capacity: usize,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) policy: CommandPolicy,
    /// What is to keep commands together: the first of these that is permitted.
    pub(crate) isolations: Vec<Wanted>,
    pub(crate) lease: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) spool: PathBuf,
}

impl WorkPlan {
    pub(crate) fn of(typed: &WorkArgs) -> Result<Self, Ending> {
        let allow = allow_list(&typed.allow)?;
        if allow.is_empty() {
            return Err(Ending::wrong_input(
                "this worker may run nothing: name programs with --allow /usr/local/bin/report, or a directory with \
                 --allow /opt/jobs/bin; --allow-any lets runs have every program",
            ));
        }
        let account = typed.user.as_deref().map(account).transpose()?;
        let servers = typed.server.iter().map(|server| typed.credentials.client(server));
        let isolations = isolations(typed.isolate, account.is_some());
        let policy = CommandPolicy {
            allow,
            account,
            directory: directory(&typed.dir)?,
            limits: Limits {
                memory_bytes_max: typed.memory_max,
                processes_max: typed.processes_max,
            },
            isolation: Wanted::Auto,
            grace: typed.grace,
            timeout: typed.timeout,
            zone: zone(&typed.surroundings),
        };
        Ok(Self {
            name: typed.name.clone().unwrap_or_else(host_name),
            servers: servers.collect::<Result<_, _>>()?,
            queues: typed.queue.clone(),
            capacity: typed.capacity.unwrap_or_else(processors),
            labels: typed.labels.iter().cloned().collect(),
            policy,
            isolations,
            lease: typed.lease,
            drain_timeout: typed.drain_timeout,
            spool: spool(typed, whose_spool())?,
        })
    }
}

impl WorkPlan {
    /// That of the worker in `watchbell dev`, without its server; none if it may run nothing.
    pub(crate) fn of_dev(typed: &DevArgs) -> Result<Option<Self>, Ending> {
        let allow = allow_list(&typed.allow)?;
        if allow.is_empty() {
            return Ok(None);
        }
        let zone = zone(&typed.surroundings);
        let policy = CommandPolicy { allow, zone, ..CommandPolicy::default() };
        Ok(Some(Self {
            name: "dev".to_owned(),
            servers: Vec::new(),
            queues: typed.worker_queue.iter().map(|name| (name.clone(), None)).collect(),
            capacity: processors(),
            labels: BTreeMap::new(),
            policy,
            isolations: vec![Wanted::Auto],
            lease: LEASE_OF_DEV,
            drain_timeout: DRAIN_OF_DEV,
            spool: spool_beside(&typed.data),
        }))
    }

    /// The same for this server.
    pub(crate) fn at(self, server: Client) -> Self {
        Self { servers: vec![server], ..self }
    }
}

/// Beside the data, which is a directory of the store alone.
fn spool_beside(data: &Path) -> PathBuf {
    let name = data.file_name().unwrap_or(data.as_os_str()).to_string_lossy();
    data.with_file_name(format!("{name}-worker"))
}

/// What may be run.
fn allow_list(typed: &AllowArgs) -> Result<AllowList, Ending> {
    if typed.allow_any {
        if !typed.allow.is_empty() {
            return Err(Ending::wrong_input(
                "--allow-any allows what --allow names and everything else: give one of them",
            ));
        }
        return Ok(AllowList::Any);
    }
    AllowList::listed(typed.allow.clone())
        .map_err(|why| Ending::wrong_input(format!("--allow: {why}")))
}

/// The time zone of commands.
fn zone(typed: &SurroundingsArgs) -> Option<String> {
    typed.zone.clone().filter(|zone| !zone.is_empty())
}

/// As many runs as there are processors.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Refuses a capacity for which this process may not have enough open files.
pub(crate) fn check_files(capacity: usize, limit: Option<u64>) -> Result<(), Ending> {
    let needed = FILES_OF_A_COMMAND * capacity as u64 + FILES_OF_A_WORKER;
    match limit {
        Some(limit) if limit < needed => Err(Ending::refused(format!(
            "--capacity {capacity} needs {needed} open files, and this process may have {limit}: raise that \
             (ulimit -n, LimitNOFILE=), or take a smaller capacity"
        ))),
        Some(_) | None => Ok(()),
    }
}

fn account(text: &str) -> Result<Account, Ending> {
    let account = Account::of(text).map_err(|why| Ending::wrong_input(format!("--user: {why}")))?;
    let own = Account::own();
    if account.user() != own.user() && !rustix::process::geteuid().is_root() {
        return Err(Ending::refused(format!(
            "--user {text}: only root runs commands as somebody else; start the worker as that user, or as root"
        )));
    }
    Ok(account)
}

/// Which isolations are tried. Somebody else has no name in a user namespace of the worker's own.
fn isolations(typed: Isolate, is_other_user: bool) -> Vec<Wanted> {
    match typed {
        Isolate::Auto => vec![Wanted::Auto],
        Isolate::Namespace if is_other_user => vec![Wanted::Exactly(Isolation::Namespace)],
        Isolate::Namespace => {
            [Isolation::Namespace, Isolation::UserNamespace].map(Wanted::Exactly).to_vec()
        }
        Isolate::Cgroup => vec![Wanted::Exactly(Isolation::Cgroup)],
        Isolate::Group => vec![Wanted::Exactly(Isolation::Group)],
    }
}

fn directory(path: &Path) -> Result<PathBuf, Ending> {
    let wrong = |why: &str| Ending::wrong_input(format!("--dir {}: {why}", path.display()));
    if !path.is_absolute() {
        return Err(wrong("name it by its absolute path"));
    }
    let found = path.canonicalize().map_err(|why| wrong(&why.to_string()))?;
    if found.is_dir() { Ok(found) } else { Err(wrong("it is no directory")) }
}

/// Whose the spool is.
#[derive(Clone, Copy)]
enum Whose {
    Root,
    Others,
}

fn whose_spool() -> Whose {
    if rustix::process::geteuid().is_root() { Whose::Root } else { Whose::Others }
}

/// What was typed; what systemd has made for this unit, of which there may be several; or the usual place of whoever starts
/// it. Never one that depends on where it is started: a name belongs to one spool.
fn spool(typed: &WorkArgs, whose: Whose) -> Result<PathBuf, Ending> {
    if let Some(typed) = &typed.spool {
        return Ok(typed.clone());
    }
    let around = &typed.surroundings;
    let of_unit = around.state_directory.as_deref();
    let of_unit = of_unit.and_then(|list| list.split(':').next()).filter(|dir| !dir.is_empty());
    if let Some(of_unit) = of_unit {
        return Ok(PathBuf::from(of_unit));
    }
    if let Whose::Root = whose {
        return Ok(PathBuf::from(SPOOL_OF_ROOT));
    }
    let of_state = around.state_home.as_ref().map(PathBuf::from).filter(|dir| dir.is_absolute());
    let of_home = || {
        let home = around.home.as_ref().map(PathBuf::from).filter(|dir| dir.is_absolute());
        home.map(|home| home.join(".local/state"))
    };
    let state = of_state.or_else(of_home).ok_or_else(|| {
        Ending::wrong_input(
            "nothing says where the spool is to be: name a directory that stays, as with --spool /var/lib/watchbell-worker",
        )
    })?;
    Ok(state.join(SPOOL_OF_OTHERS))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Verb};

    fn plan(words: &[&str]) -> Result<WorkPlan, Ending> {
        let words = [&["watchbell", "worker"], words].concat();
        match Args::try_parse_from(words).unwrap().verb {
            Verb::Worker(typed) => WorkPlan::of(&typed.work),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(words: &[&str], said: &str) {
        let why = format!("{:?}", plan(words).err().expect("it is refused"));
        assert!(why.contains(said), "{words:?}: {why}");
    }

    #[test]
    fn what_can_be_known_to_be_wrong_is_told_before_it_begins() {
        refused(&[], "this worker may run nothing: name programs with --allow");
        refused(&["--allow=/bin/echo", "--allow-any"], "give one of them");
        refused(&["--allow=echo"], "--allow: echo is no absolute path");
        refused(&["--allow=/no/such/program"], "cannot be found");
        refused(&["--allow=/"], "--allow-any");
        refused(&["--allow=/bin/sh", "--dir=here"], "--dir here: name it by its absolute path");
        refused(&["--allow=/bin/sh", "--dir=/no/such/dir"], "--dir /no/such/dir: No such file");
        refused(&["--allow=/bin/sh", "--dir=/bin/sh"], "it is no directory");
        refused(&["--allow=/bin/sh", "--user=no-such-user"], "--user: there is no user");
        if !rustix::process::geteuid().is_root() {
            refused(
                &["--allow=/bin/sh", "--user=root"],
                "only root runs commands as somebody else",
            );
        }
    }

    #[test]
    fn a_spool_is_where_it_was_typed_or_where_systemd_says_or_in_a_place_of_the_user() {
        let at = |words: &[&str], whose| {
            let words = [&["watchbell", "worker", "--allow=/bin/sh"], words].concat();
            match Args::try_parse_from(words).unwrap().verb {
                Verb::Worker(typed) => spool(&typed.work, whose).ok(),
                other => panic!("{other:?}"),
            }
        };
        let is = |words: &[&str], whose, path: &str| {
            assert_eq!(at(words, whose).as_deref(), Some(Path::new(path)), "{words:?}");
        };
        let none = ["--x-state-directory=", "--x-state-home=", "--x-home=/home/ann"];
        for whose in [Whose::Root, Whose::Others] {
            is(&["--x-state-directory=/s", "--spool=/x"], whose, "/x");
            is(&["--x-state-directory=/var/lib/a:/var/lib/b"], whose, "/var/lib/a");
        }
        is(&none, Whose::Root, "/var/lib/watchbell-worker");
        is(&none, Whose::Others, "/home/ann/.local/state/watchbell-worker");
        let own = ["--x-state-directory=", "--x-state-home=/own", "--x-home=/home/ann"];
        is(&own, Whose::Others, "/own/watchbell-worker");
        // No place may depend on where it is started.
        let relative = ["--x-state-directory=", "--x-state-home=own", "--x-home=."];
        assert_eq!(at(&relative, Whose::Others), None);
    }

    #[test]
    fn a_capacity_without_files_is_refused_with_what_it_needs() {
        assert_eq!(check_files(100, Some(864)), Ok(()));
        assert_eq!(check_files(1_000, None), Ok(()));
        let why = format!("{:?}", check_files(100, Some(863)).unwrap_err());
        assert!(why.contains("--capacity 100 needs 864 open files, and this process may have 863"));
    }
}
