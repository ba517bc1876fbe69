//! What the program prints, in files that follow each other.
//!
//! Standard output and standard error go through one pipe, in the order in which they are printed. When a file is full it
//! becomes `FILE.1`, what was that becomes `FILE.2`, and the oldest goes. A file ends at the end of a line, unless a line is
//! longer than a file. A disk that is full loses what is printed then, and not the program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use process::Streams;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinSet, spawn_blocking};

/// What is read at a time: as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Where output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPlan {
    /// The file that is written to.
    pub path: PathBuf,
    /// How large it becomes.
    pub bytes_max: u64,
    /// How many there are, with that one.
    pub files: u32,
}

/// The files of a program's output, while it is written.
pub struct OutputFiles {
    /// Our end for writing: as long as it is open, the pipe has no end.
    stdout: OwnedFd,
    task: JoinSet<()>,
}

impl OutputFiles {
    /// Opens the file and begins to write. To be called in a runtime.
    pub fn start(plan: &OutputPlan) -> io::Result<Self> {
        let files = Files::open(plan)?;
        let (read, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let pipe = Receiver::from_owned_fd(read)?;
        let mut task = JoinSet::new();
        task.spawn(write_all(pipe, files));
        Ok(Self { stdout, task })
    }

    /// What the program reads and prints.
    pub fn streams(&self) -> io::Result<Streams> {
        let out = || self.stdout.as_fd().try_clone_to_owned();
        Ok(Streams { stdin: File::open("/dev/null")?.into(), stdout: out()?, stderr: out()? })
    }

    /// Waits until all is written. Nobody else has the streams any more.
    pub async fn finish(self) {
        let Self { stdout, task } = self;
        drop(stdout);
        task.join_all().await;
    }
}

async fn write_all(pipe: Receiver, mut files: Files) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                if pipe.readable().await.is_err() {
                    return;
                }
                continue;
            }
            Err(why) => {
                tracing::error!(%why, "the program's output cannot be read any more");
                return;
            }
        };
        let written = spawn_blocking(move || {
            files.write(&buffer[..read]);
            (files, buffer)
        });
        let Ok(back) = written.await else { return };
        (files, buffer) = back;
    }
}

/// The files, as they are on disk.
struct Files {
    plan: OutputPlan,
    file: File,
    bytes: u64,
    /// Whether it was told that nothing can be written.
    is_told: bool,
}

impl Files {
    fn open(plan: &OutputPlan) -> io::Result<Self> {
        // A pipe would be waited for, and a device put aside when it is full.
        if fs::metadata(&plan.path).is_ok_and(|about| !about.is_file()) {
            return Err(io::Error::other("there is something that is no file: name another one"));
        }
        let file = append(&plan.path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { plan: plan.clone(), file, bytes, is_told: false })
    }

    fn write(&mut self, bytes: &[u8]) {
        let Err(why) = self.try_write(bytes) else {
            self.is_told = false;
            return;
        };
        // Some of it may be written.
        self.bytes = self.file.metadata().map_or(self.bytes, |about| about.len());
        if !std::mem::replace(&mut self.is_told, true) {
            let path = self.plan.path.display();
            tracing::warn!(%path, %why, "the program's output cannot be written, and is lost");
        }
    }

