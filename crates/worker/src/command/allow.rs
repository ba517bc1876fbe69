//! The list of what a worker may run.
//!
//! A program is looked for as the system would start it: the directory that it is in, with all links resolved, and its
//! name there. So `/bin/report` and `/usr/bin/report` are one program where one directory is a link to the other; and
//! two names of one file are two programs, since some programs (busybox, a Python environment) do by their name what they
//! do.
//!
//! | the list says | it allows |
//! |---|---|
//! | a program | that program, also if it is a link: whoever made the list named it |
//! | a directory | each file in it or below; not what a link in it leads to elsewhere |
//! | anything | every file that the user of the program may execute |
//!
//! What is checked is what is started: links are resolved once, and the file at the end of them is started, under the name
//! that was found. Whoever may write to an allowed directory, or to one above it, decides what is run. Links in the list
//! itself are resolved for each run, so that a deployment which switches one counts from the next run on.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::refusal::{CommandRefusal, Shown, is_passing};

/// Entries of a list.
pub const ALLOWED_MAX: usize = 100;

/// What a worker may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowList {
    /// Every program.
    Any,
    /// These programs, and those in these directories.
    Listed(Vec<PathBuf>),
}

/// What is wrong with a list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// Programs are not looked for.
    #[error("{} is no absolute path: name the program or directory in full", .0.display())]
    Relative(PathBuf),
    /// It would be read in two ways.
    #[error("{} has `..` in it: name the program or directory by its plain path", .0.display())]
    Upward(PathBuf),
    /// That is everything.
    #[error("/ would allow every program: if you mean that, use --allow-any")]
    Everything,
    /// It is not there, or cannot be seen.
    #[error("{} cannot be found: {why}", path.display())]
    Missing {
        /// What the list says.
        path: PathBuf,
        /// What the operating system says.
        why: String,
    },
    /// It can never be run.
    #[error("{} is neither a directory nor an executable file", .0.display())]
    NoProgram(PathBuf),
    /// There are too many.
    #[error(
        "{len} programs and directories are listed, and {ALLOWED_MAX} are the most: list a directory"
    )]
    TooMany {
        /// How many there are.
        len: usize,
    },
}

/// A program that may be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    /// The file: no part of it is a link.
    pub(super) file: PathBuf,
    /// The name under which it was found: its argument 0.
    pub(super) name: PathBuf,
}

impl AllowList {
    /// A list of programs and directories, all of which are there.
    pub fn listed(entries: Vec<PathBuf>) -> Result<Self, AllowError> {
        if entries.len() > ALLOWED_MAX {
            return Err(AllowError::TooMany { len: entries.len() });
        }
        for entry in &entries {
            check(entry)?;
        }
        Ok(Self::Listed(entries))
    }

    /// Whether nothing is allowed at all.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(entries) if entries.is_empty())
    }

    /// Judges what a run wants to run. Asks the file system, and so may take a while.
    pub(super) fn admit(&self, said: &str) -> Result<Admitted, CommandRefusal> {
        let path = Path::new(said);
        if !path.is_absolute() {
            return Err(CommandRefusal::Relative(Shown::new(said)));
        }
        if goes_up(path) {
            return Err(CommandRefusal::Upward(Shown::new(said)));
        }
        let missing = |why: io::Error| missing(said, &why);
        let found = match Found::of(path) {
            Err(why) if is_passing(&why) => return Err(missing(why)),
            found => found,
        };
        if let Self::Listed(entries) = self {
            judge(path, found.as_ref().ok(), entries)?;
        }
        let Found { name, file } = found.map_err(missing)?;
        let about = fs::metadata(&file).map_err(missing)?;
        if !about.is_file() {
            return Err(CommandRefusal::NoFile(Shown::new(said)));
        }
        if about.permissions().mode() & 0o111 == 0 {
            return Err(CommandRefusal::NotExecutable(Shown::new(said)));
        }
        Ok(Admitted { file, name })
    }
}

/// Why a program is not there, or why nobody can tell.
fn missing(said: &str, why: &io::Error) -> CommandRefusal {
    let (path, reason) = (Shown::new(said), why.to_string());
    if is_passing(why) {
        return CommandRefusal::Unreadable { path, why: reason };
    }
    CommandRefusal::Missing { path, why: reason }
}

/// Where a path leads.
struct Found {
    /// Its last part, in the directory at the end of all links before it.
    name: PathBuf,
    /// The file at the end of all links.
    file: PathBuf,
}

