//! Reads the picture in the clipboard of the desktop, when the user presses the key for it.
//!
//! Each desktop has a program of its own for that. The first one that can be started and has a picture is used; none of them gets
//! anything from Sabir but its fixed arguments.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The programs with their arguments, each of which prints the picture in the clipboard as PNG.
const PROGRAMS: [&[&str]; 4] = [
    &["wl-paste", "--no-newline", "--type", "image/png"],
    &[
        "xclip",
        "-selection",
        "clipboard",
        "-target",
        "image/png",
        "-out",
    ],
    &["pngpaste", "-"],
    &[
        "powershell.exe",
        "-NoProfile",
        "-Command",
        "Add-Type -AssemblyName System.Windows.Forms,System.Drawing;\
         $i=[Windows.Forms.Clipboard]::GetImage();if(!$i){exit 1};\
         $s=New-Object IO.MemoryStream;$i.Save($s,[Drawing.Imaging.ImageFormat]::Png);\
         $o=[Console]::OpenStandardOutput();$b=$s.ToArray();$o.Write($b,0,$b.Length)",
    ],
];
/// The time after which a program is stopped: one that cannot reach its desktop may wait forever.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two looks at a program.
const STEP: Duration = Duration::from_millis(5);

/// The reason why no picture can be read from the clipboard.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClipboardError {
    /// None of the programs is there.
    #[error(
        "no program that reads the clipboard is installed: install wl-clipboard (Wayland), xclip (X11) or pngpaste (macOS), or paste the \
         path of a picture"
    )]
    NoProgram,
    /// The clipboard has no picture, or the desktop cannot be reached.
    #[error("there is no picture in the clipboard")]
    NoImage,
    /// The picture is too large.
    #[error("the picture in the clipboard has more than {0} bytes")]
    TooLarge(usize),
}

/// Returns the picture in the clipboard, as PNG. Blocks until a program has printed it.
///
/// # Errors
/// When there is no program for it, no picture, or one of more than `limit_bytes`.
pub fn read_clipboard_image(limit_bytes: usize) -> Result<Vec<u8>, ClipboardError> {
    let mut is_any_there = false;
    for program in PROGRAMS {
        match run_program(program, limit_bytes) {
            ProgramOutput::Missing => {}
            ProgramOutput::Nothing => is_any_there = true,
            ProgramOutput::Picture(bytes) if bytes.len() > limit_bytes => {
                return Err(ClipboardError::TooLarge(limit_bytes));
            }
            ProgramOutput::Picture(bytes) => return Ok(bytes),
        }
    }
    Err(match is_any_there {
        true => ClipboardError::NoImage,
        false => ClipboardError::NoProgram,
    })
}

/// The output of one of the programs.
enum ProgramOutput {
    Missing,
    Nothing,
    /// At most one byte more than the limit.
    Picture(Vec<u8>),
}

fn run_program(words: &[&str], limit_bytes: usize) -> ProgramOutput {
    let Some((program, arguments)) = words.split_first() else {
        return ProgramOutput::Missing;
    };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        return ProgramOutput::Missing;
    };
    let Some(output) = child.stdout.take() else {
        return ProgramOutput::Nothing;
    };
    let most = u64::try_from(limit_bytes)
        .unwrap_or(u64::MAX)
        // One byte more tells a picture that is too large from one that just fits.
        .saturating_add(1);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is no picture, and is found out by its format.
        _ = output.take(most).read_to_end(&mut bytes);
        bytes
    });
    let begun = Instant::now();
    while !reader.is_finished() && begun.elapsed() < PATIENCE {
        std::thread::sleep(STEP);
    }
    // It has printed all, too much, or nothing for too long.
    let is_late = !reader.is_finished();
    if is_late {
        _ = child.kill();
    }
    let bytes = match is_late {
        // Not joined: a child of the program may keep the pipe open, and the thread with it.
        true => Vec::new(),
        false => reader.join().unwrap_or_default(),
    };
    // A program that printed more than the limit may be blocked, writing into a full pipe. Without
    // the kill, the wait might never end.
    _ = child.kill();
    _ = child.wait();
    match bytes.is_empty() {
        true => ProgramOutput::Nothing,
        false => ProgramOutput::Picture(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_program_is_read_up_to_a_limit() {
        let run = |words: &[&str]| match run_program(words, 8) {
            ProgramOutput::Missing => "missing".to_owned(),
            ProgramOutput::Nothing => "nothing".to_owned(),
            ProgramOutput::Picture(bytes) => String::from_utf8(bytes).unwrap(),
        };
        assert_eq!(run(&["printf", "12345"]), "12345");
        assert_eq!(run(&["printf", "123456789abc"]), "123456789");
        assert_eq!(run(&["false"]), "nothing");
        assert_eq!(run(&["sabir-no-such-program"]), "missing");
        assert_eq!(run(&["yes"]).len(), 9);
    }
}
