//! The cline dialect: the tool's name is the tag, each argument is a tag of its own.

use super::{CLINE, Dialect, Spelled};

pub(super) const DIALECT: Dialect = Dialect {
    name: CLINE,
    summary: "The tool's name is the tag, each argument is a tag of its own inside it (Cline, Roo Code).",
    spec: include_str!("../specs/cline.md"),
    write_call,
    wrapper: ("", ""),
    lesson: "Write a call as XML-style tags: the tool's name is the tag, and each argument is a tag of its own inside it, \
named exactly as declared.\n\n\
<read_file>\n<path>src/main.rs</path>\n</read_file>\n\n\
A text of several lines may stand on lines of its own:\n\n\
<write_to_file>\n<path>notes.md</path>\n<content>\n# Notes\n\nFirst line.\n</content>\n</write_to_file>",
};

fn write_call(name: &str, arguments: &[(&str, Spelled)], out: &mut String) {
    out.push_str(&format!("<{name}>\n"));
    for (argument, Spelled { text, json }) in arguments {
        let mark = if *json { " encoding=\"json\"" } else { "" };
        out.push_str(&format!("<{argument}{mark}>{text}</{argument}>\n"));
    }
    out.push_str(&format!("</{name}>"));
}