impl Found {
    fn of(path: &Path) -> io::Result<Self> {
        let name = name_of(path)?;
        let file = fs::canonicalize(&name)?;
        Ok(Self { name, file })
    }
}

fn name_of(path: &Path) -> io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    Ok(fs::canonicalize(parent)?.join(name))
}

/// Whether one of the entries allows it. What is not there is judged by its path alone: so a run learns nothing about
/// files that it may not run.
fn judge(path: &Path, found: Option<&Found>, entries: &[PathBuf]) -> Result<(), CommandRefusal> {
    let mut refusal = CommandRefusal::NotAllowed(Shown::of_path(path));
    let mut unreadable = None;
    for entry in entries {
        let is_below = path.starts_with(entry);
        let Some(Found { name, file }) = found else {
            if is_below {
                return Ok(());
            }
            continue;
        };
        if name_of(entry).is_ok_and(|entry| entry == *name) && !file.is_dir() {
            return Ok(());
        }
        let directory = match fs::canonicalize(entry) {
            Ok(directory) => directory,
            Err(why) if is_passing(&why) => {
                unreadable = Some(missing(&entry.to_string_lossy(), &why));
                continue;
            }
            Err(_) => continue,
        };
        if !directory.is_dir() {
            continue;
        }
        let is_in = name.starts_with(&directory);
        if is_in && file.starts_with(&directory) {
            return Ok(());
        }
        if is_in || is_below {
            let target = Shown::of_path(file);
            refusal = CommandRefusal::LeadsOut { path: Shown::of_path(path), target };
        }
    }
    Err(unreadable.unwrap_or(refusal))
}

