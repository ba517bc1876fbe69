//! Power cuts in the middle of a group: whatever part of it reached the disk, the log comes back.
//!
//! A sync that did not return leaves any mixture of old and new sectors behind. These tests make the
//! mixtures: of what a segment held before a group, and of what it holds after.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rig::Random;
use store::log::{Log, LogError, LogId, Recovered, recover};

const ID: LogId = LogId(7);
const SEGMENT_BYTES: u64 = 16 * 1024;
const SECTOR: usize = 512;

type Records = Vec<(u64, Vec<u8>)>;

fn open(dir: &Path, held: u64) -> Result<(Log, Records, Recovered), LogError> {
    let mut records = Records::new();
    let (log, recovered) = recover(dir, ID, SEGMENT_BYTES, held, &mut |number, payload| {
        records.push((number, payload.to_vec()));
        Ok(())
    })?;
    Ok((log, records, recovered))
}

fn append(log: &mut Log, payloads: &[Vec<u8>]) {
    log.append(payloads.iter().map(Vec::as_slice)).expect("the disk is fine");
}

fn payloads(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| vec![u8::try_from(random.place(256)).unwrap(); random.place(700)]).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut segments: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    segments.sort();
    segments
}

/// A log of a few groups, and the bytes of its only segment before and after the last one, which is
/// not sealed.
struct Cut {
    dir: tempfile::TempDir,
    before: Vec<u8>,
    after: Vec<u8>,
    durable: Records,
    last: Records,
}

impl Cut {
    fn make(random: &mut Random) -> Self {
        let dir = rig::directory();
        let (mut log, ..) = open(dir.path(), 0).unwrap();
        let mut durable = Records::new();
        for _ in 0..=random.place(3) {
            let count = 1 + random.place(3);
            let group = payloads(random, count);
            append(&mut log, &group);
            let first = durable.len() as u64 + 1;
            durable.extend((first..).zip(group));
        }
        let segment = &segments(dir.path())[0];
        let before = std::fs::read(segment).unwrap();
        let seal = std::fs::read(dir.path().join("seal")).unwrap();
        let count = 1 + random.place(5);
        let group = payloads(random, count);
        append(&mut log, &group);
        let after = std::fs::read(segment).unwrap();
        drop(log);
        std::fs::write(dir.path().join("seal"), seal).unwrap();
        let first = durable.len() as u64 + 1;
        Self { dir, before, after, last: (first..).zip(group).collect(), durable }
    }

    /// Some sectors made it, some did not.
    fn tear(&self, random: &mut Random) {
        let mut torn = self.before.clone();
        for (sector, old) in torn.chunks_mut(SECTOR).enumerate() {
            if random.place(2) == 0 {
                old.copy_from_slice(&self.after[sector * SECTOR..][..SECTOR]);
            }
        }
        std::fs::write(&segments(self.dir.path())[0], torn).unwrap();
    }
}

#[test]
fn a_torn_group_is_cut_and_what_was_before_it_stays() {
    let mut random = Random::new(11);
    let (mut cut_off, mut kept) = (0, 0);
    for round in 0..500 {
        let cut = Cut::make(&mut random);
        cut.tear(&mut random);
        let (mut log, records, recovered) =
            open(cut.dir.path(), 0).unwrap_or_else(|why| panic!("round {round}: {why:?}"));
        let known = cut.durable.len();
        assert_eq!(records[..known], cut.durable, "round {round}: what was durable");
        assert_eq!(
            records[known..],
            cut.last[..records.len() - known],
            "round {round}: a part from the front"
        );
        cut_off += usize::from(recovered.torn);
        kept += usize::from(records.len() == known + cut.last.len());

        // What comes next must not wake up what was cut.
        let count = 1 + random.place(3);
        let group = payloads(&mut random, count);
        let mut expected = records;
        expected.extend((log.next()..).zip(group.clone()));
        append(&mut log, &group);
        drop(log);
        let (_, records, recovered) = open(cut.dir.path(), 0).unwrap();
        assert_eq!(records, expected, "round {round}: after going on");
        assert!(!recovered.torn, "round {round}: nothing is torn any more");
    }
    assert!(
        cut_off > 50 && kept > 20,
        "{cut_off} cut off, {kept} kept whole: the mixtures are too tame"
    );
}

