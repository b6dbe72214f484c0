//! Tests torn ends, flipped bits, foreign files and full disks.

use std::process::Command;

use proptest::prelude::{any, proptest};
use sabir_agent::{Record, RecordStore};
use sabir_journal::{JournalError, read_journal};

use crate::{Place, records_of, said, started};

fn some() -> Vec<Record> {
    vec![
        started("task-1", "do it"),
        said("é\u{1f600}\"\\\n".repeat(5)),
        said(""),
        said("last {\"at\":1}"),
    ]
}

#[test]
fn torn_at_every_byte() {
    let records = some();
    let whole = Place::with(&records);
    let (bytes, ends) = whole.frames();
    for cut in 0..=bytes.len() {
        let place = Place::new();
        std::fs::write(place.file(), &bytes[..cut]).unwrap();
        let kept = ends
            .iter()
            .filter(|end| **end <= cut)
            .count()
            .saturating_sub(1);
        let torn = cut - ends.iter().rev().find(|end| **end <= cut).unwrap_or(&0);

        let (seen, left) = read_journal(place.path(), &place.task).unwrap();
        assert_eq!(
            (seen.len(), left.torn_bytes, left.damaged_bytes),
            (kept, torn as u64, 0),
            "at {cut}"
        );
        let (mut journal, entries, recovery) = place.open().unwrap();
        assert_eq!(records_of(entries), records[..kept], "at {cut}");
        assert_eq!(recovery, left);
        // Later records directly follow the last whole one.
        journal.append(&said("next")).unwrap();
        drop(journal);
        let (_journal, entries, recovery) = place.open().unwrap();
        assert!(recovery.is_clean(), "at {cut}: {recovery:?}");
        assert_eq!(entries.last().unwrap().record, said("next"));
        assert_eq!(entries.len(), kept + 1);
        assert_eq!(
            std::fs::read_dir(place.path()).unwrap().count(),
            1,
            "at {cut}"
        );
    }
}

#[test]
fn trailing_zeros_are_torn() {
    let place = Place::with(&some());
    let (bytes, _) = place.frames();
    for zeros in [1, 8, 9, 5000] {
        std::fs::write(place.file(), [&bytes[..], &vec![0; zeros]].concat()).unwrap();
        let (_journal, entries, recovery) = place.open().unwrap();
        assert_eq!(
            (entries.len(), recovery.torn_bytes, recovery.damaged_bytes),
            (4, zeros as u64, 0)
        );
    }
}

/// Damages the second record, and expects the first to be read and all other bytes to be saved.
#[track_caller]
fn check_damage(damage: impl FnOnce(&mut Vec<u8>, usize)) {
    let place = Place::with(&some());
    let (mut bytes, ends) = place.frames();
    damage(&mut bytes, ends[1]);
    std::fs::write(place.file(), &bytes).unwrap();
    let kept = place.path().join("task-1.journal.damaged");

    let (seen, left) = read_journal(place.path(), &place.task).unwrap();
    assert_eq!((seen.len(), left.saved_path), (1, None));
    assert!(!kept.exists(), "reading changes nothing");
    let (mut journal, entries, recovery) = place.open().unwrap();
    let marked = Record::Damaged {
        bytes: (bytes.len() - ends[1]) as u64,
        saved_as: Some("task-1.journal.damaged".to_owned()),
    };
    assert_eq!(
        records_of(entries),
        [some()[0].clone(), marked.clone()],
        "what opens it next knows of the damage"
    );
    assert_eq!(recovery.saved_path.as_ref(), Some(&kept));
    assert_eq!(
        (recovery.torn_bytes, recovery.damaged_bytes),
        (0, (bytes.len() - ends[1]) as u64)
    );
    assert_eq!(std::fs::read(&kept).unwrap(), bytes[ends[1]..]);
    journal.append(&said("next")).unwrap();
    drop(journal);
    assert_eq!(
        records_of(place.open().unwrap().1),
        [some()[0].clone(), marked, said("next")]
    );
    assert!(place.open().unwrap().2.is_clean());
}

#[test]
fn damage_in_the_middle_is_saved() {
    check_damage(|bytes, at| bytes[at + 20] ^= 1);
    check_damage(|bytes, at| bytes[at + 4] ^= 0x80);
    // The link.
    check_damage(|bytes, at| bytes[at + 8] ^= 1);
    // A damaged length that exceeds the file is not a torn end.
    check_damage(|bytes, at| bytes[at + 1] ^= 0x40);
    check_damage(|bytes, at| bytes[at + 3] ^= 0x80);
    check_damage(|bytes, at| bytes[at..at + 4].fill(0));
    check_damage(|bytes, at| bytes[at..at + 30].fill(0));
    check_damage(|bytes, at| drop(bytes.drain(at..at + 1)));
    check_damage(|bytes, at| drop(bytes.splice(at..at, *b"garbage of any kind")));
}

