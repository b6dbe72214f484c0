//! Tests the outlines of each language, in the form `FIRST-LAST: SIGNATURE`, indented by depth.

use std::time::Duration;

use super::*;

/// A deadline that is never reached.
fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[track_caller]
fn check(name: &str, text: &str, expected: &str) {
    let outline = parse_outline(text, Language::for_file(name).unwrap(), far_deadline()).unwrap();
    let line = |definition: &CodeDefinition| {
        format!(
            "{}{}-{}: {}\n",
            "  ".repeat(definition.depth),
            definition.first_line,
            definition.last_line,
            definition.signature
        )
    };
    let found: String = outline.definitions.iter().map(line).collect();
    assert_eq!(found.trim_end(), expected, "{name}");
    assert!(!outline.has_errors, "{name}");
}

#[test]
fn rust() {
    check(
        "a.rs",
        "/// Doc.\n#[derive(Debug)]\npub struct A<T> {\n    x: T,\n}\n\nimpl<T: Clone> Tr for A<T> {\n    const N: usize = 3;\n    fn f(\n        \
         &self,\n        x: u8,\n    ) -> u8 {\n        fn inner() {}\n        1\n    }\n}\nmod m {\n    pub(crate) enum E { A }\n}\ntrait \
         Tr { fn f(&self) -> u8; }\nmacro_rules! m { () => {} }\ntype X = u8;\n",
        "3-5: pub struct A<T>\n7-16: impl<T: Clone> Tr for A<T>\n  8-8: const N: usize = 3;\n  9-15: fn f( &self, x: u8, ) -> u8\n17-19: mod \
         m\n  18-18: pub(crate) enum E\n20-20: trait Tr\n  20-20: fn f(&self) -> u8;\n21-21: macro_rules! m { () => {} }\n22-22: type X = u8;",
    );
}

#[test]
fn python() {
    check(
        "a.py",
        "import x\n\n@dec\nclass A(B):\n    \"\"\"Doc.\"\"\"\n    @property\n    def f(self, x: int) -> int:\n        def inner(): pass\n        \
         return 1\n\nasync def g(): pass\nif x:\n    def h(): pass\n",
        "4-9: class A(B)\n  7-9: def f(self, x: int) -> int\n11-11: async def g()\n13-13: def h()",
    );
}

#[test]
fn javascript() {
    check(
        "a.jsx",
        "export default class A extends B {\n  #x = () => 1;\n  constructor() { super(); }\n  get y() { return 1 }\n}\nexport const f = async \
         (a) => {\n  const inner = () => 1;\n};\nfunction* g() {}\nmodule.exports.h = function (x) {};\n(function () { var z = 1; function k() {} \
         })();\nconst v = <div onClick={() => 1}/>;\n",
        "1-5: export default class A extends B\n  2-2: #x = () =>\n  3-3: constructor()\n  4-4: get y()\n6-8: export const f = async (a) =>\n9-9: \
         function* g()\n10-10: module.exports.h = function (x)\n11-11: function k()",
    );
}

#[test]
fn typescript() {
    check(
        "a.ts",
        "export interface I { a: string }\nexport type T = string | number;\nenum E { A }\nnamespace N {\n  export abstract class C<T> implements I \
         {\n    abstract f(): void;\n    g = (x: number): number => x;\n  }\n}\ndeclare function h(x: string): void;\nexport const k = <T,>(x: T) \
         => x;\n",
        "1-1: export interface I\n2-2: export type T = string | number;\n3-3: enum E\n4-9: namespace N\n  5-8: export abstract class C<T> \
         implements I\n    6-6: abstract f(): void\n    7-7: g = (x: number): number =>\n10-10: declare function h(x: string): void;\n11-11: export \
         const k = <T,>(x: T) =>",
    );
    check(
        "a.tsx",
        "export function App(): Node {\n  return <p/>;\n}\n",
        "1-3: export function App(): Node",
    );
}

#[test]
fn go() {
    check(
        "a.go",
        "package a\n\ntype R struct {\n\tx int\n}\n\nfunc (r *R) F(x int) (int, error) {\n\treturn 1, nil\n}\n\nfunc g() {}\n\ntype (\n\tA \
         interface{ F() }\n\tB = int\n)\n\nconst N = 3\n",
        "3-5: type R struct\n7-9: func (r *R) F(x int) (int, error)\n11-11: func g()\n14-14: A interface{ F() }\n15-15: B = int\n18-18: const N = 3",
    );
}

