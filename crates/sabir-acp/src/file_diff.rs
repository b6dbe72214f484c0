//! Converts the diffs of Sabir's tools to those of the protocol, which show an old and a new text.

use std::path::Path;

use agent_client_protocol::v1::schema::{Diff, ToolCallLocation};

/// The changes of one file, as pieces with their places.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileDiffs {
    /// One diff for each hunk.
    pub(crate) diffs: Vec<Diff>,
    /// The first line of each hunk in the new file.
    pub(crate) locations: Vec<ToolCallLocation>,
}

/// Parses the preview of a call. `path` is the file of a diff that names none; a patch names its files.
pub(crate) fn parse_preview(preview: &str, path: Option<&str>, folder: &Path) -> FileDiffs {
    let mut found = FileDiffs::default();
    let mut section = Section {
        path: path.map(str::to_owned),
        ..Section::default()
    };
    for line in preview.lines() {
        // Within a hunk every line begins with its mark, so a heading cannot be taken for content.
        if let Some(heading) = parse_heading(line) {
            section.flush(folder, &mut found);
            section = heading;
        } else if let Some(start) = parse_hunk(line) {
            section.flush(folder, &mut found);
            section.line = Some(start);
            section.is_open = true;
        } else {
            section.push_line(line);
        }
    }
    section.flush(folder, &mut found);
    found
}

/// A hunk, or the whole content of a new file, while it is read.
#[derive(Debug, Default)]
struct Section {
    path: Option<String>,
    /// The first line of the hunk in the new file.
    line: Option<u32>,
    old: String,
    new: String,
    /// True while lines belong to a hunk.
    is_open: bool,
    /// True if the file does not exist before.
    is_new: bool,
}

impl Section {
    fn push_line(&mut self, line: &str) {
        if !self.is_open {
            return;
        }
        let (mark, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        let sides: [&mut String; 2] = [&mut self.old, &mut self.new];
        for (side, text) in sides.into_iter().enumerate() {
            let belongs = matches!((mark, side), (" ", _) | ("-", 0) | ("+", 1));
            if belongs {
                text.push_str(rest);
                text.push('\n');
            } else if mark == "\\" && text.ends_with('\n') && side == 1 {
                // "No newline at end of file" refers to the line before it, which is nearly always
                // the new one.
                text.pop();
            }
        }
    }

    /// Adds what was read, and begins the next hunk of the same file.
    fn flush(&mut self, folder: &Path, found: &mut FileDiffs) {
        let old = std::mem::take(&mut self.old);
        let new = std::mem::take(&mut self.new);
        let is_open = std::mem::replace(&mut self.is_open, false);
        let line = self.line.take();
        let Some(path) = self.path.as_ref().filter(|_| is_open) else {
            return;
        };
        let path = folder.join(path);
        let diff = Diff::new(path.clone(), new);
        // A hunk without old lines at the top of a file is a new file.
        let is_new = self.is_new || old.is_empty() && line.is_none_or(|line| line <= 1);
        found
            .diffs
            .push(if is_new { diff } else { diff.old_text(old) });
        found
            .locations
            .push(ToolCallLocation::new(path).line(line.filter(|line| *line > 0)));
    }
}

/// Parses the heading of a file in the preview of a patch.
fn parse_heading(line: &str) -> Option<Section> {
    let line = line.strip_suffix(':').unwrap_or(line);
    let (path, is_new, is_open) = if let Some(path) = line.strip_prefix("new file ") {
        (path, true, true)
    } else if let Some(path) = line.strip_prefix("change ") {
        (path, false, false)
    } else if let Some(path) = line.strip_prefix("delete ") {
        (path, false, true)
    } else {
        let rest = line.strip_prefix("move ")?;
        (rest.split_once(" to ")?.1, false, false)
    };
    Some(Section {
        path: Some(path.to_owned()),
        is_new,
        is_open,
        ..Section::default()
    })
}

/// Returns the first line in the new file, if the line is the head of a hunk: `@@ -1,2 +3,4 @@`.
fn parse_hunk(line: &str) -> Option<u32> {
    let (_, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let number = new.split([',', ' ']).next()?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(diff: &Diff) -> (Option<&str>, &str) {
        (diff.old_text.as_deref(), diff.new_text.as_str())
    }

    #[test]
    fn each_hunk_becomes_a_diff() {
        let preview = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -9 +9,2 @@\n x\n+y";
        let found = parse_preview(preview, Some("src/a.rs"), Path::new("/w"));
        assert_eq!(texts(&found.diffs[0]), (Some("a\nb\nc\n"), "a\nB\nc\n"));
        assert_eq!(texts(&found.diffs[1]), (Some("x\n"), "x\ny\n"));
        assert_eq!(found.diffs[0].path, Path::new("/w/src/a.rs"));
        assert_eq!(found.locations[1].line, Some(9));
    }

    #[test]
    fn a_new_file_has_no_old_text() {
        let found = parse_preview("@@ -0,0 +1,2 @@\n+a\n+b", Some("n.txt"), Path::new("/w"));
        assert_eq!(texts(&found.diffs[0]), (None, "a\nb\n"));
    }

    #[test]
    fn a_patch_names_its_files() {
        let preview = "new file n.txt:\n+one\n+two\nchange a.rs:\n@@ -1 +1 @@\n-a\n+b\ndelete old.txt\n\
                       move here.txt to there.txt:\n@@ -2 +2 @@\n-c\n+d";
        let found = parse_preview(preview, None, Path::new("/w"));
        let paths: Vec<_> = found.diffs.iter().map(|diff| diff.path.clone()).collect();
        assert_eq!(
            paths,
            ["/w/n.txt", "/w/a.rs", "/w/old.txt", "/w/there.txt"].map(std::path::PathBuf::from)
        );
        assert_eq!(texts(&found.diffs[0]), (None, "one\ntwo\n"));
        assert_eq!(texts(&found.diffs[1]), (Some("a\n"), "b\n"));
    }

    #[test]
    fn content_that_looks_like_a_heading_is_content() {
        let preview = "@@ -1,2 +1,2 @@\n delete me\n-@@ -1 +1 @@\n+change x";
        let found = parse_preview(preview, Some("a"), Path::new("/w"));
        assert_eq!(found.diffs.len(), 1);
        assert_eq!(
            texts(&found.diffs[0]),
            (Some("delete me\n@@ -1 +1 @@\n"), "delete me\nchange x\n")
        );
    }

    #[test]
    fn what_is_no_diff_gives_none() {
        for text in ["", "(nothing changes)", "words\nand more"] {
            assert_eq!(
                parse_preview(text, Some("a"), Path::new("/w")),
                FileDiffs::default()
            );
        }
    }
}
