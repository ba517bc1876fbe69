//! Cgroups: limits of a tree, and one more way to kill it.
//!
//! Machines have them in three forms: version 2 alone, version 1 alone, or both beside each other, with the controllers in
//! version 1 and an empty version 2 mounted elsewhere. Killing needs version 2 and no controller. A limit needs the
//! controller, wherever it is. All of it needs the right to make directories there, which root has, and others have if
//! somebody gave it to them (systemd: `Delegate=`).
//!
//! A tree's cgroups lie below the supervisor's own. Version 2 gives controllers to no cgroup whose parent has processes, so
//! for limits they may also lie beside it (systemd: `DelegateSubgroup=`).
//!
//! The program must be in them before its first instruction. So the shim enters, starts the program, and goes home: it must
//! not count towards the limits, nor be killed with the rest.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::Isolation;
use crate::error::Step;
use crate::message::TreeName;
use crate::program::Limits;

/// The cgroups of a tree; most have none.
pub(crate) struct Cgroups {
    places: Vec<Place>,
    /// Whether the first is of version 2, and kills.
    kills: bool,
}

/// One cgroup of a tree.
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    /// Where the shim came from, in the same hierarchy.
    pub(crate) home: PathBuf,
    /// The directory, ready for the kernel.
    path: CString,
}

/// A hierarchy of cgroups that is mounted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    Unified,
    Controller(&'static str),
}

/// A limit: its controller, and its files in either version.
struct Limit {
    controller: &'static str,
    value: u64,
    unified_file: &'static str,
    own_file: &'static str,
    step: Step,
}

/// Where the limit of processes stands, in both versions.
const PROCESSES_FILE: &str = "pids.max";

impl Cgroups {
    /// Makes what the isolation and the limits need.
    pub(crate) fn make(
        isolation: Isolation,
        limits: Limits,
        name: TreeName,
    ) -> Result<Self, (Step, io::Error)> {
        let mut made = Self { places: Vec::new(), kills: isolation == Isolation::Cgroup };
        let done = made.make_all(isolation, limits, name);
        if done.is_err() {
            made.remove();
        }
        done.map(|()| made)
    }

    fn make_all(
        &mut self,
        isolation: Isolation,
        limits: Limits,
        name: TreeName,
    ) -> Result<(), (Step, io::Error)> {
        if isolation != Isolation::Cgroup && limits.are_none() {
            return Ok(());
        }
        let name = format!("watchbell-{}-{}", name.supervisor, name.number);
        if isolation == Isolation::Cgroup {
            self.make_killable(&name).map_err(|why| (Step::Cgroup, why))?;
        }
        for limit in limits_of(limits) {
            self.make_limit(&limit, &name).map_err(|why| (limit.step, why))?;
        }
        Ok(())
    }

    fn make_killable(&mut self, name: &str) -> io::Result<()> {
        let home = home(Hierarchy::Unified)?;
        let directory = home.join(name);
        make_directory(&directory)?;
        self.places.push(Place::new(directory.clone(), home));
        // Kernels before 5.14 have no such file.
        fs::metadata(directory.join("cgroup.kill")).map(drop)
    }

    fn make_limit(&mut self, limit: &Limit, name: &str) -> io::Result<()> {
        let (directory, file) = match self.unified_with(limit.controller, name) {
            Ok(directory) => (directory, limit.unified_file),
            Err(why) => {
                let hierarchy = Hierarchy::Controller(limit.controller);
                // If version 1 has no such controller, what version 2 said is the reason.
                let home = home(hierarchy).map_err(|_| why)?;
                let directory = home.join(name);
                self.make_place(&directory, home)?;
                (directory, limit.own_file)
            }
        };
        fs::write(directory.join(file), limit.value.to_string())
    }

