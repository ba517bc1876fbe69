//! From what was typed to what is meant, and whether it can be kept.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::hold::{DeadlineFile, HeldProgram, HoldLock, HoldPlan, OutputFiles, OutputPlan};
use engine::hash::hash;
use engine::hold::life::{HealthRules, LifeRules};
use engine::hold::timing::{HoldTiming, TreeKill};
use engine::lease::Ttl;
use engine::trigger::check_name;
use process::{Isolation, Launcher, StartError, Streams, Wanted};
use rustix::process::geteuid;
use store::StoreUrl;
use store::election::{Mode, claim_of};
use store::machine::{Machine, System};
use store::session::{NodeId, NodeInfo};

use crate::args::hold::{HoldArgs, ModeName};
use crate::args::worker::Isolate;
use crate::exit::Ending;
use crate::server::host_name;

/// What a session says that its node does.
const ROLE: &str = "hold";

/// The project that nobody has to name.
const USUAL_PROJECT: &str = "default";

/// T, if nobody says otherwise.
const TTL: Duration = Duration::from_secs(5);

/// How much of the names is in that of the lock: the rest is in its hash.
const LOCK_NAME_CHARS: usize = 60;

/// What the arguments of `watchbell hold` mean.
pub(super) struct SupervisorPlan {
    pub(super) url: StoreUrl,
    pub(super) node: NodeInfo,
    pub(super) hold: HoldPlan,
    pub(super) output: Option<OutputFiles>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) wait: Option<Duration>,
}

impl SupervisorPlan {
    pub(super) async fn of(typed: &HoldArgs) -> Result<Self, Ending> {
        for (what, name) in [("NAME", &typed.name), ("--project", &typed.project)] {
            check_name(name).map_err(|why| Ending::wrong_input(format!("{what}: {why}")))?;
        }
        let url = url(typed)?;
        let ttl = Ttl::new(typed.ttl.unwrap_or(TTL)).map_err(wrong)?;
        // Before anything is tried: no kill is quicker than the kernel's.
        HoldTiming::check(ttl, TreeKill::Kernel).map_err(wrong)?;
        let claim = claim_of(&typed.project, &typed.name).map_err(wrong)?;
        let node = node(typed, ttl, claim.candidacy())?;
        let program = program(typed)?;
        let isolation = isolation(typed.isolate, &program).await?;
        let kill = if isolation.is_weak() { TreeKill::Search } else { TreeKill::Kernel };
        let timing = HoldTiming::check(ttl, kill).map_err(wrong)?;
        let directory = std::path::absolute(lock_directory(typed))
            .map_err(|why| wrong(format!("--lock-dir: {why}")))?;
        let name = lock_name(typed, &url);
        let refused = |why: ::hold::LockError| Ending::refused(why.to_string());
        let lock = HoldLock::new(&directory, &name).map_err(refused)?;
        let deadline = DeadlineFile::new(&directory, &name).map_err(refused)?;
        let output = output(typed)?;
        let streams = match &output {
            Some(output) => output.streams(),
            None => Streams::own(),
        };
        let mode = match typed.mode {
            ModeName::Auto => Mode::Automatic,
            ModeName::Manual => Mode::Manual,
        };
        let health = typed.health.as_ref().map(|_| HealthRules {
            interval: typed.health_interval,
            failures: typed.health_failures,
            start_grace: typed.start_grace,
        });
        let hold = HoldPlan {
            claim,
            name: typed.name.clone(),
            project: Some(typed.project.clone()).filter(|project| project != USUAL_PROJECT),
            node: node.id.as_str().to_owned(),
            mode,
            rules: LifeRules { timing, stop_timeout: typed.stop_timeout, health },
            program,
            streams: Arc::new(streams?),
            health: typed.health.clone(),
            isolation,
            lock,
            deadline,
        };
        Ok(Self { url, node, hold, output, metrics: typed.metrics, wait: typed.wait })
    }
}

fn wrong(why: impl std::fmt::Display) -> Ending {
    Ending::wrong_input(why.to_string())
}

