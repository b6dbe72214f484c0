//! Tests patches with tables of input and result.

use super::*;

/// Applies the only update of a patch; a fault is shown as in the tables of blocks.
#[track_caller]
fn check(original: &str, body: &str, expected: &str) {
    let text = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
    let applied = Patch::parse(&text).and_then(|patch| match patch.files.as_slice() {
        [
            FilePatch {
                action: FileAction::Update(update),
                ..
            },
        ] => update.apply(original),
        files => panic!("{files:?}"),
    });
    let found = match applied {
        Ok(edited) => edited.content,
        Err(faults) => faults.iter().map(brief).collect::<Vec<_>>().join(", "),
    };
    assert_eq!(found, expected, "{original:?} with {body}");
}

/// Checks how a patch is parsed, one word per file: `+path=content`, `-path`, `path`, `path>moved`.
#[track_caller]
fn check_parse(text: &str, expected: &str) {
    let found = match Patch::parse(text) {
        Ok(patch) => patch
            .files
            .iter()
            .map(|file| match &file.action {
                FileAction::Add(content) => format!("+{}={content:?}", file.path),
                FileAction::Delete => format!("-{}", file.path),
                FileAction::Update(FileUpdate {
                    move_to: Some(to), ..
                }) => format!("{}>{to}", file.path),
                FileAction::Update(_) => file.path.clone(),
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(faults) => faults.iter().map(brief).collect::<Vec<_>>().join(", "),
    };
    assert_eq!(found, expected, "{text}");
}

const ADD: &str = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";

#[test]
fn sections_are_parsed() {
    let text = "*** Begin Patch\n*** Add File: p/add.py\n+abc\n+\n+def\n*** Delete File: p/del.py\n*** Update File: p/up.py\n\
                *** Move to: p/up2.py\n@@ def f():\n-    pass\n+    return 123\n*** Update File: b c\n@@\n+x\n*** End Patch";
    check_parse(
        text,
        "+p/add.py=\"abc\\n\\ndef\\n\" -p/del.py p/up.py>p/up2.py b c",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch",
        "a>b",
    );
    check_parse("*** Begin Patch\n*** Add File: a\n*** End Patch", "+a=\"\"");
    check_parse(
        "*** Begin Patch\n*** Add File: a\n+x\n\n*** Delete File: b\n\n*** End Patch",
        "+a=\"x\\n\" -b",
    );
}

#[test]
fn text_around_a_patch_is_skipped() {
    let expected = "+a=\"x\\n\"";
    check_parse(ADD, expected);
    check_parse(&ADD.replace('\n', "\r\n"), expected);
    for text in [
        format!("<<EOF\n{ADD}\nEOF\n"),
        format!("<<'EOF'\n{ADD}\nEOF\n"),
        format!("apply_patch <<\"PATCH\"\n{ADD}\nPATCH"),
        format!("cat <<'EOF'\n{ADD}\nEOF"),
        format!("```\n{ADD}\n```\nDone."),
        "*** Begin Patch \n  *** Add File: a\n+x\n *** End Patch".to_owned(),
    ] {
        check_parse(&text, expected);
    }
    check_parse(
        &format!("{ADD}\n{}", ADD.replace(": a", ": b")),
        "+a=\"x\\n\" +b=\"x\\n\"",
    );
}

#[test]
fn malformed_patches_are_refused() {
    check_parse("bad", "NoBlocks@1 []");
    check_parse("*** Begin Patch\n*** End Patch", "NoBlocks@1 []");
    check_parse("*** Begin Patch\nbad\n*** End Patch", "UnexpectedLine@2 []");
    check_parse(
        "*** Begin Patch\n*** Frobnicate File: foo\n*** End Patch",
        "UnexpectedLine@2 []",
    );
    check_parse("*** Begin Patch\n*** Add File: a\n+x", "Unclosed@3 []");
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y",
        "Unclosed@5 []",
    );
    check_parse(
        "<<EOF\n*** Begin Patch\n*** Update File: a\nEOF\n",
        "EmptySection@3 [], UnexpectedLine@4 [], Unclosed@4 []",
    );
    check_parse(
        "*** Update File: a\n@@\n-x\n+y\n*** End Patch",
        "StrayMarker@1 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n*** End Patch",
        "EmptySection@2 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\n*** End Patch",
        "EmptySection@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\n x\n*** End Patch",
        "NoEffect@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Add File: a\nx\n*** End Patch",
        "UnexpectedLine@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Add File: a\n+x\n\n+y\n*** End Patch",
        "UnexpectedLine@5 []",
    );
    check_parse(
        "*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch",
        "UnexpectedLine@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Delete File:\n*** End Patch",
        "EmptySection@2 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\n-x\n*** Move to: b\n*** End Patch",
        "StrayMarker@5 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\nx\n*** End Patch",
        "EmptySection@3 [], UnexpectedLine@4 []",
    );
    check_parse(
        "*** Begin Patch\n*** Update File: a\n@@\n*** End of File\n-x\n*** End Patch",
        "UnexpectedLine@4 []",
    );
    check_parse(
        "*** Begin Patch\n*** Delete File: a\n*** Add File: ./a\n+x\n*** End Patch",
        "PathTwice@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n*** Move to: a\n*** End Patch",
        "PathTwice@3 []",
    );
    check_parse(
        "*** Begin Patch\n*** Begin Patch\n*** Delete File: a\n*** End Patch",
        "StrayMarker@2 []",
    );
}

#[test]
fn too_many_contexts_are_refused() {
    let text = format!(
        "*** Begin Patch\n*** Update File: f\n{}-a\n+b\n*** End Patch\n",
        "@@ a\n".repeat(102)
    );
    check_parse(&text, "UnexpectedLine@103 [], UnexpectedLine@104 []");
}

#[test]
fn hunks_are_applied() {
    check(
        "foo\nbar\nbaz\nqux\n",
        "@@\n foo\n-bar\n+BAR\n@@\n baz\n-qux\n+QUX\n",
        "foo\nBAR\nbaz\nQUX\n",
    );
    check("foo\nbar\n", " foo\n-bar\n", "foo\n");
    check(
        "alpha\nomega\n",
        "@@\n alpha\n+beta\n omega\n",
        "alpha\nbeta\nomega\n",
    );
    check(
        "a\nb\nc\nd\ne\nf\n",
        "@@\n a\n-b\n+B\n@@\n c\n d\n-e\n+E\n@@\n f\n+g\n*** End of File\n",
        "a\nB\nc\nd\nE\nf\ng\n",
    );
    check("a\n\nb\n", "@@\n a\n\n-b\n+c\n", "a\n\nc\n");
    check("a\nb\n", "@@\n-b\n+c\n\n@@\n-a\n+x\n", "x\nc\n");
    check(
        "a\nb\nc\nd\n",
        "@@\n-b\n+B\n\n-d\n+D\n",
        "NotFound@3 [2, 3, 4]",
    );
    check(
        "line1\nline2\n",
        "@@\n-missing\n+changed\n",
        "NotFound@3 []",
    );
    check("a\nb\n", "@@\n-a\n-b\n+b\n+b\n+a\n", "b\nb\na\n");
    check("a\n", "@@\n-a\n+a\n", "NoEffect@3 []");
    check(
        "a\nb\nc\n",
        "@@\n-a\n-b\n+x\n@@\n-b\n-c\n+y\n",
        "Overlap@7 []",
    );
}

#[test]
fn context_lines_find_the_place() {
    let two = "fn a\nx=10\ny=2\nfn b\nx=10\ny=20\n";
    check(
        two,
        "@@ fn b\n-x=10\n+x=11\n",
        "fn a\nx=10\ny=2\nfn b\nx=11\ny=20\n",
    );
    check(
        two,
        "@@ fn a\n-x=10\n+x=11\n",
        "fn a\nx=11\ny=2\nfn b\nx=10\ny=20\n",
    );
    check(
        two,
        "@@ fn b @@\n-x=10\n+x=11\n",
        "fn a\nx=10\ny=2\nfn b\nx=11\ny=20\n",
    );
    check(two, "@@\n-x=10\n+x=11\n", "Ambiguous@3 [2, 5]");
    check(
        two,
        "@@\n-y=2\n+y=3\n@@\n-x=10\n+x=11\n",
        "fn a\nx=10\ny=3\nfn b\nx=11\ny=20\n",
    );
    check(two, "@@ fn c\n-x=10\n+x=11\n", "ContextNotFound@3 [1]");
    check(two, "@@ fn b\n-y=2\n+y=3\n", "NotFound@3 [3]");
    check(
        two,
        "@@ -5,1 +5,1 @@\n-x=10\n+x=11\n",
        "fn a\nx=10\ny=2\nfn b\nx=11\ny=20\n",
    );
    check(
        two,
        "@@ -1,2 +1,2 @@ fn b\n-x=10\n+x=11\n",
        "fn a\nx=10\ny=2\nfn b\nx=11\ny=20\n",
    );
    let nested = "class A\n def f\n  x\nclass B\n def f\n  x\n";
    check(
        nested,
        "@@ class B\n@@ def f\n-  x\n+  y\n",
        "class A\n def f\n  x\nclass B\n def f\n  y\n",
    );
    check(
        &"a\n".repeat(200),
        &("@@ a\n".repeat(99) + "@@ b\n-a\n"),
        "ContextNotFound@3 []",
    );
    check(nested, "@@ def f\n-  x\n+  y\n", "Ambiguous@3 [3, 6]");
    check(
        nested,
        "@@ class A\n@@  def f\n  def f\n-  x\n+  y\n",
        "class A\n def f\n  y\nclass B\n def f\n  x\n",
    );
}

#[test]
fn end_of_file_is_found() {
    let text = "start\nmarker\nmiddle\nmarker\nend\n";
    check(
        text,
        "@@\n-marker\n-end\n+changed\n+end\n*** End of File\n",
        "start\nmarker\nmiddle\nchanged\nend\n",
    );
    check(
        "a\nx\nb\nx\n",
        "@@\n-x\n+y\n*** End of File\n",
        "a\nx\nb\ny\n",
    );
    check(
        "a\nx\nb\n",
        "@@\n-x\n+y\n*** End of File\n",
        "NotFound@3 [2]",
    );
    check("a\nx\n\n", "@@\n-x\n+y\n*** End of File\n", "a\ny\n\n");
    // A last line without an ending stays without one.
    check("a\nb", "@@\n-b\n+c\n+d\n", "a\nc\nd");
    check("one\r\ntwo", "@@\n-one\n+ONE\n", "ONE\r\ntwo");
}

#[test]
fn lines_are_added() {
    check(
        "foo\nbar\n",
        "@@\n+quux\n*** End of File\n",
        "foo\nbar\nquux\n",
    );
    check("", "@@\n+First line\n", "First line\n");
    check("a", "@@\n+b\n+c\n", "a\nb\nc");
    check("a\r\nb\r\n", "@@ a\n+x\n", "a\r\nx\r\nb\r\n");
    check(
        "l1\nl2\nl3\n",
        "@@\n+end\n@@\n l1\n-l2\n-l3\n+new\n",
        "l1\nnew\nend\n",
    );
    check("a\nb\na\n", "@@ a\n+x\n", "Ambiguous@3 [1, 3]");
    check("a\nb\n", "@@ -1,0 +2,1 @@\n+x\n", "EmptySearch@3 []");
}

#[test]
fn bytes_are_kept() {
    check(
        "one\r\ntwo\r\nthree\r\n",
        "@@\n-one\n+uno\n@@\n two\n+\n+between\n three\n",
        "uno\r\ntwo\r\n\r\nbetween\r\nthree\r\n",
    );
    check(
        "one\r\ntwo\nthree\r\nfour\n",
        "@@\n one\n two\n-three\n+THREE\n four\n",
        "one\r\ntwo\nTHREE\r\nfour\n",
    );
    check("same\r\nsame\n", "@@\n-same\n same\n", "same\n");
    check(
        "line1  \nline2\nline3   \n",
        "@@\n line1\n-line2\n+changed\n line3\n",
        "line1  \nchanged\nline3   \n",
    );
    check(
        "say “hi”\nsome—dash\n",
        "@@\n-say \"hi\"\n+say \"ho\"\n some-dash\n",
        "say \"ho\"\nsome—dash\n",
    );
    check(
        "alpha   \n  beta\n",
        "@@\n-alpha\n+ALPHA\n@@\n-beta\n+BETA\n",
        "ALPHA\n  BETA\n",
    );
    check(
        "\tf\n\t\tx\n",
        "@@\n f\n-\tx\n+\ty\n+\tz\n",
        "\tf\n\t\ty\n\t\tz\n",
    );
    check("\tx\n", "@@\n-x\n+x\n+  y\n", "Indentation@3 [1]");
}

#[test]
fn faults_name_hunk_and_line() {
    let text = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End Patch";
    let patch = Patch::parse(text).unwrap();
    let FileAction::Update(update) = &patch.files[0].action else {
        panic!()
    };
    assert_eq!(
        update.apply("a\n").unwrap_err()[0].to_string(),
        "hunk 1, line 3 of the patch: what the hunk expects is not in the text, and nothing like it; read the file again and \
         copy the lines exactly, indentation included."
    );
}

#[test]
fn a_hunk_before_the_first_line_goes_to_the_beginning() {
    check("a\nb\n", "@@ -0,0 +1 @@\n+new\n", "new\na\nb\n");
    check("a\nb\n", "@@ -0,0 +1,2 @@\n+1\n+2\n", "1\n2\na\nb\n");
    check("", "@@ -0,0 +1 @@\n+new\n", "new\n");
    check("a\nb\n", "@@\n+new\n", "a\nb\nnew\n");
}

#[test]
fn a_removed_last_line_without_an_ending_leaves_none() {
    check("a\nb", "@@\n a\n-b\n", "a");
    check("a\nb", "@@\n-b\n", "a");
}
