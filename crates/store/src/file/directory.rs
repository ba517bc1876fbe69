//! The directory of a `file` store: who may use it, what it is, and where things lie.
//!
//! ```text
//! lock           held while a process uses the directory; names that process
//! format         what is in here: JSON with a format number, and a line with its checksum
//! log/           the segments of the log, and its seal
//! index/         the tables of the index
//! index.damaged  a damaged index that was made anew, for a look; may be removed
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use engine::record::{self, Format, RecordError};
use rustix::fs::StatFs;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::log::LogId;
use crate::{OpenError, entropy};

/// The format of the whole directory. It rises when an older binary would misread any file in it: since 2, long values of
/// the index are packed.
const FORMAT: Format = Format(2);

/// What the directory says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreIdentity {
    /// Tells this store from every other, and its log's frames from theirs.
    pub(super) id: u64,
    /// Fixed when the store is made.
    pub(super) segment_bytes: u64,
}

impl StoreIdentity {
    pub(super) fn log_id(&self) -> LogId {
        LogId(self.id)
    }
}

/// What kind of memory is below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    /// Gone with the power, whatever is synced.
    Ram,
    Network(&'static str),
}

/// A directory that this process has for itself, until it drops this.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    pub(super) identity: StoreIdentity,
    pub(super) medium: Medium,
    /// Whether it is of this format, or of one before.
    age: Age,
    /// Holds the lock; the kernel frees it with the process, however that ends.
    lock: File,
}

impl Drop for Directory {
    /// Says so, instead of leaving it to the end of the file: a child that this process is just starting has it open too,
    /// until it becomes another program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Whether a directory says of itself that an older binary can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Current,
    Older,
}

/// Whether a store may be made where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make { segment_bytes: u64 },
    Refuse,
}

impl Directory {
    pub(super) fn open(path: &Path, missing: Missing) -> Result<Self, OpenError> {
        // Where no store is, nothing is touched before that is known, not even to lock it.
        if !exists(path, "format")? && !exists(path, "log")? {
            if missing == Missing::Refuse {
                return Err(OpenError::Missing { dir: path.to_owned() });
            }
            refuse_foreign(path)?;
        }
        create_durably(path).map_err(at(path))?;
        let medium = medium(path).map_err(at(path))?;
        if let Medium::Network(kind) = medium {
            return Err(OpenError::Network { dir: path.to_owned(), kind });
        }
        let lock = lock(path)?;
        let (identity, age) = match read_identity(path)? {
            Some(read) => read,
            None => (make_identity(path, missing)?, Age::Current),
        };
        for part in ["log", "index"] {
            fs::create_dir_all(path.join(part)).map_err(at(path))?;
        }
        sync_dir(path).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), identity, medium, age, lock })
    }

    /// Says that it is of this format, once all of it could be opened, and before anything is written that an older binary
    /// cannot read: until then it can be opened by that one again.
    pub(super) fn make_current(&mut self) -> Result<(), OpenError> {
        if self.age == Age::Older {
            write_identity(&self.path, &self.identity).map_err(at(&self.path.join("format")))?;
            self.age = Age::Current;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(super) fn index(&self) -> PathBuf {
        self.path.join("index")
    }
}

/// Turns what the operating system said into a sentence that says what to do.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> OpenError {
    let path = path.to_owned();
    move |why| match why.kind() {
        io::ErrorKind::PermissionDenied => {
            OpenError::Permission { path: path.clone(), why: why.to_string() }
        }
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path: path.clone() },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            OpenError::Full { place: path.clone() }
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            OpenError::NotADirectory { path: path.clone() }
        }
        _ => OpenError::Io { path: path.clone(), why },
    }
}

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the directory and what is missing above it, and syncs each into the one above: a store whose
/// directory is gone after a power cut has lost everything.
fn create_durably(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.is_dir()).collect();
    fs::create_dir_all(&path)?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(sync_dir)
}

fn exists(dir: &Path, name: &str) -> Result<bool, OpenError> {
    dir.join(name).try_exists().map_err(at(dir))
}

/// Refuses a directory with anything in it that the making of a store, cut short, does not leave.
fn refuse_foreign(dir: &Path) -> Result<(), OpenError> {
    let files = match fs::read_dir(dir) {
        Ok(files) => files,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(at(dir)(why)),
    };
    for file in files {
        let file = file.map_err(at(dir))?;
        let ours = match file.file_name().to_str() {
            Some("format.tmp") => true,
            Some("lock") => fs::read_to_string(file.path())
                .is_ok_and(|text| text.trim().bytes().all(|byte| byte.is_ascii_digit())),
            Some(_) | None => false,
        };
        if !ours {
            return Err(OpenError::Foreign { path: dir.to_owned() });
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::InUse { dir: dir.to_owned(), holder: holder(&mut file) });
        }
        Err(TryLockError::Error(why)) => return Err(at(&path)(why)),
    }
    // The name in it only makes a later refusal clearer, so a full disk is no reason to stop here.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Names the process that holds the lock, as far as it can be told.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
    let Some(pid) = read.ok().and_then(|_| text.trim().parse::<u32>().ok()) else {
        return "another process".into();
    };
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(command) => format!("process {pid} ({})", command.trim()),
        Err(_) => format!("process {pid}"),
    }
}

fn read_identity(dir: &Path) -> Result<Option<(StoreIdentity, Age)>, OpenError> {
    let path = dir.join("format");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(at(&path)(why)),
    };
    let identity = parse_identity(&text, FORMAT).map_err(|why| match why {
        RecordError::Newer { .. } => OpenError::Format { path: path.clone(), why },
        RecordError::Malformed(why) => OpenError::Corrupt(format!(
            "{} is not what was written ({why}): restore that small file from a backup",
            path.display()
        )),
    })?;
    let is_older = parse_identity(&text, Format(FORMAT.0 - 1)).is_ok();
    Ok(Some((identity, if is_older { Age::Older } else { Age::Current })))
}

