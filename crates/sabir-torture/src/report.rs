//! Writes results as a table, JSON, JUnit XML, an HTML page and a badge.

use std::fmt::Write as _;

use serde::Serialize;

/// The verdict on an agent in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did what was asked and nothing else.
    Passed,
    /// It did nothing, although a correct call or a readable one was sent.
    Missed,
    /// It wrote something that was not asked for.
    Wrong,
    /// It did nothing, and did not end in time.
    Hung,
    /// It offered no tool that runs commands, so there was nothing to call.
    Untested,
    /// It never sent the provider a request.
    NeverAsked,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CellResult {
    /// The agent's name.
    pub agent: String,
    /// The case's name.
    pub case: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The end of the agent's process, as text.
    pub end: String,
    /// The number of requests that the provider received.
    pub requests: usize,
    /// The files in the folder, or what a gateway's client received.
    pub detail: String,
    /// The behaviour that passes, in words.
    pub expected: String,
}

impl CellResult {
    /// Renders what the provider did, what was expected, and what happened instead.
    fn explanation(&self) -> String {
        let found = match self.detail.is_empty() {
            true => "nothing",
            false => &self.detail,
        };
        let sent = match self.requests {
            0 => "the provider was never asked".to_owned(),
            _ => format!("the provider sent: {}", find_summary(&self.case)),
        };
        format!(
            "{sent}; expected: {}; found: {found}; end: {}; requests: {}",
            self.expected, self.end, self.requests
        )
    }
}

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TortureReport {
    /// The cells, by agent and then in the order of the cases.
    pub cells: Vec<CellResult>,
}

impl Verdict {
    /// Returns the word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Missed => "missed",
            Self::Wrong => "WRONG",
            Self::Hung => "hung",
            Self::Untested => "-",
            Self::NeverAsked => "never asked",
        }
    }

    /// Reports whether the case tested anything.
    pub fn is_tested(self) -> bool {
        !matches!(self, Self::Untested | Self::NeverAsked)
    }

    /// Returns the colour in pages and badges.
    fn color(self) -> &'static str {
        match self {
            Self::Passed => "#2e7d32",
            Self::Missed => "#b26a00",
            Self::Wrong => "#b3261e",
            Self::Hung => "#7b5800",
            Self::Untested | Self::NeverAsked => "#6b6b6b",
        }
    }
}

impl TortureReport {
    /// Returns the agents in their order.
    pub fn agents(&self) -> Vec<&str> {
        let mut agents: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !agents.contains(&cell.agent.as_str()) {
                agents.push(&cell.agent);
            }
        }
        agents
    }

    fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !cases.contains(&cell.case.as_str()) {
                cases.push(&cell.case);
            }
        }
        cases
    }

    fn find(&self, agent: &str, case: &str) -> Option<&CellResult> {
        self.cells
            .iter()
            .find(|cell| cell.agent == agent && cell.case == case)
    }

    /// Counts the passed cells, out of those that were tested.
    pub fn score(&self) -> Score {
        let tested = self.cells.iter().filter(|cell| cell.verdict.is_tested());
        let passed = |cell: &&CellResult| cell.verdict == Verdict::Passed;
        Score {
            cells: self.cells.len(),
            tested: tested.clone().count(),
            passed: tested.filter(passed).count(),
            wrong: self
                .cells
                .iter()
                .filter(|cell| cell.verdict == Verdict::Wrong)
                .count(),
        }
    }

    /// Renders a line for each agent that left cells untested, with what to check; empty if there is none.
    pub fn untested_text(&self) -> String {
        let mut text = String::new();
        for agent in self.agents() {
            let count = |verdict: Verdict| {
                let cells = self.cells.iter();
                cells
                    .filter(|cell| cell.agent == agent && cell.verdict == verdict)
                    .count()
            };
            let all = self.cells.iter().filter(|cell| cell.agent == agent).count();
            let silent = count(Verdict::NeverAsked);
            if silent > 0 {
                let _ = writeln!(
                    text,
                    "`{agent}` never asked the provider in {silent} of {all} cases, so these tested nothing"
                );
            }
            let toolless = count(Verdict::Untested);
            if toolless > 0 {
                let _ = writeln!(
                    text,
                    "`{agent}` offered no tool that runs commands in {toolless} of {all} cases, so these tested nothing"
                );
            }
        }
        text
    }

    /// Renders a Markdown table with a column for each agent.
    pub fn to_table(&self) -> String {
        let agents = self.agents();
        let mut text = format!("| case | {} |\n| --- |", agents.join(" | "));
        text.push_str(&" --- |".repeat(agents.len()));
        text.push('\n');
        for case in self.cases() {
            let words: Vec<_> = agents
                .iter()
                .map(|agent| {
                    self.find(agent, case)
                        .map_or("", |cell| cell.verdict.word())
                })
                .collect();
            text.push_str(&format!("| {case} | {} |\n", words.join(" | ")));
        }
        text
    }
}

