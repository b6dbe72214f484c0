//! Writes findings as SARIF 2.1.0, which code scanning services read.

use sabir_call::Severity;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::LintReport;

impl LintReport {
    /// Returns the findings as a SARIF log. `text` is the text that was linted, for the lines of the findings.
    pub fn to_sarif(&self, text: &str) -> Value {
        let lines = element_lines(text);
        let mut rules: Vec<&str> = self.findings.iter().map(|finding| finding.lint).collect();
        rules.sort_unstable();
        rules.dedup();
        let rules: Vec<_> = rules.iter().map(|rule| json!({"id": rule})).collect();
        let results: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                let level = match finding.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                };
                let element = finding.pointer.split('/').nth(1);
                let element = element.and_then(|element| element.parse::<usize>().ok());
                let line = element.and_then(|element| lines.get(element)).unwrap_or(&1);
                json!({
                    "ruleId": finding.lint, "level": level,
                    "message": {"text": format!("{}\n{}", finding.message, finding.hint)},
                    "locations": [{
                        "physicalLocation": {
                            "artifactLocation": {"uri": self.source_name},
                            "region": {"startLine": line},
                        },
                        "logicalLocations": [{"fullyQualifiedName": finding.pointer}],
                    }],
                })
            })
            .collect();
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {"name": "sabir lint", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
                "results": results,
            }],
        })
    }
}

/// Returns the line in which each element of a JSON array begins; none for another text, whose findings are then in its first line.
fn element_lines(text: &str) -> Vec<usize> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let mut lines = Vec::new();
    let mut rest = text;
    let mut line = 1;
    for element in elements {
        // The elements come in the order of the text, so each is searched behind the one before.
        let Some((before, after)) = rest.split_once(element.get()) else {
            break;
        };
        line += before.matches('\n').count();
        lines.push(line);
        line += element.get().matches('\n').count();
        rest = after;
    }
    lines
}

#[cfg(test)]
mod tests {
    use sabir_call::dialect::DialectSet;

    use crate::lint::{LintOptions, lint_text};

    #[test]
    fn findings_have_rules_levels_and_lines() {
        let text = "[\n  {\"name\": \"good\", \"description\": \"Does it.\", \"parameters\": {\"type\": \"object\"}},\n  \
                    {\"name\": \"bad name\", \"parameters\": {}}\n]\n";
        let options = LintOptions {
            dialects: DialectSet::built_in(),
            dialect: None,
            deny_warnings: false,
            source_name: "tools.json".to_owned(),
        };
        let report = lint_text(text, &options).unwrap();
        let sarif = report.to_sarif(text);
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        assert_eq!(results.len(), report.findings.len());
        let of_bad: Vec<_> = results
            .iter()
            .filter(|result| {
                let place = &result["locations"][0]["logicalLocations"][0];
                place["fullyQualifiedName"]
                    .as_str()
                    .unwrap()
                    .starts_with("/1")
            })
            .collect();
        assert!(!of_bad.is_empty());
        for result in of_bad {
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(place["region"]["startLine"], 3);
            assert_eq!(place["artifactLocation"]["uri"], "tools.json");
            let rules = sarif["runs"][0]["tool"]["driver"]["rules"]
                .as_array()
                .unwrap();
            assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]));
        }
    }
}