fn url(typed: &HoldArgs) -> Result<StoreUrl, Ending> {
    if let Some(server) = &typed.server {
        let url = typed.pass.store(server)?;
        return match url {
            StoreUrl::Server(_) => Ok(url),
            StoreUrl::File(_)
            | StoreUrl::Memory
            | StoreUrl::Etcd(_)
            | StoreUrl::Redis(_)
            | StoreUrl::Postgres(_) => Err(Ending::wrong_input(
                "--server is a Watchbell server, https://HOST:PORT; a store is given with --store",
            )),
        };
    }
    match &typed.store {
        Some(store) => shared(typed.pass.store(store)?),
        None => Err(Ending::wrong_input(
            "where those meet who hold it is missing: give --store URL or --server URL, or WATCHBELL_STORE",
        )),
    }
}

/// What nobody else can reach tells nobody else who has it.
fn shared(url: StoreUrl) -> Result<StoreUrl, Ending> {
    match &url {
        StoreUrl::Memory => Err(Ending::wrong_input(
            "memory: is known to this process alone, so another one would run the program as well: give a store that all \
             of them reach, or --server URL",
        )),
        StoreUrl::File(_) => {
            tracing::warn!(%url, "no other machine reaches this store: one with a store of its own runs the program as well");
            Ok(url)
        }
        StoreUrl::Etcd(_) | StoreUrl::Redis(_) | StoreUrl::Postgres(_) | StoreUrl::Server(_) => {
            Ok(url)
        }
    }
}

fn node(typed: &HoldArgs, ttl: Ttl, candidacy: Option<&str>) -> Result<NodeInfo, Ending> {
    let drawn = || format!("{:.50}-{:08x}", host_name(), System.random() >> 32);
    let id = NodeId::new(typed.node.clone().unwrap_or_else(drawn)).map_err(wrong)?;
    let candidacies = candidacy.map(str::to_owned).into_iter().collect();
    Ok(NodeInfo { id, ttl, url: None, roles: vec![ROLE.to_owned()], candidacies })
}

fn program(typed: &HoldArgs) -> Result<HeldProgram, Ending> {
    let directory = std::env::current_dir()
        .map_err(|why| Ending::failed(format!("the working directory is gone: {why}")))?;
    HeldProgram::find(&typed.command, directory, std::env::vars_os()).map_err(wrong)
}

/// What keeps the program together here: found out by trying, before there is a claim.
async fn isolation(typed: Isolate, program: &HeldProgram) -> Result<Isolation, Ending> {
    let wanted = match typed {
        Isolate::Auto => Wanted::Auto,
        Isolate::Namespace => Wanted::Namespace,
        Isolate::Cgroup => Wanted::Exactly(Isolation::Cgroup),
        Isolate::Group => Wanted::Exactly(Isolation::Group),
    };
    Launcher::new(wanted).probe(&program.bare()).await.map_err(|why| match why {
        StartError::Isolation { .. } | StartError::Limit { .. } => Ending::refused(why.to_string()),
        StartError::Program(_) | StartError::NotStartable { .. } => wrong(why),
        StartError::Busy(_) | StartError::Interrupted | StartError::TooSlow => {
            Ending::failed(why.to_string())
        }
    })
}

fn lock_directory(typed: &HoldArgs) -> PathBuf {
    let uid = geteuid();
    match (&typed.lock_dir, &typed.runtime_dir) {
        (Some(directory), _) => directory.clone(),
        (None, _) if uid.is_root() => PathBuf::from("/run/watchbell"),
        (None, Some(runtime)) if runtime.is_absolute() => runtime.join("watchbell"),
        (None, _) => PathBuf::from(format!("/tmp/watchbell-{}", uid.as_raw())),
    }
}

/// Of this hold in this store, and of no other: readable, and told apart by a hash of all of it.
fn lock_name(typed: &HoldArgs, url: &StoreUrl) -> String {
    let (project, name) = (&typed.project, &typed.name);
    let whole = hash(&format!("{project}/{name}/{url}"), "hold lock");
    let readable: String = format!("{project}.{name}").chars().take(LOCK_NAME_CHARS).collect();
    format!("{readable}-{whole:016x}")
}

fn output(typed: &HoldArgs) -> Result<Option<OutputFiles>, Ending> {
    let Some(path) = &typed.output_file else { return Ok(None) };
    let plan = OutputPlan {
        path: path.clone(),
        bytes_max: typed.output_max_bytes,
        files: typed.output_files,
    };
    let started = OutputFiles::start(&plan);
    let refused = |why| Ending::refused(format!("--output-file {}: {why}", path.display()));
    started.map(Some).map_err(refused)
}
