//! Defines the languages that can be outlined: one row each, with the grammar and the nodes that are
//! definitions.
//!
//! A new language needs a grammar crate, a list of rules and a row in [`LANGUAGES`]. The node kinds
//! are those of the grammar's `node-types.json`.

use tree_sitter::Node;
use tree_sitter_language::LanguageFn;

/// A programming language.
pub(crate) struct Language {
    /// The usual name.
    pub(crate) name: &'static str,
    /// The extensions of its files, without the dot. Letter case does not count.
    pub(crate) extensions: &'static [&'static str],
    /// The tree-sitter grammar.
    pub(crate) grammar: LanguageFn,
    /// Lists of rules, so that a language can add to the rules of another.
    rules: &'static [&'static [DefinitionRule]],
}

/// A kind of node that is a definition.
pub(crate) struct DefinitionRule {
    /// The kind, as the grammar names it.
    kind: &'static str,
    when: RuleCondition,
    /// True if the definitions inside of it are listed too.
    pub(crate) holds_others: bool,
}

/// The condition under which a node of the kind is a definition.
enum RuleCondition {
    /// No condition.
    Always,
    /// The node has this field. A struct specifier without a body, for example, only uses a type.
    Has(&'static str),
    /// This field of the node has one of these kinds.
    Is(&'static str, &'static [&'static str]),
}

/// Makes the rule of a definition that contains others, such as a class.
const fn container_rule(kind: &'static str) -> DefinitionRule {
    DefinitionRule {
        kind,
        when: RuleCondition::Always,
        holds_others: true,
    }
}

/// Makes the rule of a definition that is listed without its content, such as a function.
const fn leaf_rule(kind: &'static str) -> DefinitionRule {
    DefinitionRule {
        kind,
        when: RuleCondition::Always,
        holds_others: false,
    }
}

/// Expressions in JavaScript that make their variable or field a function.
const FUNCTIONS: &[&str] = &[
    "arrow_function",
    "function_expression",
    "generator_function",
];
/// Declarators in C that make a declaration the prototype of a function.
const PROTOTYPES: &[&str] = &["function_declarator"];

const RUST: &[DefinitionRule] = &[
    container_rule("mod_item"),
    container_rule("trait_item"),
    container_rule("impl_item"),
    // A block such as `extern "C" { … }`.
    container_rule("foreign_mod_item"),
    leaf_rule("struct_item"),
    leaf_rule("enum_item"),
    leaf_rule("union_item"),
    leaf_rule("function_item"),
    leaf_rule("function_signature_item"),
    leaf_rule("type_item"),
    leaf_rule("associated_type"),
    leaf_rule("const_item"),
    leaf_rule("static_item"),
    leaf_rule("macro_definition"),
];
const PYTHON: &[DefinitionRule] = &[
    container_rule("class_definition"),
    leaf_rule("function_definition"),
    leaf_rule("type_alias_statement"),
];
const JAVASCRIPT: &[DefinitionRule] = &[
    container_rule("class_declaration"),
    leaf_rule("function_declaration"),
    // `function* name() {}`
    leaf_rule("generator_function_declaration"),
    leaf_rule("method_definition"),
    // `const f = () => {}`
    DefinitionRule {
        kind: "variable_declarator",
        when: RuleCondition::Is("value", FUNCTIONS),
        holds_others: false,
    },
    // `const A = class {}`
    DefinitionRule {
        kind: "variable_declarator",
        when: RuleCondition::Is("value", &["class"]),
        holds_others: true,
    },
    DefinitionRule {
        kind: "field_definition",
        when: RuleCondition::Is("value", FUNCTIONS),
        holds_others: false,
    },
    // `module.exports.f = function () {}`
    DefinitionRule {
        kind: "assignment_expression",
        when: RuleCondition::Is("right", FUNCTIONS),
        holds_others: false,
    },
    // `{ key: function () {} }`
    DefinitionRule {
        kind: "pair",
        when: RuleCondition::Is("value", FUNCTIONS),
        holds_others: false,
    },
];
// These come on top of the rules for JavaScript.
const TYPESCRIPT: &[DefinitionRule] = &[
    container_rule("abstract_class_declaration"),
    // `namespace N {}`
    container_rule("internal_module"),
    // `declare module "name" {}`
    container_rule("module"),
    leaf_rule("interface_declaration"),
    leaf_rule("type_alias_declaration"),
    leaf_rule("enum_declaration"),
    // An overload, or a function that is only declared.
    leaf_rule("function_signature"),
    leaf_rule("abstract_method_signature"),
    DefinitionRule {
        kind: "public_field_definition",
        when: RuleCondition::Is("value", FUNCTIONS),
        holds_others: false,
    },
];
const GO: &[DefinitionRule] = &[
    leaf_rule("function_declaration"),
    leaf_rule("method_declaration"),
    // One node for each name, also within `type ( … )` and `const ( … )`.
    leaf_rule("type_spec"),
    leaf_rule("type_alias"),
    leaf_rule("const_spec"),
];
const JAVA: &[DefinitionRule] = &[
    container_rule("class_declaration"),
    container_rule("interface_declaration"),
    container_rule("enum_declaration"),
    container_rule("record_declaration"),
    container_rule("annotation_type_declaration"),
    leaf_rule("method_declaration"),
    leaf_rule("constructor_declaration"),
    // The constructor of a record without its parameter list.
    leaf_rule("compact_constructor_declaration"),
];
const C: &[DefinitionRule] = &[
    leaf_rule("function_definition"),
    leaf_rule("type_definition"),
    // `#define NAME(parameters)`; macros without parameters are too many.
    leaf_rule("preproc_function_def"),
    // Without a body, a specifier only uses the type: `enum e x;`.
    DefinitionRule {
        kind: "enum_specifier",
        when: RuleCondition::Has("body"),
        holds_others: false,
    },
    DefinitionRule {
        kind: "union_specifier",
        when: RuleCondition::Has("body"),
        holds_others: false,
    },
    // Prototypes, but not variables.
    DefinitionRule {
        kind: "declaration",
        when: RuleCondition::Is("declarator", PROTOTYPES),
        holds_others: false,
    },
];
// Apart from `C`, because a struct of C++ contains functions and one of C does not.
const C_STRUCT: &[DefinitionRule] = &[DefinitionRule {
    kind: "struct_specifier",
    when: RuleCondition::Has("body"),
    holds_others: false,
}];
const CPP: &[DefinitionRule] = &[
    container_rule("namespace_definition"),
    leaf_rule("alias_declaration"),
    leaf_rule("concept_definition"),
    DefinitionRule {
        kind: "class_specifier",
        when: RuleCondition::Has("body"),
        holds_others: true,
    },
    DefinitionRule {
        kind: "struct_specifier",
        when: RuleCondition::Has("body"),
        holds_others: true,
    },
    // Methods that are declared here and defined elsewhere.
    DefinitionRule {
        kind: "field_declaration",
        when: RuleCondition::Is("declarator", PROTOTYPES),
        holds_others: false,
    },
];
const RUBY: &[DefinitionRule] = &[
    container_rule("module"),
    container_rule("class"),
    // `class << self`
    container_rule("singleton_class"),
    leaf_rule("method"),
    leaf_rule("singleton_method"),
];
const PHP: &[DefinitionRule] = &[
    container_rule("namespace_definition"),
    container_rule("class_declaration"),
    container_rule("interface_declaration"),
    container_rule("trait_declaration"),
    container_rule("enum_declaration"),
    leaf_rule("function_definition"),
    leaf_rule("method_declaration"),
    leaf_rule("const_declaration"),
];
const BASH: &[DefinitionRule] = &[leaf_rule("function_definition")];

/// All languages. No extension occurs twice.
static LANGUAGES: [Language; 12] = [
    Language {
        name: "Rust",
        extensions: &["rs"],
        grammar: tree_sitter_rust::LANGUAGE,
        rules: &[RUST],
    },
    Language {
        name: "Python",
        extensions: &["py", "pyi"],
        grammar: tree_sitter_python::LANGUAGE,
        rules: &[PYTHON],
    },
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
    Language {
        name: "Go",
        extensions: &["go"],
        grammar: tree_sitter_go::LANGUAGE,
        rules: &[GO],
    },
    Language {
        name: "Java",
        extensions: &["java"],
        grammar: tree_sitter_java::LANGUAGE,
        rules: &[JAVA],
    },
    Language {
        name: "C",
        extensions: &["c"],
        grammar: tree_sitter_c::LANGUAGE,
        rules: &[C, C_STRUCT],
    },
    Language {
        name: "C++",
        // A `.h` file may be of either language, and this grammar parses both.
        extensions: &["cpp", "cc", "cxx", "h", "hpp", "hh", "hxx"],
        grammar: tree_sitter_cpp::LANGUAGE,
        rules: &[C, CPP],
    },
    Language {
        name: "Ruby",
        extensions: &["rb", "rake"],
        grammar: tree_sitter_ruby::LANGUAGE,
        rules: &[RUBY],
    },
    Language {
        name: "PHP",
        extensions: &["php"],
        grammar: tree_sitter_php::LANGUAGE_PHP,
        rules: &[PHP],
    },
    Language {
        name: "Bash",
        extensions: &["sh", "bash"],
        grammar: tree_sitter_bash::LANGUAGE,
        rules: &[BASH],
    },
];

impl Language {
    /// Returns the language of a file, by the extension of its name.
    pub(crate) fn for_file(name: &str) -> Option<&'static Self> {
        let (_, extension) = name.rsplit_once('.')?;
        LANGUAGES.iter().find(|language| {
            language
                .extensions
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        })
    }

    /// Returns the rule that makes a node a definition; `None` if it is none.
    pub(crate) fn matching_rule(&self, node: &Node<'_>) -> Option<&'static DefinitionRule> {
        let kind = node.kind();
        let has_kind = |field: &str, kinds: &[&str]| {
            node.child_by_field_name(field)
                .is_some_and(|child| kinds.contains(&child.kind()))
        };
        // Keywords are nodes too, without a name: the token `class` has the kind of a class in
        // Ruby.
        let mut rules = self
            .rules
            .iter()
            .copied()
            .flatten()
            .filter(|rule| rule.kind == kind && node.is_named());
        rules.find(|rule| match rule.when {
            RuleCondition::Always => true,
            RuleCondition::Has(field) => node.child_by_field_name(field).is_some(),
            RuleCondition::Is(field, kinds) => has_kind(field, kinds),
        })
    }
}

/// Lists the languages with their extensions, for messages.
pub(crate) fn known_languages() -> String {
    let name =
        |language: &Language| format!("{} (.{})", language.name, language.extensions.join(", ."));
    LANGUAGES.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Returns all rows.
#[cfg(test)]
pub(crate) fn all_languages() -> &'static [Language] {
    &LANGUAGES
}
