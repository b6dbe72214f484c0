//! The invoke dialect: `<invoke name="…">` with `<parameter name="…">` inside.

use super::{Dialect, INVOKE, Spelled};

pub(super) const DIALECT: Dialect = Dialect {
    name: INVOKE,
    summary: "Calls are <invoke name=\"…\"> tags in a <function_calls> block, arguments <parameter name=\"…\"> tags.",
    spec: include_str!("../specs/invoke.md"),
    write_call,
    wrapper: ("<function_calls>\n", "\n</function_calls>"),
    lesson: "Write calls in a `function_calls` block: one `invoke` tag with the tool's name for each call, and in it one \
`parameter` tag with the argument's name for each argument, named exactly as declared.\n\n\
<function_calls>\n<invoke name=\"read_file\">\n<parameter name=\"path\">src/main.rs</parameter>\n</invoke>\n</function_calls>\n\n\
A text of several lines may stand on lines of its own:\n\n\
<function_calls>\n<invoke name=\"write_to_file\">\n<parameter name=\"path\">notes.md</parameter>\n\
<parameter name=\"content\">\n# Notes\n\nFirst line.\n</parameter>\n</invoke>\n</function_calls>",
};

fn write_call(name: &str, arguments: &[(&str, Spelled)], out: &mut String) {
    out.push_str(&format!("<invoke name=\"{name}\">\n"));
    for (argument, Spelled { text, json }) in arguments {
        let mark = if *json { " encoding=\"json\"" } else { "" };
        out.push_str(&format!("<parameter name=\"{argument}\"{mark}>{text}</parameter>\n"));
    }
    out.push_str("</invoke>");
}
