//! The environment of a command: clean, the same on every worker, and nothing that turns one program into another.
//!
//! | from | variables |
//! |---|---|
//! | the worker | `PATH` (the usual directories), `HOME`, `USER` and `LOGNAME` of the user, `LANG=C.UTF-8`, `TZ` if the worker has it |
//! | the run | its own, over those |
//! | the worker | `WATCHBELL_RUN_ID`, `_ATTEMPT`, `_TOKEN`, `_SCHEDULED_AT` (RFC 3339), `_QUEUE`, `_TRIGGER` if it has one, `_PROGRESS_FD` |
//!
//! Nothing else of the worker's own environment arrives, so no key of its own does.
//!
//! A run may not set what decides which code an allowed program loads or starts: otherwise a list of programs would be
//! worth nothing to whoever may submit runs. These are refused, with any list: everything that the dynamic loader and the
//! C library read (`LD_…`, `GLIBC_TUNABLES`), `PATH`, and what shells and the usual interpreters load before their program:
//! see [`LOADERS`]; and `HOME` and `XDG_…`, where programs look for their settings. A program that needs one of them sets it
//! itself, in a script that is allowed. That is a best effort: a program may read a variable that nobody here has heard of,
//! and files in the working directory that its run names.

use client::queue::CommandSpec;
use client::worker::ClaimedRun;

use super::account::Account;
use super::refusal::{CommandRefusal, Shown};

/// Where programs look for others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What our own variables begin with.
const OWN: &str = "WATCHBELL_";

/// Variables that no run may set, by how they begin, in whatever case.
#[rustfmt::skip]
const LOADER_FAMILIES: [&str; 12] = [
    "LD_", "DYLD_", "BASH_FUNC_", "PERL5", "LUA_INIT", "LUA_PATH", "LUA_CPATH", "GIT_CONFIG", "GIT_SSH", "NPM_CONFIG_",
    "XDG_", "R_PROFILE",
];

/// Variables that no run may set, in whatever case. Those that are known to us: every program may read others.
#[rustfmt::skip]
pub const LOADERS: [&str; 82] = [
    // The loader and the C library.
    "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_TRACE", "HOSTALIASES",
    // Where programs look for others, and shells.
    "PATH", "IFS", "ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "CDPATH", "PS4", "PROMPT_COMMAND", "ZDOTDIR", "FPATH",
    // Interpreters.
    "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS",
    "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PERLLIB", "RUBYOPT", "RUBYLIB", "NODE_OPTIONS",
    "NODE_PATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "PHPRC", "PHP_INI_SCAN_DIR",
    "R_ENVIRON", "R_ENVIRON_USER", "DOTNET_STARTUP_HOOKS", "AWKLIBPATH", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS",
    "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "JAVA_OPTS",
    // Libraries and tools that start what a variable says.
    "OPENSSL_CONF", "OPENSSL_MODULES", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR", "GIT_PROXY_COMMAND", "GIT_PAGER", "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_TEMPLATE_DIR",
    "SSH_ASKPASS", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "TAR_OPTIONS", "MAKEFLAGS",
    "GNUMAKEFLAGS", "MAKEFILES", "RSYNC_RSH", "CVS_RSH", "KUBECONFIG",
    // Where programs look for their settings, which name others.
    "HOME",
];

/// The variables of a run's command, the last of a name over those before it.
pub(super) fn variables(
    run: &ClaimedRun,
    command: &CommandSpec,
    account: &Account,
    zone: Option<&str>,
) -> Result<Vec<(String, String)>, CommandRefusal> {
    for name in command.env.keys() {
        check(name)?;
    }
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut all = vec![
        pair("PATH", PATH),
        pair("HOME", &account.home),
        pair("USER", &account.name),
        pair("LOGNAME", &account.name),
        pair("LANG", "C.UTF-8"),
    ];
    all.extend(zone.map(|zone| pair("TZ", zone)));
    all.extend(command.env.iter().map(|(name, value)| pair(name, value)));
    all.extend([
        pair("WATCHBELL_RUN_ID", &run.id),
        pair("WATCHBELL_ATTEMPT", &run.attempt.to_string()),
        pair("WATCHBELL_TOKEN", &run.token.to_string()),
        pair("WATCHBELL_SCHEDULED_AT", &run.scheduled.to_string()),
        pair("WATCHBELL_QUEUE", &run.queue),
    ]);
    all.extend(run.trigger.iter().map(|trigger| pair("WATCHBELL_TRIGGER", trigger)));
    Ok(all)
}

