//! The languages: a row each, with the grammar and the nodes that are definitions.

use tree_sitter::Node;
use tree_sitter_language::LanguageFn;

/// A language.
pub(crate) struct Language {
    /// As it is called.
    pub(crate) name: &'static str,
    /// How names of its files end, without the dot.
    pub(crate) extensions: &'static [&'static str],
    pub(crate) grammar: LanguageFn,
    rules: &'static [&'static [Rule]],
}

/// A kind of node that is a definition.
pub(crate) struct Rule {
    kind: &'static str,
    when: When,
    /// Whether the definitions inside of it are listed too.
    pub(crate) holds_others: bool,
}

/// What makes a node of a kind a definition.
enum When {
    Always,
    /// It has this field.
    Has(&'static str),
    /// This field is of one of these kinds.
    Is(&'static str, &'static [&'static str]),
}

/// Definitions that hold others.
const fn holder(kind: &'static str) -> Rule {
    Rule { kind, when: When::Always, holds_others: true }
}

/// Definitions whose inside is not looked at.
const fn leaf(kind: &'static str) -> Rule {
    Rule { kind, when: When::Always, holds_others: false }
}

const FUNCTIONS: &[&str] = &["arrow_function", "function_expression", "generator_function"];
const PROTOTYPES: &[&str] = &["function_declarator"];

const RUST: &[Rule] = &[
    holder("mod_item"),
    holder("trait_item"),
    holder("impl_item"),
    holder("foreign_mod_item"),
    leaf("struct_item"),
    leaf("enum_item"),
    leaf("union_item"),
    leaf("function_item"),
    leaf("function_signature_item"),
    leaf("type_item"),
    leaf("associated_type"),
    leaf("const_item"),
    leaf("static_item"),
    leaf("macro_definition"),
];
const PYTHON: &[Rule] = &[holder("class_definition"), leaf("function_definition"), leaf("type_alias_statement")];
const JAVASCRIPT: &[Rule] = &[
    holder("class_declaration"),
    leaf("function_declaration"),
    leaf("generator_function_declaration"),
    leaf("method_definition"),
    Rule { kind: "variable_declarator", when: When::Is("value", FUNCTIONS), holds_others: false },
    Rule { kind: "variable_declarator", when: When::Is("value", &["class"]), holds_others: true },
    Rule { kind: "field_definition", when: When::Is("value", FUNCTIONS), holds_others: false },
    Rule { kind: "assignment_expression", when: When::Is("right", FUNCTIONS), holds_others: false },
    Rule { kind: "pair", when: When::Is("value", FUNCTIONS), holds_others: false },
];
const TYPESCRIPT: &[Rule] = &[
    holder("abstract_class_declaration"),
    holder("internal_module"),
    holder("module"),
    leaf("interface_declaration"),
    leaf("type_alias_declaration"),
    leaf("enum_declaration"),
    leaf("function_signature"),
    leaf("abstract_method_signature"),
    Rule { kind: "public_field_definition", when: When::Is("value", FUNCTIONS), holds_others: false },
];
const GO: &[Rule] = &[
    leaf("function_declaration"),
    leaf("method_declaration"),
    leaf("type_spec"),
    leaf("type_alias"),
    leaf("const_spec"),
];
const JAVA: &[Rule] = &[
    holder("class_declaration"),
    holder("interface_declaration"),
    holder("enum_declaration"),
    holder("record_declaration"),
    holder("annotation_type_declaration"),
    leaf("method_declaration"),
    leaf("constructor_declaration"),
    leaf("compact_constructor_declaration"),
];
const C: &[Rule] = &[
    leaf("function_definition"),
    leaf("type_definition"),
    leaf("preproc_function_def"),
    Rule { kind: "enum_specifier", when: When::Has("body"), holds_others: false },
    Rule { kind: "union_specifier", when: When::Has("body"), holds_others: false },
    Rule { kind: "declaration", when: When::Is("declarator", PROTOTYPES), holds_others: false },
];
const C_STRUCT: &[Rule] = &[Rule { kind: "struct_specifier", when: When::Has("body"), holds_others: false }];
const CPP: &[Rule] = &[
    holder("namespace_definition"),
    leaf("alias_declaration"),
    leaf("concept_definition"),
    Rule { kind: "class_specifier", when: When::Has("body"), holds_others: true },
    Rule { kind: "struct_specifier", when: When::Has("body"), holds_others: true },
    Rule { kind: "field_declaration", when: When::Is("declarator", PROTOTYPES), holds_others: false },
];
const RUBY: &[Rule] =
    &[holder("module"), holder("class"), holder("singleton_class"), leaf("method"), leaf("singleton_method")];
const PHP: &[Rule] = &[
    holder("namespace_definition"),
    holder("class_declaration"),
    holder("interface_declaration"),
    holder("trait_declaration"),
    holder("enum_declaration"),
    leaf("function_definition"),
    leaf("method_declaration"),
    leaf("const_declaration"),
];
const BASH: &[Rule] = &[leaf("function_definition")];

/// All languages.
static LANGUAGES: [Language; 12] = [
    Language { name: "Rust", extensions: &["rs"], grammar: tree_sitter_rust::LANGUAGE, rules: &[RUST] },
    Language { name: "Python", extensions: &["py", "pyi"], grammar: tree_sitter_python::LANGUAGE, rules: &[PYTHON] },
    Language {
        name: "JavaScript",
        extensions: &["js", "jsx", "mjs", "cjs"],
        grammar: tree_sitter_javascript::LANGUAGE,
        rules: &[JAVASCRIPT],
    },
    Language {
        name: "TypeScript",
        extensions: &["ts", "mts", "cts"],
        grammar: tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
        rules: &[JAVASCRIPT, TYPESCRIPT],
    },
    Language {
        name: "TSX",
        extensions: &["tsx"],
        grammar: tree_sitter_typescript::LANGUAGE_TSX,
        rules: &[JAVASCRIPT, TYPESCRIPT],
    },
    Language { name: "Go", extensions: &["go"], grammar: tree_sitter_go::LANGUAGE, rules: &[GO] },
    Language { name: "Java", extensions: &["java"], grammar: tree_sitter_java::LANGUAGE, rules: &[JAVA] },
    Language { name: "C", extensions: &["c"], grammar: tree_sitter_c::LANGUAGE, rules: &[C, C_STRUCT] },
    Language {
        name: "C++",
        // A header may be of either language, and this grammar reads both.
        extensions: &["cpp", "cc", "cxx", "h", "hpp", "hh", "hxx"],
        grammar: tree_sitter_cpp::LANGUAGE,
        rules: &[C, CPP],
    },
    Language { name: "Ruby", extensions: &["rb", "rake"], grammar: tree_sitter_ruby::LANGUAGE, rules: &[RUBY] },
    Language { name: "PHP", extensions: &["php"], grammar: tree_sitter_php::LANGUAGE_PHP, rules: &[PHP] },
    Language { name: "Bash", extensions: &["sh", "bash"], grammar: tree_sitter_bash::LANGUAGE, rules: &[BASH] },
];

impl Language {
    /// The language of a file of that name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        let (_, extension) = name.rsplit_once('.')?;
        LANGUAGES.iter().find(|language| language.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known)))
    }

    /// The rule after which a node is a definition.
    pub(crate) fn rule(&self, node: &Node<'_>) -> Option<&'static Rule> {
        let kind = node.kind();
        let is = |field: &str, kinds: &[&str]| {
            node.child_by_field_name(field).is_some_and(|child| kinds.contains(&child.kind()))
        };
        let mut rules = self.rules.iter().copied().flatten().filter(|rule| rule.kind == kind && node.is_named());
        rules.find(|rule| match rule.when {
            When::Always => true,
            When::Has(field) => node.child_by_field_name(field).is_some(),
            When::Is(field, kinds) => is(field, kinds),
        })
    }
}

/// The languages with their extensions, in words.
pub(crate) fn known() -> String {
    let name = |language: &Language| format!("{} (.{})", language.name, language.extensions.join(", ."));
    LANGUAGES.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// All rows.
#[cfg(test)]
pub(crate) fn all() -> &'static [Language] {
    &LANGUAGES
}
