//! Verifies what the tree of tables reads without checking it, before the tree is opened.
//!
//! Blocks of tables carry checksums that the tree verifies. Two things it takes on trust, and a
//! flipped bit in them does harm: the list of tables, which says which of two entries is the newer one,
//! and the list of sections at the end of each table, whose length it reserves memory for. Both have
//! checksums on disk. The layouts are those of the exact version of the tree that we depend on.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::table::{IndexError, Result};

/// At the end of a table: magic (4), version (1), kind of checksum (1), checksum of the list of parts
/// (u128), where the list begins (u64), and its length (u64), which the tree does not read.
const TRAILER_BYTES: usize = 4 + 1 + 1 + 16 + 8 + 8;
const TRAILER_BEGIN: &[u8] = b"SFA!\x01\x00";

/// A list of parts has a handful of short entries.
const PARTS_BYTES_MAX: u64 = 64 * 1024;

/// Checks an index before it is opened. One that is not there yet is fine.
pub(super) fn check(dir: &Path) -> Result<()> {
    let Some(list) = check_table_list(dir)? else {
        return Ok(());
    };
    // Only those in the list: one that was being written at a stop is removed by the tree unread.
    let ids = read_table_list(&list).map_err(|why| {
        IndexError::Damaged(format!("the index's list of tables makes no sense: {why}"))
    });
    for id in ids? {
        check_parts(&dir.join("tables").join(id.to_string()))?;
    }
    Ok(())
}

/// `current` names the list of tables: its number (u64), the checksum of the file `v<number>` (u128),
/// and the kind of checksum (0). Returns the file, whole; nothing for a new index.
fn check_table_list(dir: &Path) -> Result<Option<PathBuf>> {
    let damaged = |what: &str| IndexError::Damaged(format!("the index's list of tables {what}"));
    let current = match fs::read(dir.join("current")) {
        Ok(current) => current,
        // The tree would begin anew and remove all tables that are in no list.
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return if has_tables(dir)? { Err(damaged("is missing")) } else { Ok(None) };
        }
        Err(why) => return Err(IndexError::Io(why)),
    };
    let (number, rest) = current.split_first_chunk::<8>().ok_or_else(|| damaged("is cut short"))?;
    let (checksum, rest) = rest.split_first_chunk::<16>().ok_or_else(|| damaged("is cut short"))?;
    let path = dir.join(format!("v{}", u64::from_le_bytes(*number)));
    let list = match fs::read(&path) {
        Ok(list) => list,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(damaged("is missing")),
        Err(why) => return Err(IndexError::Io(why)),
    };
    if rest == [0] && xxh3_128(&list) == u128::from_le_bytes(*checksum) {
        Ok(Some(path))
    } else {
        Err(damaged("is not what was written"))
    }
}

fn has_tables(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir.join("tables")) {
        Ok(mut tables) => Ok(tables.next().is_some()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(IndexError::Io(why)),
    }
}

/// The tables in the list: levels (count u8) of runs (u8) of tables (u32), each with its id (u64), the
/// kind of its checksum (u8), its checksum (u128) and the number of its newest change (u64).
fn read_table_list(path: &Path) -> io::Result<Vec<u64>> {
    let list = sfa::Reader::new(path).map_err(io::Error::other)?;
    let section = list.toc().section(b"tables").ok_or(io::ErrorKind::InvalidData)?;
    let mut reader = section.buf_reader(path)?;
    let mut ids = Vec::new();
    for _ in 0..take::<1>(&mut reader)?[0] {
        for _ in 0..take::<1>(&mut reader)?[0] {
            for _ in 0..u32::from_le_bytes(take(&mut reader)?) {
                ids.push(u64::from_le_bytes(take(&mut reader)?));
                take::<{ 1 + 16 + 8 }>(&mut reader)?;
            }
        }
    }
    Ok(ids)
}

fn take<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn check_parts(path: &Path) -> Result<()> {
    let damaged = || IndexError::Damaged(format!("{} is not what was written", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(damaged()),
        Err(why) => return Err(IndexError::Io(why)),
    };
    let len = file.metadata().map_err(IndexError::Io)?.len();
    if parts_are_whole(&file, len).map_err(IndexError::Io)? { Ok(()) } else { Err(damaged()) }
}

fn parts_are_whole(file: &File, len: u64) -> io::Result<bool> {
    let Some(end) = len.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(false);
    };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, end)?;
    let (begin, rest) = trailer.split_at(TRAILER_BEGIN.len());
    let (checksum, rest) = rest.split_first_chunk::<16>().expect("it has 38 bytes");
    let (position, _) = rest.split_first_chunk::<8>().expect("it has 38 bytes");
    let position = u64::from_le_bytes(*position);
    if begin != TRAILER_BEGIN || position > end || end - position > PARTS_BYTES_MAX {
        return Ok(false);
    }
    let mut parts = vec![0; usize::try_from(end - position).expect("at most 64 KiB")];
    file.read_exact_at(&mut parts, position)?;
    Ok(xxh3_128(&parts) == u128::from_le_bytes(*checksum))
}