fn parse_identity(text: &[u8], reads: Format) -> Result<StoreIdentity, RecordError> {
    let malformed = |why: &str| RecordError::Malformed(why.into());
    let end = text.iter().position(|&byte| byte == b'\n').ok_or_else(|| malformed("cut short"))?;
    let (json, checksum) = (&text[..end], &text[end + 1..]);
    if checksum != checksum_line(json).as_bytes() {
        return Err(malformed("its checksum does not match"));
    }
    record::decode(json, reads)
}

fn checksum_line(json: &[u8]) -> String {
    format!("{:016x}\n", xxh3_64(json))
}

fn make_identity(dir: &Path, missing: Missing) -> Result<StoreIdentity, OpenError> {
    if exists(dir, "log")? {
        return Err(OpenError::Corrupt(format!(
            "{} is missing, though there is a log beside it: restore that small file from a backup",
            dir.join("format").display()
        )));
    }
    let Missing::Make { segment_bytes } = missing else {
        return Err(OpenError::Missing { dir: dir.to_owned() });
    };
    let identity = StoreIdentity { id: entropy::random_u64(), segment_bytes };
    write_identity(dir, &identity).map_err(at(dir))?;
    Ok(identity)
}

fn write_identity(dir: &Path, identity: &StoreIdentity) -> io::Result<()> {
    let mut text = record::encode(FORMAT, identity);
    let checksum = checksum_line(&text);
    text.push(b'\n');
    text.extend_from_slice(checksum.as_bytes());
    let unfinished = dir.join("format.tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(unfinished, dir.join("format"))?;
    sync_dir(dir)
}

fn medium(dir: &Path) -> io::Result<Medium> {
    let StatFs { f_type, .. } = rustix::fs::statfs(dir)?;
    Ok(medium_of(i128::from(f_type)))
}

/// The kernel's numbers for file systems (statfs(2)).
fn medium_of(kind: i128) -> Medium {
    match kind & 0xffff_ffff {
        0x6969 => Medium::Network("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Medium::Network("SMB"),
        0x0102_1997 => Medium::Network("9p"),
        0x00c3_6400 => Medium::Network("Ceph"),
        0x5346_414f | 0x6b41_4653 => Medium::Network("AFS"),
        0x7375_7245 => Medium::Network("Coda"),
        0x0bd0_0bd0 => Medium::Network("Lustre"),
        0x0116_1970 => Medium::Network("GFS2"),
        0x7461_636f => Medium::Network("OCFS2"),
        0x6573_5546 => Medium::Network("FUSE, which may be anything"),
        0x0102_1994 | 0x8584_58f6 => Medium::Ram,
        _ => Medium::Disk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDENTITY: StoreIdentity = StoreIdentity { id: 7, segment_bytes: 4096 };

    fn written() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        write_identity(dir.path(), &IDENTITY).unwrap();
        fs::read(dir.path().join("format")).unwrap()
    }

    #[test]
    fn network_file_systems_are_known_by_their_number() {
        assert_eq!(medium_of(0x6969), Medium::Network("NFS"));
        assert_eq!(
            medium_of(-0x00ac_b2be_i128),
            Medium::Network("SMB"),
            "the kernel's long may be negative"
        );
        assert_eq!(medium_of(0xef53), Medium::Disk);
        assert_eq!(medium_of(0x0102_1994), Medium::Ram);
    }

    #[test]
    fn the_identity_is_read_as_it_was_written() {
        assert_eq!(parse_identity(&written(), FORMAT), Ok(IDENTITY));
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let json = br#"{"format":3,"id":7,"shape":"new"}"#;
        let text = [json.as_slice(), b"\n", checksum_line(json).as_bytes()].concat();
        let newer = RecordError::Newer { found: Format(3), reads: FORMAT };
        assert_eq!(parse_identity(&text, FORMAT), Err(newer));
    }

    #[test]
    fn a_directory_of_an_older_format_is_of_this_one_once_all_of_it_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let json = br#"{"format":1,"id":7,"segment_bytes":4096}"#;
        let text = [json.as_slice(), b"\n", checksum_line(json).as_bytes()].concat();
        let format = dir.path().join("format");
        fs::write(&format, &text).unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        let mut directory = Directory::open(dir.path(), Missing::Refuse).unwrap();
        assert_eq!(directory.identity, IDENTITY);
        assert_eq!(fs::read(&format).unwrap(), text, "an older binary can still open it");
        directory.make_current().unwrap();
        assert_eq!(fs::read(&format).unwrap(), written());
    }

    #[test]
    fn what_a_newer_version_adds_to_a_directory_of_this_format_stays() {
        let dir = tempfile::tempdir().unwrap();
        let json = br#"{"format":2,"id":7,"segment_bytes":4096,"shape":"new"}"#;
        let text = [json.as_slice(), b"\n", checksum_line(json).as_bytes()].concat();
        fs::write(dir.path().join("format"), &text).unwrap();
        assert_eq!(read_identity(dir.path()).unwrap(), Some((IDENTITY, Age::Current)));
        assert_eq!(fs::read(dir.path().join("format")).unwrap(), text);
    }

    #[test]
    fn every_flipped_bit_of_the_identity_is_noticed() {
        let text = written();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(parse_identity(&flipped, FORMAT), Err(RecordError::Malformed(_))),
                "bit {bit}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_identity_or_an_error(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_identity(&text, FORMAT);
        }
    }
}
