//! Compares `docs/journal.md` to the code: every kind of record has a section, and its examples are valid records.

use sabir_agent::TaskId;
use sabir_journal::{JournalEntry, read_journal, write_journal};

use crate::Place;

const DOCUMENT: &str = include_str!("../../../../docs/journal.md");

/// Returns each example with the kind of its section.
fn examples() -> Vec<(&'static str, &'static str)> {
    let (mut kind, mut inside, mut found) = ("", false, Vec::new());
    for line in DOCUMENT.lines() {
        match line {
            "```json" => inside = true,
            _ if line.starts_with("```") => inside = false,
            _ if inside => found.push((kind, line)),
            _ => {
                kind = line
                    .strip_prefix("### `")
                    .map_or(kind, |rest| rest.trim_end_matches('`'))
            }
        }
    }
    found
}

#[test]
fn every_kind_has_an_example_that_is_a_record() {
    let found = examples();
    let unknown = serde_json::from_str::<JournalEntry>(r#"{"at":1,"kind":""}"#)
        .unwrap_err()
        .to_string();
    let (_, kinds) = unknown.split_once("expected one of ").unwrap();
    let (kinds, _) = kinds.rsplit_once('`').unwrap();
    for kind in kinds.split(", ").map(|kind| kind.trim_matches('`')) {
        assert!(
            found.iter().any(|(known, _)| *known == kind),
            "`{kind}` has no example"
        );
    }
    let mut entries = Vec::new();
    for (kind, line) in found {
        let entry: JournalEntry =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let written = serde_json::to_value(&entry).unwrap();
        assert_eq!(written["kind"], kind);
        // Every field of an example is read.
        let mut example: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(fields) = example.as_object_mut() {
            fields.retain(|name, _| written.get(name).is_none());
            assert!(fields.is_empty(), "{fields:?}");
        }
        entries.push(entry);
    }
    let place = Place::new();
    write_journal(place.path(), &TaskId::new("task-1"), &entries).unwrap();
    assert_eq!(
        read_journal(place.path(), &TaskId::new("task-1"))
            .unwrap()
            .0,
        entries
    );
}

#[test]
fn the_bytes_match_the_document() {
    let place = Place::new();
    let entry: JournalEntry =
        serde_json::from_str(r#"{"at":1,"kind":"said","by":"user","text":"é"}"#).unwrap();
    write_journal(place.path(), &place.task, std::slice::from_ref(&entry)).unwrap();
    let payload = r#"{"at":1,"kind":"said","by":"user","text":"é"}"#.as_bytes();
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let link = crc32fast::hash(b"sabir journal 2\n").to_le_bytes();
    let checksum = crc32fast::hash(&[&length[..], &link, payload].concat()).to_le_bytes();
    let expected = [b"sabir journal 2\n", &length[..], &checksum, &link, payload].concat();
    assert_eq!(std::fs::read(place.file()).unwrap(), expected);
}