/// The counts of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// All cells.
    pub cells: usize,
    /// The cells that were tested.
    pub tested: usize,
    /// The cells that passed.
    pub passed: usize,
    /// The cells in which a wrong file was written.
    pub wrong: usize,
}

/// Writes JUnit XML with a suite for each agent.
pub fn write_junit(report: &TortureReport) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for agent in report.agents() {
        let cells = || report.cells.iter().filter(|cell| cell.agent == agent);
        let count = |verdicts: &[Verdict]| {
            cells()
                .filter(|cell| verdicts.contains(&cell.verdict))
                .count()
        };
        let _ = writeln!(
            text,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
            escape_markup(agent),
            cells().count(),
            count(&[Verdict::Missed, Verdict::Wrong, Verdict::Hung]),
            count(&[Verdict::Untested, Verdict::NeverAsked]),
        );
        for cell in cells() {
            let name = format!(
                "    <testcase classname=\"{}\" name=\"{}\"",
                escape_markup(agent),
                escape_markup(&cell.case)
            );
            let message = escape_markup(&cell.explanation());
            let _ = match cell.verdict {
                Verdict::Passed => writeln!(text, "{name}/>"),
                // Not `skipped`: a run that tested nothing would be green.
                Verdict::Untested | Verdict::NeverAsked => writeln!(
                    text,
                    "{name}><error type=\"{}\" message=\"{message}\"/></testcase>",
                    match cell.verdict {
                        Verdict::Untested => "no tool",
                        verdict => verdict.word(),
                    }
                ),
                verdict => writeln!(
                    text,
                    "{name}><failure type=\"{}\" message=\"{message}\"/></testcase>",
                    verdict.word()
                ),
            };
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// Writes a page that needs nothing from elsewhere.
pub fn write_html(report: &TortureReport) -> String {
    let score = report.score();
    let agents = report.agents();
    let mut rows = String::new();
    for case in report.cases() {
        let summary = find_summary(case);
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}<small>{}</small></th>",
            escape_markup(case),
            escape_markup(summary)
        );
        for agent in &agents {
            let _ = match report.find(agent, case) {
                None => write!(rows, "<td></td>"),
                Some(cell) => write!(
                    rows,
                    "<td style=\"color:{}\" title=\"{}\">{}</td>",
                    cell.verdict.color(),
                    escape_markup(&cell.explanation()),
                    cell.verdict.word()
                ),
            };
        }
        rows.push_str("</tr>\n");
    }
    let head: String = agents
        .iter()
        .map(|agent| format!("<th scope=\"col\">{}</th>", escape_markup(agent)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Torture scorecard</title>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <style>body{{font:15px system-ui,sans-serif;margin:2em}}table{{border-collapse:collapse}}th,td{{border:1px solid #ccc;\
         padding:.3em .6em;text-align:left}}small{{display:block;font-weight:normal;color:#555}}td{{font-weight:600}}</style>\n\
         <h1>Torture scorecard</h1>\n<p>{} of {} cells passed, {} wrong, {} not tested.</p>\n<table><thead><tr><th scope=\"col\">case</th>{head}</tr></thead>\
         <tbody>\n{rows}</tbody></table>\n</html>\n",
        score.passed,
        score.tested,
        score.wrong,
        score.cells - score.tested
    )
}

/// Writes a badge as SVG.
pub fn write_badge(report: &TortureReport) -> String {
    let score = report.score();
    let text = format!("{}/{}", score.passed, score.tested);
    let color = match score {
        Score { wrong, .. } if wrong > 0 => Verdict::Wrong.color(),
        Score { tested: 0, .. } => Verdict::Untested.color(),
        Score { passed, tested, .. } if passed == tested => Verdict::Passed.color(),
        _ => Verdict::Missed.color(),
    };
    // Digits of this font are about seven wide.
    let width = 20 + 7 * text.len();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total}\" height=\"20\" role=\"img\" aria-label=\"torture: {text}\">\
         <rect width=\"56\" height=\"20\" fill=\"#444\"/><rect x=\"56\" width=\"{width}\" height=\"20\" fill=\"{color}\"/>\
         <g fill=\"#fff\" font-family=\"Verdana,sans-serif\" font-size=\"11\"><text x=\"7\" y=\"14\">torture</text>\
         <text x=\"66\" y=\"14\">{text}</text></g></svg>\n",
        total = 56 + width
    )
}

/// Returns the description of a case's behaviour.
fn find_summary(case: &str) -> &'static str {
    crate::all_cases()
        .iter()
        .find(|known| known.name == case)
        .map_or("", |known| known.summary)
}