#[test]
fn java() {
    check(
        "A.java",
        "package a;\n\npublic class A<T> extends B {\n    A() { }\n    @Override\n    public int f(int x) throws E {\n        return 1;\n    }\n    enum \
         K { X }\n}\nrecord P(int x) { }\ninterface I { void g(); }\n",
        "3-10: public class A<T> extends B\n  4-4: A()\n  5-8: @Override public int f(int x) throws E\n  9-9: enum K\n11-11: record P(int x)\n12-12: \
         interface I\n  12-12: void g();",
    );
}

#[test]
fn c_and_cpp() {
    check(
        "a.c",
        "#include <x.h>\n#define SQ(x) ((x)*(x))\nstruct s {\n  int x;\n};\ntypedef struct { int y; } t;\nint f(int);\nstatic int\nf(int x)\n{\n  \
         return x;\n}\nenum e { A };\nint v = 1;\n",
        "2-2: #define SQ(x) ((x)*(x))\n3-5: struct s\n6-6: typedef struct { int y; } t;\n7-7: int f(int);\n8-12: static int f(int x)\n13-13: enum e",
    );
    check(
        "a.hpp",
        "namespace n {\ntemplate <class T>\nclass A : public B {\npublic:\n  A();\n  int f(int x) const { return x; }\n  int y;\n};\nusing U = \
         int;\n}\nint n::A<int>::g() {\n  return 1;\n}\n",
        "1-10: namespace n\n  3-8: class A : public B\n    5-5: A();\n    6-6: int f(int x) const\n  9-9: using U = int;\n11-13: int n::A<int>::g()",
    );
}

#[test]
fn ruby_php_bash() {
    check(
        "a.rb",
        "module M\n  class A < B\n    def f(x)\n      1\n    end\n    def self.g = 2\n  end\nend\n",
        "1-8: module M\n  2-7: class A < B\n    3-5: def f(x)\n    6-6: def self.g =",
    );
    check(
        "a.php",
        "<p>\n<?php\nnamespace N;\ninterface I { function f(); }\nfinal class A extends B {\n    public function g(int $x): int {\n        return \
         1;\n    }\n}\nfunction h() {}\n",
        "3-3: namespace N;\n4-4: interface I\n  4-4: function f();\n5-9: final class A extends B\n  6-8: public function g(int $x): int\n10-10: \
         function h()",
    );
    check(
        "a.sh",
        "#!/bin/bash\nf() {\n  echo\n}\nfunction g { :; }\n",
        "2-4: f()\n5-5: function g",
    );
}

#[test]
fn definitions_before_a_syntax_error_are_listed() {
    let text = "fn a() {}\nfn b( {{{\n}\nstruct C;\n";
    let outline = parse_outline(text, Language::for_file("x.rs").unwrap(), far_deadline()).unwrap();
    assert!(outline.has_errors);
    assert_eq!(outline.definitions[0].signature, "fn a()");
}

#[test]
fn long_signatures_are_cut() {
    let text = format!("fn f({}) {{}}", "é: u8, ".repeat(200));
    let outline =
        parse_outline(&text, Language::for_file("x.rs").unwrap(), far_deadline()).unwrap();
    let signature = &outline.definitions[0].signature;
    assert!(
        signature.ends_with('…') && signature.len() <= MAX_SIGNATURE_BYTES + 3,
        "{signature}"
    );
}

/// No text overflows the stack or panics.
#[test]
fn any_text_is_parsed_without_panic() {
    for language in language::all_languages() {
        for piece in [
            "{",
            "(",
            "[",
            "<",
            "class A {",
            "fn f(",
            "\"",
            "/*",
            "<<A\n",
            "é\r",
            "\\",
            "}",
            "if x:\n ",
            "a.b?.c<",
        ] {
            let text = piece.repeat(4000 / piece.len());
            if let Some(outline) = parse_outline(&text, language, far_deadline()) {
                assert!(outline.definitions.len() <= text.len(), "{}", language.name);
            }
        }
    }
}

#[test]
fn the_time_is_limited() {
    let text = "\"".repeat(100_000);
    assert_eq!(
        parse_outline(&text, Language::for_file("x.rs").unwrap(), Instant::now()),
        None
    );
}

#[test]
fn extensions_are_of_one_language() {
    let mut all: Vec<_> = language::all_languages()
        .iter()
        .flat_map(|language| language.extensions)
        .collect();
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(Language::for_file("src/A.RS").is_some_and(|language| language.name == "Rust"));
    assert!(
        Language::for_file("rs").is_none()
            && Language::for_file("a.txt").is_none()
            && Language::for_file("Makefile").is_none()
    );
}