fn check(name: &str) -> Result<(), CommandRefusal> {
    if name.starts_with(OWN) {
        return Err(CommandRefusal::Own(Shown::new(name)));
    }
    // Some programs read names in lower case as well, as npm does.
    let upper = name.to_ascii_uppercase();
    let is_loader = LOADERS.contains(&upper.as_str())
        || LOADER_FAMILIES.iter().any(|family| upper.starts_with(family));
    if is_loader {
        return Err(CommandRefusal::Loader(Shown::new(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(trigger: Option<&str>) -> ClaimedRun {
        serde_json::from_value(serde_json::json!({
            "id": "run_1", "token": 17, "attempt": 2, "queue": "mail", "trigger": trigger,
            "scheduled": "2027-01-15T09:00:00+01:00",
        }))
        .unwrap()
    }

    fn account() -> Account {
        Account { name: "ann".to_owned(), uid: 7, gid: 8, home: "/home/ann".to_owned() }
    }

    fn with(env: &[(&str, &str)]) -> CommandSpec {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CommandSpec { env: env.collect(), ..CommandSpec::default() }
    }

    #[test]
    fn a_command_has_what_the_worker_the_run_and_nobody_else_says() {
        let own = with(&[("A", "1=2"), ("LANG", "de_DE.UTF-8")]);
        let all = variables(&run(Some("nightly")), &own, &account(), Some("Europe/Berlin"));
        let all = all.unwrap();
        let mut counts = std::collections::BTreeMap::new();
        counts.extend(all.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let expected = [
            ("A", "1=2"),
            ("HOME", "/home/ann"),
            ("LANG", "de_DE.UTF-8"),
            ("LOGNAME", "ann"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("TZ", "Europe/Berlin"),
            ("USER", "ann"),
            ("WATCHBELL_ATTEMPT", "2"),
            ("WATCHBELL_QUEUE", "mail"),
            ("WATCHBELL_RUN_ID", "run_1"),
            ("WATCHBELL_SCHEDULED_AT", "2027-01-15T08:00:00Z"),
            ("WATCHBELL_TOKEN", "17"),
            ("WATCHBELL_TRIGGER", "nightly"),
        ];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
        let least = variables(&run(None), &with(&[]), &account(), None).unwrap();
        assert!(!least.iter().any(|(name, _)| name == "TZ" || name == "WATCHBELL_TRIGGER"));
    }

    #[test]
    fn what_would_change_the_program_is_refused_by_its_name() {
        let refused = |name: &str| {
            variables(&run(None), &with(&[(name, "x")]), &account(), None).unwrap_err().to_string()
        };
        let families = [
            "LD_PRELOAD",
            "LD_ANYTHING",
            "BASH_FUNC_ls%%",
            "PERL5LIB",
            "LUA_PATH_5_4",
            "XDG_CONFIG_HOME",
            "R_PROFILE_USER",
            "npm_config_script_shell",
            "ld_preload",
            "Tar_Options",
        ];
        for name in LOADERS.into_iter().chain(families) {
            let why = refused(name);
            assert!(why.starts_with(&format!("the variable {name} decides what code")), "{why}");
        }
        for name in ["WATCHBELL_TOKEN", "WATCHBELL_PROGRESS_FD", "WATCHBELL_KEY", "WATCHBELL_"] {
            assert!(refused(name).contains("begins with WATCHBELL_"), "{name}");
        }
        for name in ["LANGUAGE", "LDAP_HOST", "PYTHONUNBUFFERED", "watchbell_x", "GIT_AUTHOR_NAME"]
        {
            assert!(
                variables(&run(None), &with(&[(name, "x")]), &account(), None).is_ok(),
                "{name}"
            );
        }
    }
}