fn escape_markup(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no place for other control characters.
            c if c.is_control() => escaped.push(' '),
            // Nor for these two, which are no characters.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(agent: &str, case: &str, verdict: Verdict) -> CellResult {
        CellResult {
            agent: agent.to_owned(),
            case: case.to_owned(),
            verdict,
            end: "exit code 0".to_owned(),
            requests: 2,
            detail: "<script>\"&\u{1}\u{fffe}\u{ffff}".to_owned(),
            expected: "no file".to_owned(),
        }
    }

    fn report() -> TortureReport {
        TortureReport {
            cells: vec![
                cell("a", "native", Verdict::Passed),
                cell("a", "cut", Verdict::Wrong),
                cell("b", "native", Verdict::Untested),
                cell("b", "cut", Verdict::Missed),
            ],
        }
    }

    #[test]
    fn the_table_has_a_column_for_each_agent() {
        assert_eq!(
            report().to_table(),
            "| case | a | b |\n| --- | --- | --- |\n| native | pass | - |\n| cut | WRONG | missed |\n"
        );
    }

    #[test]
    fn foreign_text_is_inert_in_every_format() {
        let html = write_html(&report());
        let junit = write_junit(&report());
        for text in [&html, &junit] {
            assert!(!text.contains("<script>"), "{text}");
            assert!(!text.contains(['\u{1}', '\u{fffe}', '\u{ffff}']), "{text}");
        }
        assert!(
            html.contains("1 of 3 cells passed, 1 wrong, 1 not tested"),
            "{html}"
        );
        assert!(
            junit.contains("tests=\"2\" failures=\"1\" errors=\"0\""),
            "{junit}"
        );
        assert!(junit.contains("<error type=\"no tool\""), "{junit}");
        assert!(write_badge(&report()).contains("aria-label=\"torture: 1/3\""));
    }

    #[test]
    fn failures_say_what_was_expected_and_what_happened() {
        let mut missed = cell("a", "busy", Verdict::Missed);
        missed.detail = String::new();
        let report = TortureReport {
            cells: vec![missed],
        };
        assert!(
            write_junit(&report).contains(
                "message=\"the provider sent: status 429, then a correct call; expected: no file; \
                 found: nothing; end: exit code 0; requests: 2\""
            ),
            "{}",
            write_junit(&report)
        );
    }

    #[test]
    fn a_run_that_tested_nothing_is_not_green() {
        let mut silent = cell("a", "native", Verdict::NeverAsked);
        silent.requests = 0;
        assert_eq!(report().untested_text().lines().count(), 1);
        let report = TortureReport {
            cells: vec![silent],
        };
        assert!(report.to_table().contains("| native | never asked |"));
        assert_eq!(
            report.untested_text(),
            "`a` never asked the provider in 1 of 1 cases, so these tested nothing\n"
        );
        let junit = write_junit(&report);
        assert!(junit.contains("errors=\"1\""), "{junit}");
        assert!(
            junit.contains("<error type=\"never asked\" message=\"the provider was never asked; "),
            "{junit}"
        );
        assert!(!write_badge(&report).contains(Verdict::Passed.color()));
    }
}