#[test]
fn damage_of_the_last_record_is_saved() {
    for flip in [3, 4, 8, 30] {
        let place = Place::with(&some());
        let (mut bytes, ends) = place.frames();
        bytes[ends[3] + flip] ^= 4;
        std::fs::write(place.file(), &bytes).unwrap();
        let (_journal, entries, recovery) = place.open().unwrap();
        assert_eq!((entries.len(), recovery.torn_bytes), (4, 0));
        assert!(matches!(entries[3].record, Record::Damaged { .. }));
        assert_eq!(
            std::fs::read(recovery.saved_path.unwrap()).unwrap(),
            bytes[ends[3]..]
        );
    }
}

#[test]
fn a_second_damage_does_not_overwrite_the_first() {
    let place = Place::with(&some());
    let (mut bytes, ends) = place.frames();
    for (flip, name) in [
        (ends[2] + 10, "task-1.journal.damaged"),
        (ends[1] + 10, "task-1.journal.damaged-2"),
    ] {
        bytes[flip] ^= 1;
        std::fs::write(place.file(), &bytes).unwrap();
        assert_eq!(
            place.open().unwrap().2.saved_path,
            Some(place.path().join(name))
        );
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let newer = b"sabir journal 3\nwhatever comes then";
    let much_newer = b"sabir journal 18446744073709551615\nx";
    for (bytes, expected) in [
        (&newer[..], "was written by a newer Sabir (format 3)"),
        (
            much_newer,
            "was written by a newer Sabir (format 18446744073709551615)",
        ),
        (b"{\"kind\": \"started\"}\n", "is not a journal of Sabir"),
        (b"sabir journal 0\n", "is not a journal of Sabir"),
        (b"sabir journal one\n", "is not a journal of Sabir"),
        (&[0; 64], "is not a journal of Sabir"),
    ] {
        let place = Place::new();
        std::fs::write(place.file(), bytes).unwrap();
        let error = place.open().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(
            read_journal(place.path(), &place.task)
                .unwrap_err()
                .to_string(),
            error
        );
        assert_eq!(std::fs::read(place.file()).unwrap(), bytes);
    }
}

#[test]
fn a_record_of_another_version_is_left_alone() {
    let place = Place::with(&some());
    let (bytes, ends) = place.frames();
    let payload = br#"{"at":1,"kind":"teleported"}"#;
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let link = &bytes[ends[1] + 4..ends[1] + 8];
    let checksum = crc32fast::hash(&[&length, link, &payload[..]].concat()).to_le_bytes();
    let bytes = [
        &bytes[..ends[2]],
        &length,
        &checksum,
        link,
        payload,
        &bytes[ends[2]..],
    ]
    .concat();
    std::fs::write(place.file(), &bytes).unwrap();
    let error = place.open().unwrap_err();
    assert!(
        matches!(error, JournalError::Unknown { number: 3, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("unknown variant `teleported`"),
        "{error}"
    );
    assert_eq!(std::fs::read(place.file()).unwrap(), bytes);
}

proptest! {
    #[test]
    fn flipped_bits_never_make_a_record(flips in proptest::collection::vec(any::<(usize, u8)>(), 1..8)) {
        let records = some();
        let place = Place::with(&records);
        let mut bytes = std::fs::read(place.file()).unwrap();
        for (at, bit) in flips {
            let at = at % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
        }
        std::fs::write(place.file(), &bytes).unwrap();
        match place.open() {
            Ok((_, entries, recovery)) => {
                let mut found = records_of(entries);
                if recovery.damaged_bytes > 0 {
                    let marked = found.pop();
                    assert!(matches!(marked, Some(Record::Damaged { .. })), "{marked:?}");
                }
                assert!(records.starts_with(&found), "{found:?}");
            }
            Err(_) => assert_eq!(std::fs::read(place.file()).unwrap(), bytes),
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in any::<Vec<u8>>(), headed in 0..3) {
        let place = Place::new();
        let header = match headed {
            0 => &b"sabir journal 1\n"[..],
            1 => &b"sabir journal 2\n"[..],
            _ => b"",
        };
        std::fs::write(place.file(), [header, &bytes].concat()).unwrap();
        if let Ok((_, entries, _)) = place.open() {
            assert!(entries.is_empty());
        }
    }
}

/// Splits a journal into its first line and its frames.
fn split_frames(place: &Place) -> Vec<Vec<u8>> {
    let (bytes, ends) = place.frames();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts
        .zip(&ends)
        .map(|(start, end)| bytes[start..*end].to_vec())
        .collect()
}

#[test]
fn frames_that_are_missing_repeated_or_moved_are_damage() {
    type Rearrange = fn(&mut Vec<Vec<u8>>);
    let rows: [(&str, Rearrange, usize); 5] = [
        ("missing", |frames| drop(frames.remove(2)), 1),
        ("repeated", |frames| frames.insert(3, frames[2].clone()), 2),
        ("swapped", |frames| frames.swap(2, 3), 1),
        (
            "the last one repeated",
            |frames| frames.push(frames[4].clone()),
            4,
        ),
        (
            "of another journal",
            |frames| {
                let records = [some()[0].clone(), said("else"), some()[2].clone()];
                frames[3] = split_frames(&Place::with(&records))[3].clone();
            },
            2,
        ),
    ];
    for (name, rearrange, intact) in rows {
        let place = Place::with(&some());
        let mut frames = split_frames(&place);
        rearrange(&mut frames);
        std::fs::write(place.file(), frames.concat()).unwrap();
        let (seen, left) = read_journal(place.path(), &place.task).unwrap();
        assert_eq!(records_of(seen), some()[..intact], "{name}");
        assert!(left.damaged_bytes > 0 && left.torn_bytes == 0, "{name}");
        let found = records_of(place.open().unwrap().1);
        assert_eq!(found.len(), intact + 1, "{name}");
        assert!(matches!(found[intact], Record::Damaged { .. }), "{name}");
    }
    // A journal without its first record describes no task, and stays unchanged.
    let place = Place::with(&some());
    let mut frames = split_frames(&place);
    frames.remove(1);
    std::fs::write(place.file(), frames.concat()).unwrap();
    let error = place.open().unwrap_err();
    assert!(
        matches!(error, JournalError::DamagedStart { .. }),
        "{error:?}"
    );
    assert_eq!(std::fs::read(place.file()).unwrap(), frames.concat());
}

#[test]
fn a_crash_while_damage_is_recorded_leaves_damage() {
    let place = Place::with(&some());
    let (mut bytes, ends) = place.frames();
    bytes[ends[2] + 20] ^= 1;
    std::fs::write(place.file(), &bytes).unwrap();
    drop(place.open().unwrap());
    let marked = std::fs::read(place.file()).unwrap();
    // The states between the writes of `overwrite_damaged_end`: an impossible head, any part of the
    // payload, the length.
    let mut between = bytes.clone();
    between[ends[2]..ends[2] + crate::HEAD_BYTES].fill(0xff);
    let mut states = vec![between.clone()];
    for at in ends[2] + crate::HEAD_BYTES..marked.len() {
        if at < between.len() {
            between[at] = marked[at];
        } else {
            between.push(marked[at]);
        }
        states.push(between.clone());
    }
    between.truncate(marked.len());
    states.push(between);
    for state in states {
        let place = Place::new();
        std::fs::write(place.file(), state).unwrap();
        let (_journal, entries, recovery) = place.open().unwrap();
        assert!(recovery.damaged_bytes > 0 && recovery.torn_bytes == 0);
        assert!(matches!(entries[2].record, Record::Damaged { .. }));
    }
}

#[test]
fn a_journal_changed_by_another_process_refuses_appends() {
    type Change = fn(&std::path::Path, &[u8]);
    let rows: [(&str, Change); 6] = [
        ("shortened", |file, bytes| {
            std::fs::write(file, &bytes[..bytes.len() - 60]).unwrap();
        }),
        ("emptied", |file, _| std::fs::write(file, b"").unwrap()),
        ("extended", |file, bytes| {
            std::fs::write(file, [bytes, b"x"].concat()).unwrap();
        }),
        ("overwritten", |file, bytes| {
            std::fs::write(file, vec![0; bytes.len()]).unwrap();
        }),
        ("replaced", |file, bytes| {
            std::fs::write(file.with_extension("new"), bytes).unwrap();
            std::fs::rename(file.with_extension("new"), file).unwrap();
        }),
        ("moved away", |file, _| {
            std::fs::rename(file, file.with_extension("away")).unwrap();
        }),
    ];
    for (name, change) in rows {
        let place = Place::with(&some());
        for opened in [true, false] {
            let place = if opened { &place } else { &Place::new() };
            let mut journal = if opened {
                place.open().unwrap().0
            } else {
                let mut journal = place.create().unwrap();
                for record in some() {
                    journal.append(&record).unwrap();
                }
                journal
            };
            let bytes = std::fs::read(place.file()).unwrap();
            change(&place.file(), &bytes);
            let before = std::fs::read(place.file()).ok();
            let error = journal.append(&said("next")).unwrap_err().to_string();
            assert_eq!(journal.append(&said("x")).unwrap_err().to_string(), error);
            assert_eq!(std::fs::read(place.file()).ok(), before, "{name}: {error}");
        }
    }
}

#[test]
fn a_full_disk_fails_the_append() {
    let place = Place::new();
    let script = "mount -t tmpfs -o size=256k,mode=700 tmpfs \"$1\" || exit 77
                  exec \"$0\" fill \"$1\"";
    let ran = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_journal-probe"),
        ])
        .arg(place.path())
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {}
        Ok(ran) if ran.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&ran.stderr))
        }
        Ok(ran) => crate::skipped(&format!(
            "no disk can be mounted: {}",
            String::from_utf8_lossy(&ran.stderr)
        )),
        Err(error) => crate::skipped(&format!("`unshare` cannot be started: {error}")),
    }
}
