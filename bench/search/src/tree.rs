//! The tree: 100,000 files as a large repository has them, the same on every machine.

use std::fmt::Write;
use std::io;
use std::path::Path;

/// Folders at the top, in each of them, and in each of those.
const FOLDERS: [usize; 3] = [20, 10, 10];
const FILES_A_FOLDER: usize = 50;
const WORDS: [&str; 16] = [
    "value", "result", "let", "match", "return", "buffer", "index", "common", "reader", "line", "fn", "state", "error", "path",
    "token", "write",
];

/// Makes the tree, unless it is there.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    let ready = folder.join("ready");
    if ready.exists() {
        return Ok(());
    }
    let mut dice = Dice(1);
    for place in 0..FOLDERS.iter().product() {
        let [_, middle, inner] = FOLDERS;
        let (top, rest) = (place / (middle * inner), place % (middle * inner));
        let folder = folder.join(format!("part{top:02}/module{:02}/unit{:02}", rest / inner, rest % inner));
        std::fs::create_dir_all(&folder)?;
        for number in 0..FILES_A_FOLDER {
            let name = format!("file{number:02}.{}", ["rs", "md", "toml", "py"][dice.throw(4)]);
            std::fs::write(folder.join(name), content(&mut dice, place * FILES_A_FOLDER + number))?;
        }
        if place % 20 == 0 {
            std::fs::write(folder.join(".gitignore"), "*.log\n/build/\n!keep.log\n")?;
            std::fs::create_dir(folder.join("build"))?;
            std::fs::write(folder.join("build/out.txt"), "hidden common\n")?;
        }
    }
    std::fs::write(folder.join(".gitignore"), "target\n*.tmp\n/node_modules\n*.o\n")?;
    std::fs::write(ready, "")
}

/// Lines of words; every 15,000th file has the rare one, and every 500th is binary.
fn content(dice: &mut Dice, number: usize) -> String {
    let mut text = String::new();
    for line in 0..10 + dice.throw(80) {
        let indent = " ".repeat(4 * dice.throw(4));
        text.push_str(&indent);
        for _ in 0..2 + dice.throw(8) {
            let word = WORDS.get(dice.throw(WORDS.len())).copied().unwrap_or_default();
            let _ = write!(text, "{word}{} ", if dice.throw(9) == 0 { "_item" } else { "" });
        }
        text.push('\n');
        if line == 5 && number % 15_000 == 77 {
            text.push_str("here is the xylophone\n");
        }
        if line == 3 && number % 500 == 0 {
            text.push('\0');
        }
    }
    text
}

/// A linear congruential generator: good enough for text, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }
}