    fn try_write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = usize::try_from(self.plan.bytes_max.saturating_sub(self.bytes));
            let room = room.unwrap_or(usize::MAX);
            let fits = if bytes.len() <= room {
                bytes.len()
            } else {
                let lines = bytes[..room].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
                lines.unwrap_or(if self.bytes == 0 { room } else { 0 })
            };
            let (now, later) = bytes.split_at(fits);
            self.file.write_all(now)?;
            self.bytes += now.len() as u64;
            bytes = later;
            if !bytes.is_empty() {
                self.turn()?;
            }
        }
        Ok(())
    }

    /// Puts the file aside, and begins another one.
    fn turn(&mut self) -> io::Result<()> {
        let of = |number: u32| aside(&self.plan.path, number);
        for number in (1..self.plan.files.saturating_sub(1)).rev() {
            if_there(fs::rename(of(number), of(number + 1)))?;
        }
        if self.plan.files > 1 {
            if_there(fs::rename(&self.plan.path, of(1)))?;
        } else {
            if_there(fs::remove_file(&self.plan.path))?;
        }
        self.file = append(&self.plan.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn aside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Somebody else may have removed it.
fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dir: &Path, bytes_max: u64, files: u32) -> OutputPlan {
        OutputPlan { path: dir.join("out"), bytes_max, files }
    }

    fn texts(dir: &Path) -> Vec<String> {
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        ["out", "out.1", "out.2", "out.3"].into_iter().filter_map(read).collect()
    }

    #[test]
    fn a_full_file_is_put_aside_at_the_end_of_a_line_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(&plan(dir.path(), 8, 3)).unwrap();
        files.try_write(b"one\ntwo\nthree\nfour\nfive\n").unwrap();
        assert_eq!(texts(dir.path()), ["five\n", "four\n", "three\n"]);
        let mut again = Files::open(&plan(dir.path(), 8, 3)).unwrap();
        again.try_write(b"si\n").unwrap();
        again.try_write(b"seven\n").unwrap();
        assert_eq!(texts(dir.path()), ["seven\n", "five\nsi\n", "four\n"]);
    }

    #[test]
    fn a_line_that_is_longer_than_a_file_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(&plan(dir.path(), 4, 2)).unwrap();
        files.try_write(b"a\nbcdefgh").unwrap();
        assert_eq!(texts(dir.path()), ["fgh", "bcde"]);
    }

    #[test]
    fn with_one_file_nothing_is_kept_of_what_was() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(&plan(dir.path(), 4, 1)).unwrap();
        files.try_write(b"one\ntwo\n").unwrap();
        assert_eq!(texts(dir.path()), ["two\n"]);
    }

    #[test]
    fn a_file_that_somebody_removes_is_made_anew_when_it_is_full() {
        for count in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let mut files = Files::open(&plan(dir.path(), 4, count)).unwrap();
            files.try_write(b"one\n").unwrap();
            fs::remove_file(dir.path().join("out")).unwrap();
            files.try_write(b"two\n").unwrap();
            assert_eq!(texts(dir.path()), ["two\n"], "{count} files");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/null")] {
            let plan = OutputPlan { path: path.to_owned(), bytes_max: 4_096, files: 2 };
            let why = Files::open(&plan).err().map(|why| why.to_string());
            assert!(why.unwrap().contains("is no file"), "{}", path.display());
        }
    }

    #[test]
    fn a_disk_that_is_full_loses_what_is_printed_then_and_nothing_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(&plan(dir.path(), 4_096, 2)).unwrap();
        files.file = File::options().write(true).open("/dev/full").unwrap();
        files.write(b"lost\n");
        assert!(files.is_told && files.bytes == 0);
        files.file = append(&dir.path().join("out")).unwrap();
        files.write(b"kept\n");
        assert_eq!((texts(dir.path()), files.is_told), (vec!["kept\n".to_owned()], false));
    }

    #[tokio::test]
    async fn what_is_printed_is_written_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let output = OutputFiles::start(&plan(dir.path(), 1_000_000, 2)).unwrap();
        let Streams { stdout, stderr, .. } = output.streams().unwrap();
        for number in 0..1_000 {
            let stream = if number % 2 == 0 { &stdout } else { &stderr };
            rustix::io::write(stream, format!("{number}\n").as_bytes()).unwrap();
        }
        drop((stdout, stderr));
        output.finish().await;
        let text = texts(dir.path()).concat();
        assert!(text.lines().map(str::parse).eq((0..1_000).map(Ok)), "{text}");
    }
}