#[test]
fn a_flipped_bit_in_an_acknowledged_record_is_damage_and_not_a_torn_tail() {
    let mut random = Random::new(12);
    for round in 0..300 {
        let dir = rig::directory();
        let (mut log, ..) = open(dir.path(), 0).unwrap();
        let mut expected = Records::new();
        for _ in 0..=random.place(4) {
            let count = 1 + random.place(3);
            let group = payloads(&mut random, count);
            expected.extend((log.next()..).zip(group.clone()));
            append(&mut log, &group);
        }
        drop(log);
        let segment = segments(dir.path()).remove(0);
        let mut bytes = std::fs::read(&segment).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let bit = random.place(end * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&segment, bytes).unwrap();
        match open(dir.path(), 0) {
            // In padding: nothing that anybody wrote is concerned.
            Ok((_, records, _)) => assert_eq!(records, expected, "round {round}, bit {bit}"),
            Err(LogError::Damaged(why)) => assert!(why.contains("restore"), "{why}"),
            Err(other) => panic!("round {round}, bit {bit}: {other:?}"),
        }
    }
}

/// One fault that takes the whole last group, not only a bit of it.
#[test]
fn a_bad_sector_over_the_last_group_is_damage_and_not_a_torn_tail() {
    let dir = rig::directory();
    let (mut log, ..) = open(dir.path(), 0).unwrap();
    for number in 1..=5_u8 {
        append(&mut log, &[vec![number; 480]]);
    }
    drop(log);
    let file = std::fs::OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    file.write_all_at(&[0; SECTOR], 4 * SECTOR as u64).unwrap();
    let found = open(dir.path(), 0);
    assert!(matches!(&found, Err(LogError::Damaged(why)) if why.contains("records 5 to 5")));
    assert_eq!(open(dir.path(), 5).unwrap().2.damaged, vec![(5, 5)], "unless it is held elsewhere");
}

#[test]
fn a_damaged_seal_does_no_harm_to_what_it_vouches_for() {
    for flipped in 0..2 * 4096 {
        if flipped % 4096 >= 32 {
            continue;
        }
        let dir = rig::directory();
        let (mut log, ..) = open(dir.path(), 0).unwrap();
        append(&mut log, &[vec![1; 100]]);
        append(&mut log, &[vec![2; 100]]);
        drop(log);
        let mut seal = std::fs::read(dir.path().join("seal")).unwrap();
        seal[flipped] ^= 1;
        std::fs::write(dir.path().join("seal"), seal).unwrap();
        assert_eq!(open(dir.path(), 0).unwrap().1.len(), 2, "byte {flipped}");
    }
}

#[test]
fn damage_to_records_that_are_held_elsewhere_is_passed_over() {
    let dir = rig::directory();
    let (mut log, ..) = open(dir.path(), 0).unwrap();
    for number in 1..=5_u8 {
        append(&mut log, &[vec![number; 100]]);
    }
    drop(log);
    let file = std::fs::OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    // Each record takes 136 bytes: this is in the payload of the second.
    file.write_all_at(&[0xff], 136 + 50).unwrap();
    assert!(matches!(open(dir.path(), 1), Err(LogError::Damaged(_))), "the second is needed");
    let (log, records, recovered) = open(dir.path(), 2).unwrap();
    assert_eq!(recovered.damaged, vec![(2, 2)]);
    assert_eq!(records.iter().map(|(number, _)| *number).collect::<Vec<_>>(), vec![3, 4, 5]);
    assert_eq!(log.next(), 6);
}

#[test]
fn segments_are_used_again_and_nothing_of_their_former_use_comes_back() {
    let mut random = Random::new(13);
    let dir = rig::directory();
    let (mut log, ..) = open(dir.path(), 0).unwrap();
    let mut held = 0;
    for round in 0..300 {
        let count = 1 + random.place(4);
        let group = payloads(&mut random, count);
        append(&mut log, &group);
        if round % 7 == 0 {
            held = log.next() - 1 - random.number() % (log.next() - held);
            log.pool().tidy(held).unwrap();
        }
        if round % 11 == 0 {
            let next = log.next();
            drop(log);
            let (reopened, records, _) = open(dir.path(), held).unwrap();
            let numbers: Vec<u64> = records.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (held + 1..next).collect::<Vec<_>>(), "round {round}");
            log = reopened;
        }
    }
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(files < 12, "{files} files are left of a log that is tidied");
}

#[test]
fn a_missing_or_shortened_segment_is_damage() {
    let make = || {
        let dir = rig::directory();
        let (mut log, ..) = open(dir.path(), 0).unwrap();
        for _ in 0..40 {
            append(&mut log, &[vec![1; 1_000]]);
        }
        dir
    };
    for victim in 0..2 {
        let dir = make();
        std::fs::remove_file(&segments(dir.path())[victim]).unwrap();
        assert!(
            matches!(open(dir.path(), 0), Err(LogError::Damaged(_))),
            "segment {victim} is missing"
        );
    }
    let dir = make();
    let file = std::fs::OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    file.set_len(SEGMENT_BYTES / 2).unwrap();
    assert!(matches!(open(dir.path(), 0), Err(LogError::Damaged(_))), "a segment is too short");
}