fn goes_up(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

fn check(entry: &Path) -> Result<(), AllowError> {
    if !entry.is_absolute() {
        return Err(AllowError::Relative(entry.to_owned()));
    }
    if goes_up(entry) {
        return Err(AllowError::Upward(entry.to_owned()));
    }
    let missing =
        |why: io::Error| AllowError::Missing { path: entry.to_owned(), why: why.to_string() };
    if fs::canonicalize(entry).map_err(missing)? == Path::new("/") {
        return Err(AllowError::Everything);
    }
    let about = fs::metadata(entry).map_err(missing)?;
    let is_program = about.is_file() && about.permissions().mode() & 0o111 != 0;
    if about.is_dir() || is_program {
        return Ok(());
    }
    Err(AllowError::NoProgram(entry.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Two directories with programs, and links between them.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for dir in ["bin/deep", "other"] {
                fs::create_dir_all(place.at(dir)).unwrap();
            }
            for (name, mode) in
                [("bin/a", 0o755), ("bin/deep/b", 0o755), ("other/c", 0o755), ("bin/plain", 0o644)]
            {
                fs::write(place.at(name), "").unwrap();
                fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            for (link, to) in [
                ("bin/out", "other/c"),
                ("bin/within", "bin/a"),
                ("bin/away", "other"),
                ("linked", "bin"),
            ] {
                symlink(place.at(to), place.at(link)).unwrap();
            }
            place
        }

        /// As it is without links: temporary directories may lie behind one.
        fn at(&self, path: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(path)
        }

        fn list(&self, entries: &[&str]) -> AllowList {
            AllowList::listed(entries.iter().map(|entry| self.at(entry)).collect()).unwrap()
        }

        fn admit(&self, list: &AllowList, path: &str) -> Result<(PathBuf, PathBuf), String> {
            let admitted = list.admit(self.at(path).to_str().unwrap());
            let relative = |path: PathBuf| path.strip_prefix(self.at("")).unwrap().to_owned();
            admitted
                .map(|it| (relative(it.file), relative(it.name)))
                .map_err(|why| why.to_string().replace(self.at("").to_str().unwrap(), "@"))
        }

        #[track_caller]
        fn admits(&self, list: &AllowList, path: &str, file: &str, name: &str) {
            assert_eq!(self.admit(list, path), Ok((file.into(), name.into())));
        }

        #[track_caller]
        fn refuses(&self, list: &AllowList, path: &str, said: &str) {
            let why = self.admit(list, path).unwrap_err();
            assert!(why.contains(said), "{path}: {why}");
        }
    }

    #[test]
    fn a_listed_program_is_allowed_by_every_path_to_it_and_no_other_is() {
        let place = Place::new();
        let list = place.list(&["bin/a"]);
        place.admits(&list, "bin/a", "bin/a", "bin/a");
        place.admits(&list, "linked/a", "bin/a", "bin/a");
        place.admits(&list, "bin/./a", "bin/a", "bin/a");
        let why = "is not allowed on this worker: start the worker with --allow @";
        // Another name of the same file is another program.
        for other in ["bin/within", "bin/deep/b", "other/c", "bin/missing", "bin"] {
            place.refuses(&list, other, why);
        }
    }

    #[test]
    fn a_listed_link_is_allowed_by_its_name_and_what_it_leads_to_is_started() {
        let place = Place::new();
        let list = place.list(&["bin/out"]);
        place.admits(&list, "bin/out", "other/c", "bin/out");
        place.refuses(&list, "other/c", "is not allowed");
    }

    #[test]
    fn a_directory_allows_what_is_in_it_and_no_link_out_of_it() {
        let place = Place::new();
        for entry in ["bin", "linked"] {
            let list = place.list(&[entry]);
            place.admits(&list, "bin/a", "bin/a", "bin/a");
            place.admits(&list, "linked/deep/b", "bin/deep/b", "bin/deep/b");
            place.admits(&list, "bin/within", "bin/a", "bin/within");
            place.refuses(&list, "bin/out", "leads to @other/c, outside of the directory");
            place.refuses(&list, "other/c", "is not allowed");
        }
        place.refuses(&place.list(&["bin"]), "bin/away/c", "leads to @other/c, outside");
        // Unless it is listed itself.
        place.admits(&place.list(&["bin", "bin/out"]), "bin/out", "other/c", "bin/out");
    }

    #[test]
    fn a_path_that_goes_up_or_is_relative_is_refused_unseen() {
        let place = Place::new();
        for list in [place.list(&["bin"]), AllowList::Any] {
            place.refuses(&list, "bin/../bin/a", "has `..` in it");
            place.refuses(&list, "bin/deep/..", "has `..` in it");
            for relative in ["a", "./a", "", "bin/a"] {
                assert!(matches!(list.admit(relative), Err(CommandRefusal::Relative(_))));
            }
        }
    }

    #[test]
    fn what_is_no_program_is_told_to_who_may_run_it_and_to_nobody_else() {
        let place = Place::new();
        for list in [place.list(&["bin"]), AllowList::Any] {
            place.refuses(&list, "bin/plain", "is not executable: chmod +x @bin/plain");
            place.refuses(&list, "bin/deep", "is not a regular file");
            place.refuses(&list, "bin/missing", "cannot be found on this worker: No such file");
        }
        place.refuses(&place.list(&["bin"]), "other/missing", "is not allowed");
        place.refuses(&AllowList::Any, "bin/\0a", "cannot be found");
        assert!(AllowList::Any.admit("/").is_err());
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_refused_for_good() {
        let why = |errno: rustix::io::Errno| missing("/net/a", &errno.into());
        assert!(why(rustix::io::Errno::STALE).may_pass());
        assert!(!why(rustix::io::Errno::NOENT).may_pass());
    }

    #[test]
    fn a_list_that_is_switched_counts_from_the_next_run_on() {
        let place = Place::new();
        symlink(place.at("bin"), place.at("current")).unwrap();
        let list = place.list(&["current/a"]);
        place.admits(&list, "current/a", "bin/a", "bin/a");
        fs::create_dir(place.at("next")).unwrap();
        fs::copy(place.at("bin/a"), place.at("next/a")).unwrap();
        fs::remove_file(place.at("current")).unwrap();
        symlink(place.at("next"), place.at("current")).unwrap();
        place.admits(&list, "current/a", "next/a", "next/a");
        place.refuses(&list, "bin/a", "is not allowed");
    }

    #[test]
    fn a_list_names_what_is_there_and_no_more_than_its_limit() {
        let place = Place::new();
        let wrong = |entry: PathBuf| AllowList::listed(vec![entry]).unwrap_err();
        assert_eq!(wrong("bin".into()), AllowError::Relative("bin".into()));
        assert_eq!(wrong("/usr/../bin".into()), AllowError::Upward("/usr/../bin".into()));
        assert_eq!(wrong("/".into()), AllowError::Everything);
        assert!(matches!(wrong(place.at("missing")), AllowError::Missing { .. }));
        assert_eq!(wrong(place.at("bin/plain")), AllowError::NoProgram(place.at("bin/plain")));
        let of = |len| AllowList::listed(vec![place.at("bin"); len]);
        assert!(of(ALLOWED_MAX).is_ok());
        assert_eq!(of(ALLOWED_MAX + 1), Err(AllowError::TooMany { len: ALLOWED_MAX + 1 }));
        assert!(of(0).unwrap().is_empty() && !AllowList::Any.is_empty());
    }
}
