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
        // What comes after it is not behind garbage.
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
fn room_that_was_never_written_is_torn() {
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

/// Damages the second record, and expects that the first is there and all else is kept.
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
    assert_eq!(records_of(entries), some()[..1]);
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
        [some()[0].clone(), said("next")]
    );
}

#[test]
fn damage_in_the_middle_is_kept_aside() {
    check_damage(|bytes, at| bytes[at + 20] ^= 1);
    check_damage(|bytes, at| bytes[at + 4] ^= 0x80);
    // A length that now promises more than the file has is no torn end.
    check_damage(|bytes, at| bytes[at + 1] ^= 0x40);
    check_damage(|bytes, at| bytes[at + 3] ^= 0x80);
    check_damage(|bytes, at| bytes[at..at + 4].fill(0));
    check_damage(|bytes, at| bytes[at..at + 30].fill(0));
    check_damage(|bytes, at| drop(bytes.drain(at..at + 1)));
    check_damage(|bytes, at| drop(bytes.splice(at..at, *b"garbage of any kind")));
}

#[test]
fn damage_of_the_last_record_is_kept_aside() {
    for flip in [3, 4, 8, 30] {
        let place = Place::with(&some());
        let (mut bytes, ends) = place.frames();
        bytes[ends[3] + flip] ^= 4;
        std::fs::write(place.file(), &bytes).unwrap();
        let (_journal, entries, recovery) = place.open().unwrap();
        assert_eq!((entries.len(), recovery.torn_bytes), (3, 0));
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
fn what_others_wrote_is_left_alone() {
    let newer = b"sabir journal 2\nwhatever comes then";
    let much_newer = b"sabir journal 18446744073709551615\nx";
    for (bytes, expected) in [
        (&newer[..], "was written by a newer Sabir (format 2)"),
        (
            much_newer,
            "was written by a newer Sabir (format 18446744073709551615)",
        ),
        (b"{\"kind\": \"started\"}\n", "is no journal of Sabir"),
        (b"sabir journal 0\n", "is no journal of Sabir"),
        (b"sabir journal one\n", "is no journal of Sabir"),
        (&[0; 64], "is no journal of Sabir"),
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
    let checksum = crc32fast::hash(&[&length, &payload[..]].concat()).to_le_bytes();
    let bytes = [
        &bytes[..ends[2]],
        &length,
        &checksum,
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
            Ok((_, entries, _)) => {
                let found = records_of(entries);
                assert!(records.starts_with(&found), "{found:?}");
            }
            Err(_) => assert_eq!(std::fs::read(place.file()).unwrap(), bytes),
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in any::<Vec<u8>>(), headed in any::<bool>()) {
        let place = Place::new();
        let header = if headed { &b"sabir journal 1\n"[..] } else { b"" };
        std::fs::write(place.file(), [header, &bytes].concat()).unwrap();
        if let Ok((_, entries, _)) = place.open() {
            assert!(entries.is_empty());
        }
    }
}

#[test]
fn a_full_disk() {
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