    /// A cgroup of version 2 with this controller, below the own one or beside it.
    fn unified_with(&mut self, controller: &str, name: &str) -> io::Result<PathBuf> {
        let home = home(Hierarchy::Unified)?;
        let available = fs::read_to_string(home.join("cgroup.controllers"))?;
        if !available.split_whitespace().any(|one| one == controller) {
            let why = format!("cgroups of version 2 have no controller {controller} here");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if let Some(place) = self.places.first().filter(|_| self.kills) {
            enable(place.directory.parent().expect("it has a name in it"), controller)?;
            return Ok(place.directory.clone());
        }
        let parents = [Some(home.as_path()), home.parent()].into_iter().flatten();
        let mut last = io::ErrorKind::NotFound.into();
        for parent in parents {
            match enable(parent, controller) {
                Ok(()) => {
                    let directory = parent.join(name);
                    self.make_place(&directory, home.clone())?;
                    return Ok(directory);
                }
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn make_place(&mut self, directory: &Path, home: PathBuf) -> io::Result<()> {
        if self.places.iter().any(|place| place.directory == directory) {
            return Ok(());
        }
        make_directory(directory)?;
        self.places.push(Place::new(directory.to_owned(), home));
        Ok(())
    }

    /// Those that launch has made, as it tells the shim.
    pub(crate) fn of_places(
        isolation: Isolation,
        mut paths: impl Iterator<Item = OsString>,
    ) -> Self {
        let mut places = Vec::new();
        while let (Some(directory), Some(home)) = (paths.next(), paths.next()) {
            places.push(Place::new(directory.into(), home.into()));
        }
        Self { places, kills: isolation == Isolation::Cgroup }
    }

    /// All of them.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// Puts this process into them, or leaves it where it was.
    pub(crate) fn enter(&self) -> io::Result<()> {
        for place in &self.places {
            if let Err(why) = join(&place.directory) {
                self.go_home();
                return Err(why);
            }
        }
        Ok(())
    }

    /// Puts this process back to where it was.
    pub(crate) fn go_home(&self) {
        for place in &self.places {
            // If this is refused the shim stays inside: it counts towards the limits, and is killed with the tree.
            let _ = join(&place.home);
        }
    }

    /// Takes the shim's own place out of the limit of processes, once it has gone home. Until then a program may have one
    /// more: the other order would refuse it one that it may have.
    pub(crate) fn tighten(&self) {
        for place in &self.places {
            let file = place.directory.join(PROCESSES_FILE);
            let limit = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            if let Some(limit) = limit.map(|limit: u64| limit.saturating_sub(1)) {
                let _ = fs::write(file, limit.to_string());
            }
        }
    }

    /// What the tree is killed with, and where it shows whether anybody is left; none if this is not how it is killed.
    pub(crate) fn killable(&self) -> io::Result<Option<(OwnedFd, Populated)>> {
        let Some(place) = self.places.first().filter(|_| self.kills) else { return Ok(None) };
        let file =
            |name, flags| open(place.directory.join(name), flags | OFlags::CLOEXEC, Mode::empty());
        let kill = file("cgroup.kill", OFlags::WRONLY)?;
        Ok(Some((kill, Populated(file("cgroup.events", OFlags::RDONLY)?))))
    }

    /// Removes them, if they are empty. Allocates nothing.
    pub(crate) fn remove(&self) {
        for place in &self.places {
            // Whoever comes second finds it gone.
            let _ = rustix::fs::rmdir(place.path.as_c_str());
        }
    }
}

impl Place {
    fn new(directory: PathBuf, home: PathBuf) -> Self {
        let path = CString::new(directory.clone().into_os_string().into_vec())
            .expect("no path of the kernel has a byte 0");
        Self { directory, home, path }
    }
}

/// Where a cgroup shows whether there is anybody in it.
pub(crate) struct Populated(OwnedFd);

impl Populated {
    /// Waits until nobody is, and kills again whoever came in meanwhile.
    pub(crate) fn wait_until_not(&self, kill: &OwnedFd) {
        // The kernel tells of a change; the time is for the case that it came between reading and waiting.
        let soon = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        while self.is() {
            let _ = rustix::io::write(kill, b"1");
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::PRI)], Some(&soon));
        }
    }

    fn is(&self) -> bool {
        let mut bytes = [0; 256];
        match rustix::io::pread(&self.0, &mut bytes, 0) {
            Ok(len) => bytes[..len].windows(11).any(|word| word == b"populated 1"),
            // It was removed, so it was empty.
            Err(Errno::NODEV) => false,
            Err(_) => true,
        }
    }
}

fn limits_of(limits: Limits) -> impl Iterator<Item = Limit> {
    let memory = limits.memory_bytes_max.map(|value| Limit {
        controller: "memory",
        value,
        unified_file: "memory.max",
        own_file: "memory.limit_in_bytes",
        step: Step::MemoryLimit,
    });
    // The shim is inside while it starts the program, and takes its place back when it has left.
    let processes = limits.processes_max.map(|value| Limit {
        controller: "pids",
        value: value.saturating_add(1),
        unified_file: PROCESSES_FILE,
        own_file: PROCESSES_FILE,
        step: Step::ProcessLimit,
    });
    memory.into_iter().chain(processes)
}

fn enable(parent: &Path, controller: &str) -> io::Result<()> {
    fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"))
}

fn join(directory: &Path) -> io::Result<()> {
    fs::write(directory.join("cgroup.procs"), "0")
}

/// One of this name was left by a supervisor that had the same id: if it is empty it is removed.
fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir(directory).and_then(|()| fs::create_dir(directory))
        }
        other => other,
    }
}

