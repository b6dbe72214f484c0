//! Lists the functions and types of a workspace, for front ends that complete their names.
//!
//! The scanner looks at each line alone: a keyword and the name after it, as the languages write definitions at the beginning of a
//! line. It needs no parser, understands no nesting, and may take a line of a long string for code; for completing a name that is enough.

use std::path::Path;

use sabir_workspace::{StopFlag, Workspace};

/// The most files that are scanned.
const MAX_FILES: usize = 20_000;
/// The most bytes of one file that are scanned.
const MAX_FILE_BYTES: usize = 512 << 10;
/// The most symbols that are listed.
const MAX_SYMBOLS: usize = 50_000;
/// The longest line that is looked at: longer ones are generated.
const MAX_LINE: usize = 400;

/// A function or type of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolName {
    /// The name.
    pub name: String,
    /// The kind, in a word of its language: `fn`, `class`.
    pub kind: &'static str,
    /// The path of the file, relative to the folder.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
}

/// The definitions of a language.
struct Language {
    /// The endings of its files.
    endings: &'static [&'static str],
    /// The words that may precede a definition.
    modifiers: &'static [&'static str],
    /// The words before a name.
    keywords: &'static [&'static str],
}

/// The languages that are scanned.
const LANGUAGES: [Language; 12] = [
    Language {
        endings: &["rs"],
        modifiers: &["pub", "async", "const", "unsafe", "extern", "default"],
        keywords: &[
            "fn",
            "struct",
            "enum",
            "trait",
            "type",
            "union",
            "mod",
            "macro_rules!",
            "static",
            "const",
        ],
    },
    Language {
        endings: &["py", "pyi"],
        modifiers: &["async"],
        keywords: &["def", "class"],
    },
    Language {
        endings: &[
            "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "svelte", "vue",
        ],
        modifiers: &["export", "default", "async", "declare", "abstract"],
        keywords: &[
            "function",
            "class",
            "interface",
            "type",
            "enum",
            "const",
            "namespace",
        ],
    },
    Language {
        endings: &["go"],
        modifiers: &[],
        keywords: &["func", "type"],
    },
    Language {
        endings: &["java", "kt", "kts", "scala", "cs", "swift", "dart"],
        modifiers: &[
            "public",
            "private",
            "protected",
            "internal",
            "static",
            "final",
            "abstract",
            "open",
            "sealed",
            "data",
            "override",
            "partial",
            "async",
            "case",
            "inline",
            "suspend",
            "fileprivate",
            "readonly",
            "mutating",
        ],
        keywords: &[
            "class",
            "interface",
            "enum",
            "record",
            "struct",
            "trait",
            "object",
            "protocol",
            "extension",
            "fun",
            "func",
            "def",
            "typealias",
        ],
    },
    Language {
        endings: &["c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "mm"],
        modifiers: &["typedef", "static", "template"],
        keywords: &[
            "struct",
            "class",
            "enum",
            "union",
            "namespace",
            "#define",
            "@interface",
        ],
    },
    Language {
        endings: &["rb"],
        modifiers: &[],
        keywords: &["def", "class", "module"],
    },
    Language {
        endings: &["php"],
        modifiers: &[
            "public",
            "private",
            "protected",
            "static",
            "final",
            "abstract",
        ],
        keywords: &["function", "class", "interface", "trait", "enum"],
    },
    Language {
        endings: &["lua"],
        modifiers: &["local"],
        keywords: &["function"],
    },
    Language {
        endings: &["ex", "exs"],
        modifiers: &[],
        keywords: &["def", "defp", "defmodule", "defmacro", "defstruct"],
    },
    Language {
        endings: &["sh", "bash", "zsh"],
        modifiers: &[],
        keywords: &["function"],
    },
    Language {
        endings: &["zig"],
        modifiers: &["pub", "export", "inline"],
        keywords: &["fn", "const"],
    },
];

/// Lists the functions and types in the source files among these, in the order of the files. Blocks while they are read; `stop` ends it.
pub fn list_symbols(folder: &Path, files: &[String], stop: &StopFlag) -> Vec<SymbolName> {
    let Ok(workspace) = Workspace::open(folder) else {
        return Vec::new();
    };
    let mut symbols = Vec::new();
    let sources = files
        .iter()
        .filter_map(|file| Some((file, find_language(file)?)));
    for (file, language) in sources.take(MAX_FILES) {
        if stop.is_requested() || symbols.len() >= MAX_SYMBOLS {
            break;
        }
        // Through the workspace and not by path: a link must not lead the scan out of the folder.
        let read = workspace
            .parse_path(file)
            .and_then(|path| workspace.read_start(&path, MAX_FILE_BYTES));
        // A file may be gone since it was listed.
        if let Ok((bytes, _)) = read {
            scan_source(
                &String::from_utf8_lossy(&bytes),
                file,
                language,
                &mut symbols,
            );
        }
    }
    // The limit is checked before each file, and one file may have many.
    symbols.truncate(MAX_SYMBOLS);
    symbols
}

fn find_language(file: &str) -> Option<&'static Language> {
    let (_, ending) = file.rsplit_once('.')?;
    LANGUAGES
        .iter()
        .find(|language| language.endings.contains(&ending))
}

