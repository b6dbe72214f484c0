//! Measures how fast edits are found in a large file, beside what a naive engine would do.

use divan::{Bencher, black_box};
use sabir_edit::{Patch, StringReplacement, apply_blocks, apply_string_replacement};

fn main() {
    divan::main();
}

/// 20,000 lines, a megabyte, as code has them: few are unique.
fn text() -> String {
    (0..20_000)
        .map(|number| match number % 4 {
            0 => format!("    fn method_{number}(&self) -> usize {{\n"),
            1 => "        let value = self.fields.iter().map(|field| field.width()).sum::<usize>();\n".to_owned(),
            2 => format!("        value + {}\n", number % 7),
            _ => "    }\n".to_owned(),
        })
        .collect()
}

/// The lines of one method, `change` made in them.
fn method(number: usize, change: impl Fn(&str) -> String) -> String {
    text()
        .lines()
        .skip(number)
        .take(4)
        .map(|line| change(line) + "\n")
        .collect()
}

fn block(search: &str, replace: &str) -> String {
    format!("------- SEARCH\n{search}=======\n{replace}+++++++ REPLACE\n")
}

fn bench(bencher: Bencher<'_, '_>, diff: &str) {
    let text = text();
    bencher.bench_local(|| apply_blocks(black_box(&text), black_box(diff)).is_ok());
}

#[divan::bench]
fn exact(bencher: Bencher<'_, '_>) {
    bench(bencher, &block(&method(19_000, str::to_owned), "x\n"));
}

#[divan::bench]
fn normalised(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        &block(&method(19_000, |line| format!("{line}  ")), "x\n"),
    );
}

#[divan::bench]
fn shifted(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        &block(&method(19_000, |line| format!("  {line}")), "  x\n"),
    );
}

#[divan::bench]
fn miss_with_hints(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        &block(
            &method(19_000, |line| line.replace("value +", "value -")),
            "x\n",
        ),
    );
}

#[divan::bench]
fn miss_of_all_lines(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        &block(&method(19_000, |line| format!("{line} // gone")), "x\n"),
    );
}

#[divan::bench]
fn thousand_blocks(bencher: Bencher<'_, '_>) {
    let diff: String = (0..1000)
        .map(|index| block(&method(index * 20, str::to_owned), "x\n"))
        .collect();
    bench(bencher, &diff);
}

#[divan::bench]
fn thousand_misses(bencher: Bencher<'_, '_>) {
    let diff: String = (0..1000)
        .map(|index| block(&format!("no such line {index}\n    }}\n"), "x\n"))
        .collect();
    bench(bencher, &diff);
}

#[divan::bench]
fn equal_lines(bencher: Bencher<'_, '_>) {
    let text = "same\n".repeat(20_000);
    let diff = block(&("same\n".repeat(10_000) + "other\n"), "x\n");
    bencher.bench_local(|| apply_blocks(black_box(&text), black_box(&diff)).is_ok());
}

#[divan::bench]
fn patch(bencher: Bencher<'_, '_>) {
    let patch = "*** Begin Patch\n*** Update File: f\n@@     fn method_19000(&self) -> usize {\n-        value + 4\n\
                 +        value\n*** End Patch";
    let text = text();
    bencher.bench_local(|| {
        let patch = Patch::parse(black_box(patch)).ok()?;
        match &patch.files.first()?.action {
            sabir_edit::FileAction::Update(update) => update.apply(black_box(&text)).ok(),
            _ => None,
        }
    });
}

#[divan::bench]
fn string(bencher: Bencher<'_, '_>) {
    let text = text();
    let replacement = StringReplacement {
        old: method(19_000, str::to_owned),
        new: "x\n".to_owned(),
        count: Some(1),
    };
    bencher.bench_local(|| {
        apply_string_replacement(black_box(&text), black_box(&replacement)).is_ok()
    });
}

/// Baseline for `exact`: one search for the bytes, and a copy.
#[divan::bench]
fn naive_exact(bencher: Bencher<'_, '_>) {
    let text = text();
    let search = method(19_000, str::to_owned);
    bencher.bench_local(|| black_box(&text).replacen(black_box(&search), "x\n", 1));
}

/// Baseline for the misses: the whole text and the block compared line by line by a diff.
#[divan::bench(sample_count = 10)]
fn naive_miss(bencher: Bencher<'_, '_>) {
    let text = text();
    let search = method(19_000, |line| format!("{line} // gone"));
    bencher.bench_local(|| {
        similar::TextDiff::from_lines(black_box(text.as_str()), black_box(search.as_str())).ratio()
    });
}
