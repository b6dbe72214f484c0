//! Tests random files with generated edits in each format, with noise that must not matter.

use proptest::prelude::*;

use super::*;

/// A file of distinct lines, and an edit of a part of it.
#[derive(Debug, Clone)]
struct Case {
    /// The lines with their endings; the last may have none.
    lines: Vec<(String, &'static str)>,
    /// The lines that the edit covers.
    from: usize,
    to: usize,
    /// The fate of each of these lines.
    fates: Vec<Fate>,
    /// True if the edit has other line endings and trailing blanks than the file.
    is_noisy: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Fate {
    Stays,
    Goes,
    Changes,
    /// The line stays, and a new one follows it.
    Grows,
}

fn cases() -> impl Strategy<Value = Case> {
    let line = (
        "[ \t]{0,3}",
        "[a-c“’–\"]{0,3}",
        prop::sample::select(vec!["", " ", "\t "]),
        prop::sample::select(vec!["\n", "\r\n"]),
    );
    let fate = prop::sample::select(vec![Fate::Stays, Fate::Goes, Fate::Changes, Fate::Grows]);
    (
        prop::collection::vec((line, fate), 1..12),
        any::<bool>(),
        any::<bool>(),
        any::<(prop::sample::Index, prop::sample::Index)>(),
    )
        .prop_map(|(parts, is_open, is_noisy, (one, other))| {
            let count = parts.len();
            let one = one.index(count);
            let other = other.index(count);
            let from = one.min(other);
            let to = one.max(other) + 1;
            let mut fates: Vec<Fate> = parts.iter().map(|(_, fate)| fate.clone()).collect();
            // The number makes each line unique, so that there is only one place.
            let mut lines: Vec<_> = parts
                .into_iter()
                .enumerate()
                .map(|(index, ((indent, text, blanks, end), _))| {
                    // Three digits, so that no line is the end of another.
                    (format!("{indent}{index:03}{text}{blanks}"), end)
                })
                .collect();
            if let (true, Some(last)) = (is_open, lines.last_mut()) {
                last.1 = "";
            }
            fates = fates[from..to].to_vec();
            if fates.iter().all(|fate| *fate == Fate::Stays) {
                fates[0] = Fate::Changes;
            }
            Case {
                lines,
                from,
                to,
                fates,
                is_noisy,
            }
        })
}

impl Case {
    fn text(&self) -> String {
        self.lines
            .iter()
            .map(|(line, end)| format!("{line}{end}"))
            .collect()
    }

    /// Returns a line as the edit shows it, noise included.
    fn shown(&self, line: &str) -> String {
        if self.is_noisy {
            format!(
                "{} ",
                line.trim_end().replace(['“'], "\"").replace('’', "'")
            )
        } else {
            line.to_owned()
        }
    }

    /// Computes the expected result by independent rules: lines that stay keep their bytes; a
    /// changed line keeps its ending; a new line ends like the line before it, and so does that
    /// line if the file ended in it.
    fn expected(&self) -> String {
        let usual = if self.lines.iter().filter(|line| line.1 == "\r\n").count()
            > self.lines.iter().filter(|line| line.1 == "\n").count()
        {
            "\r\n"
        } else {
            "\n"
        };
        let near = |index: usize| match self.lines[index].1 {
            "" => index
                .checked_sub(1)
                .map_or(usual, |before| self.lines[before].1),
            end => end,
        };
        let mut text = String::new();
        for (index, (line, end)) in self.lines.iter().enumerate() {
            let fate = if (self.from..self.to).contains(&index) {
                &self.fates[index - self.from]
            } else {
                &Fate::Stays
            };
            match fate {
                Fate::Stays => text.push_str(&format!("{line}{end}")),
                Fate::Goes => {}
                Fate::Changes => text.push_str(&format!("new{index}{end}")),
                Fate::Grows => text.push_str(&format!("{line}{0}more{index}{end}", near(index))),
            }
        }
        text
    }

    fn sides(&self) -> (Vec<String>, Vec<String>) {
        let mut old = Vec::new();
        let mut new = Vec::new();
        for (index, fate) in (self.from..self.to).zip(&self.fates) {
            let shown = self.shown(&self.lines[index].0);
            match fate {
                Fate::Stays => new.push(shown.clone()),
                Fate::Goes => {}
                Fate::Changes => new.push(format!("new{index}")),
                Fate::Grows => new.extend([shown.clone(), format!("more{index}")]),
            }
            old.push(shown);
        }
        (old, new)
    }

    fn diff(&self) -> String {
        let (old, new) = self.sides();
        let lines = |lines: Vec<String>| {
            lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        block(&lines(old), &lines(new))
    }

    fn patch(&self) -> String {
        let mut patch = "*** Begin Patch\n*** Update File: f\n@@\n".to_owned();
        for (index, fate) in (self.from..self.to).zip(&self.fates) {
            let shown = self.shown(&self.lines[index].0);
            patch.push_str(&match fate {
                Fate::Stays => format!(" {shown}\n"),
                Fate::Goes => format!("-{shown}\n"),
                Fate::Changes => format!("-{shown}\n+new{index}\n"),
                Fate::Grows => format!(" {shown}\n+more{index}\n"),
            });
        }
        patch + "*** End Patch\n"
    }

    /// Returns true if the line endings of the replacement are unambiguous. Deleted lines beside
    /// new ones leave that open, as does a deleted end of the file.
    fn is_plain(&self) -> bool {
        let ends = |fates: &[Fate]| fates.last() != Some(&Fate::Goes) || self.to < self.lines.len();
        let beside = self.fates.windows(2).all(|pair| {
            !(matches!(pair[0], Fate::Goes | Fate::Grows) && pair[1] == Fate::Changes
                || pair[0] != Fate::Stays && pair[1] == Fate::Goes)
        });
        ends(&self.fates) && beside
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn true_edits_make_the_intended_file(case in cases()) {
        prop_assume!(case.is_plain());
        let text = case.text();
        let expected = case.expected();
        let diff = case.diff();
        for diff in [diff.clone(), diff.replace('\n', "\r\n")] {
            let edited = apply_blocks(&text, &diff).map(|edited| edited.content);
            prop_assert_eq!(edited.as_ref(), Ok(&expected), "{}", diff);
        }
        let patch = case.patch();
        for patch in [patch.clone(), patch.replace('\n', "\r\n")] {
            let patch = Patch::parse(&patch).unwrap();
            let FileAction::Update(update) = &patch.files[0].action else { panic!() };
            let edited = update.apply(&text).map(|edited| edited.content);
            prop_assert_eq!(edited.as_ref(), Ok(&expected), "{:?}", patch);
        }
        let (old, new) = case.sides();
        let string = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let is_end = case.to == case.lines.len() && case.lines.last().is_some_and(|line| line.1.is_empty());
        if !is_end {
            let edited = apply_string_replacement(&text, &StringReplacement { old: string(&old), new: string(&new), count: Some(1) });
            prop_assert_eq!(edited.map(|edited| edited.content), Ok(expected.clone()));
        }
        prop_assert_eq!(replace_whole_text(&text, &expected).map(|edited| edited.content), Ok(expected));
    }

    #[test]
    fn nothing_panics_in_blocks(
        text in "[ab “\t\r\n=]{0,40}",
        diff in "((-------|<<<) SEARCH\n|={3,7}\n|:start_line:[0-9]{1,20}\n|-------\n|\\\\=======\n|[0-9] \\| a\n|(\\+{7}|>>>) REPLACE\n|[ab“\t ]{0,3}\r?\n){0,12}",
    ) {
        _ = apply_blocks(&text, &diff);
    }

    #[test]
    fn nothing_panics_in_patches(
        text in "[ab “\t\r\n]{0,40}",
        body in "(\\*\\*\\* (Update|Add|Delete) File: ?[ab]?\n|\\*\\*\\* Move to: c\n|\\*\\*\\* End of File\n|@@( -[0-9]{1,20},1 \\+1 @@)? ?[ab]?\n|[ +-]?[ab “\t]{0,3}\r?\n| \\*\\*\\* End Patch\n){0,12}",
    ) {
        for whole in [format!("*** Begin Patch\n{body}*** End Patch"), body] {
            for file in Patch::parse(&whole).map(|patch| patch.files).unwrap_or_default() {
                if let FileAction::Update(update) = file.action {
                    _ = update.apply(&text);
                }
            }
        }
    }

    #[test]
    fn nothing_panics_in_strings(
        text in "[ab “é\t\r\n]{0,40}", old in "[ab \"é\t\r\n]{0,8}", new in "[ab \"\t\r\n]{0,8}", count in prop::option::of(0..4_usize),
    ) {
        _ = apply_string_replacement(&text, &StringReplacement { old, new, count });
    }
}