fn scan_source(text: &str, path: &str, language: &Language, symbols: &mut Vec<SymbolName>) {
    for (at, line) in text.lines().enumerate() {
        if line.len() > MAX_LINE {
            continue;
        }
        if let Some((kind, name)) = find_definition(line, language) {
            symbols.push(SymbolName {
                name: name.to_owned(),
                kind,
                path: path.to_owned(),
                line: at + 1,
            });
        }
    }
}

/// Returns the keyword and the name of the definition that a line begins.
fn find_definition<'a>(line: &'a str, language: &Language) -> Option<(&'static str, &'a str)> {
    let mut rest = line.trim_start();
    let is_nested = rest.len() < line.len();
    loop {
        let word = rest.split([' ', '\t', '(', '<', '*']).next()?;
        let after = rest.get(word.len()..)?;
        let keyword = language.keywords.iter().find(|known| **known == word);
        let is_modifier = language.modifiers.contains(&word);
        if let Some(keyword) = keyword
            && let Some(name) = name_after(keyword, after)
            // Within a function it is a variable.
            && !(is_nested && matches!(*keyword, "const" | "type" | "static" | "mod"))
        {
            // `const fn` in Rust: the next word is the keyword.
            if !language.keywords.contains(&name) && !language.modifiers.contains(&name) {
                return Some((keyword, name));
            }
        } else if !is_modifier {
            return None;
        }
        rest = after.trim_start();
        // `pub(crate)`
        if let Some(inner) = rest.strip_prefix('(') {
            rest = inner.split_once(')')?.1.trim_start();
        }
    }
}

/// Returns the name after a keyword, and after the receiver of a method in Go.
fn name_after<'a>(keyword: &str, after: &'a str) -> Option<&'a str> {
    let mut rest = after.strip_prefix([' ', '\t', '*'])?.trim_start();
    if keyword == "func" && rest.starts_with('(') {
        rest = rest.split_once(')')?.1.trim_start();
    }
    // `function*` and `def self.name`
    rest = rest.strip_prefix('*').unwrap_or(rest).trim_start();
    rest = rest.strip_prefix("self.").unwrap_or(rest);
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$')
        .unwrap_or(rest.len());
    let name = rest.get(..end)?;
    let begins = name.chars().next()?;
    let is_name = begins.is_alphabetic() || begins == '_' || begins == '$';
    // Names of one letter are type parameters and the like, which need no completion.
    (is_name && name.len() > 1).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let mut symbols = Vec::new();
        scan_source(text, file, find_language(file).unwrap(), &mut symbols);
        let shown = symbols.iter();
        shown
            .map(|one| format!("{} {}:{}", one.kind, one.name, one.line))
            .collect()
    }

    #[test]
    fn definitions_are_found_in_the_usual_languages() {
        let rust = "pub(crate) async fn run_it<T>() {\n    let x = 1;\n    const LIMIT: u8 = 1;\n}\npub struct Thing;\nconst fn two() {}\nmacro_rules! mine {\n// fn no\nimpl Thing {\n    fn inner(&self) {}\n}\nuse a::b;\npub const MOST: u8 = 1;";
        assert_eq!(
            found("a.rs", rust),
            [
                "fn run_it:1",
                "struct Thing:5",
                "fn two:6",
                "macro_rules! mine:7",
                "fn inner:10",
                "const MOST:13"
            ]
        );
        assert_eq!(
            found(
                "a.py",
                "class Box(Base):\n    async def open_it(self):\n\ndefault = 1\n"
            ),
            ["class Box:1", "def open_it:2"]
        );
        assert_eq!(
            found(
                "a.ts",
                "export default async function* load() {}\nexport const top = 1;\n  const inner = 1;\nexport type Id = string;"
            ),
            ["function load:1", "const top:2", "type Id:4"]
        );
        assert_eq!(
            found(
                "a.go",
                "func (s *Server) Serve() {\ntype Server struct {\nfunc main() {"
            ),
            ["func Serve:1", "type Server:2", "func main:3"]
        );
        assert_eq!(
            found("A.java", "public final class Main {\n  private int x;\n}"),
            ["class Main:1"]
        );
        assert_eq!(found("a.rb", "  def self.make(x)\nend"), ["def make:1"]);
        assert_eq!(
            found("a.h", "#define MAX_SIZE 1\nstruct node {"),
            ["#define MAX_SIZE:1", "struct node:2"]
        );
        assert!(find_language("a.txt").is_none());
    }

    #[test]
    fn odd_lines_are_no_definitions() {
        let text = "fn\nfn \nfn (\npub pub pub\npub(\nfn 1a\nasync\n\u{0}\nfnord x\n";
        assert_eq!(found("a.rs", text), [""; 0]);
        assert_eq!(found("a.rs", &format!("fn {}", "x".repeat(500))), [""; 0]);
    }

    #[test]
    fn symbols_of_a_folder_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "fn one() {}\n").unwrap();
        std::fs::write(folder.path().join("b.md"), "fn two() {}\n").unwrap();
        let files = ["a.rs", "b.md", "gone.rs"].map(str::to_owned);
        let symbols = list_symbols(folder.path(), &files, &StopFlag::default());
        assert_eq!(symbols.len(), 1);
        assert_eq!((symbols[0].path.as_str(), symbols[0].line), ("a.rs", 1));
    }
}
