//! Tests outputs of all lengths, written in pieces and read back.

use super::*;

/// Returns a part of a text that repeats 251 bytes, copied in blocks: there are hundreds of megabytes.
fn pattern(from: u64, length: u64) -> Vec<u8> {
    let start = usize::try_from(from % 251).unwrap();
    let length = usize::try_from(length).unwrap();
    let period: Vec<u8> = (0..251).collect();
    period.repeat(length / 251 + 2)[start..start + length].to_vec()
}

fn collect(output: &StoredOutput) -> (Vec<u8>, Option<usize>) {
    let mut bytes = Vec::new();
    let mut gap = None;
    output
        .read_pieces(&mut |piece| {
            match piece {
                OutputPiece::Bytes(more) => bytes.extend_from_slice(more),
                OutputPiece::Gap => gap = Some(bytes.len()),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (bytes, gap)
}

fn about(total: u64) -> OutputMetadata {
    OutputMetadata {
        total,
        lines: 3,
        end: "exit code 0".to_owned(),
        command: "a\nb".to_owned(),
    }
}

#[track_caller]
fn check(total: u64, piece: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outputs");
    let mut output = StoredOutput::new(path.join("part-1"));
    let mut at = 0;
    while at < total {
        let length = piece.min(total - at);
        output.push(&pattern(at, length));
        at += length;
    }
    let expected = if total <= MAX_FILE_BYTES {
        (pattern(0, total), None)
    } else {
        let half = usize::try_from(HALF).unwrap();
        (
            [pattern(0, HALF), pattern(total - HALF, HALF)].concat(),
            Some(half),
        )
    };
    assert_eq!(path.exists(), total > MAX_MEMORY_BYTES as u64, "{total}");
    assert!(collect(&output) == expected, "{total} before it is kept");
    output.keep_as(path.join("7"), &about(total));
    assert!(output.write_error().is_none());
    assert!(collect(&output) == expected, "{total} afterwards");
    assert_eq!(disk_bytes(&path.join("7")), expected.0.len() as u64);
    drop(output);
    assert_eq!(scan_outputs(&path), [(7, Some(about(total)))]);
    remove_output(&path.join("7"));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn output_is_read_back() {
    check(0, 1);
    check(1000, 7);
    check(MAX_MEMORY_BYTES as u64 + 1, 1000);
    check(HALF, 1 << 20);
    check(HALF + 1, 100_000);
    check(MAX_FILE_BYTES, 999_999);
    check(MAX_FILE_BYTES + 1, 999_999);
    check(3 * HALF + 12_345, 1_000_003);
}

#[test]
fn only_the_user_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outputs");
    let mut output = StoredOutput::new(path.join("1"));
    output.keep_as(path.join("1"), &about(0));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (
            mode(&path),
            mode(&path.join("1.head")),
            mode(&path.join("1.about"))
        ),
        (0o700, 0o600, 0o600)
    );
}

#[test]
fn unkept_output_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut output = StoredOutput::new(folder.path().join("part-1"));
    output.push(&vec![b'x'; MAX_MEMORY_BYTES + 1]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    drop(output);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_disk_error_is_reported_and_the_command_continues() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let mut output = StoredOutput::new(folder.path().join("file/part-1"));
    output.push(&vec![b'x'; MAX_MEMORY_BYTES + 1]);
    output.push(b"more");
    assert_eq!(output.total_bytes(), MAX_MEMORY_BYTES as u64 + 5);
    assert!(output.write_error().is_some());
}