/// The directory of this process' own cgroup.
fn home(hierarchy: Hierarchy) -> io::Result<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let path = own_path(&own, hierarchy);
    let found = path.and_then(|path| directory(&mounts, hierarchy, path));
    let missing = || {
        let what = match hierarchy {
            Hierarchy::Unified => "no cgroups of version 2 are mounted here".to_owned(),
            Hierarchy::Controller(name) => {
                format!("no cgroups with the controller {name} are mounted here")
            }
        };
        io::Error::new(io::ErrorKind::Unsupported, what)
    };
    found.ok_or_else(missing)
}

/// In `/proc/self/cgroup`: `4:memory:/a/b`, and `0::/a/b` for version 2.
fn own_path(own: &str, hierarchy: Hierarchy) -> Option<&str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match hierarchy {
            Hierarchy::Unified => number == "0" && controllers.is_empty(),
            Hierarchy::Controller(name) => controllers.split(',').any(|one| one == name),
        };
        is_it.then_some(path)
    })
}

/// In `/proc/self/mountinfo`: `36 35 0:30 ROOT POINT options … - cgroup2 source options`. The path of a cgroup is counted
/// from the root of its hierarchy, of which the mount may show a part.
fn directory(mounts: &str, hierarchy: Hierarchy, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = match hierarchy {
            Hierarchy::Unified => kind == "cgroup2",
            Hierarchy::Controller(name) => {
                kind == "cgroup" && options.split(',').any(|one| one == name)
            }
        };
        let below = Path::new(path).strip_prefix(root).ok()?;
        is_it.then(|| Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "4:memory:/a/b\n3:cpu,pids:/\n1:name=systemd:/\n0::/c\n";
    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 /a /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,cpu,pids
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn found(hierarchy: Hierarchy) -> Option<PathBuf> {
        directory(MOUNTS, hierarchy, own_path(OWN, hierarchy)?)
    }

    #[test]
    fn each_version_is_found_where_it_is_mounted() {
        assert_eq!(found(Hierarchy::Unified), Some("/sys/fs/cgroup/unified/c".into()));
        let pids = found(Hierarchy::Controller("pids"));
        assert_eq!(pids, Some("/sys/fs/cgroup/pids/".into()));
    }

    #[test]
    fn a_mount_may_show_a_part_of_its_hierarchy() {
        let memory = found(Hierarchy::Controller("memory"));
        assert_eq!(memory, Some("/sys/fs/cgroup/memory/b".into()));
        assert_eq!(directory(MOUNTS, Hierarchy::Controller("memory"), "/other"), None);
    }

    #[test]
    fn a_controller_that_nobody_mounted_is_not_found() {
        assert_eq!(found(Hierarchy::Controller("io")), None);
    }
}
