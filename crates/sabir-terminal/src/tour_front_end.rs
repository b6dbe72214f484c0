//! Paces the tour in a terminal: announces each step, and waits for Enter.

use std::future::Future;
use std::io;
use std::pin::Pin;

use rustix::termios::isatty;
use sabir_session::agent::{FrontEnd, TaskEvent, TransientEvent, UserQuestion, UserReply};

use crate::event_renderer::ProgressFrontEnd;
use crate::front_end::SessionFrontEnd;
use crate::print;
use crate::stdin_reader::read_first_line;

/// The explanations of the turns of the recorded model.
const STEPS: [&str; 6] = [
    "The model writes its calls as text, in a dialect. Sabir reads them while they stream. First it reads the script.",
    "Now it makes two mistakes that models really make: a word where a number belongs, and an argument that the tool does not have. \
     The call is refused, and the model receives the precise reason.",
    "It corrects the call.",
    "It changes the script. The edit is matched against the file, and shown as a diff. In your own tasks you are asked before.",
    "It runs the script, in a sandbox. It also misspells an argument: a mistake with one meaning only is repaired, and said.",
    "It reports its result, and the task ends.",
];

/// A front end that shows the progress of the tour, and waits for Enter before each step if a person is there.
#[derive(Debug, Default)]
pub struct TourFrontEnd {
    progress: ProgressFrontEnd,
    /// The number of started steps.
    steps: usize,
    /// True once the user wants no more pauses.
    is_hurried: bool,
}

impl TourFrontEnd {
    /// Explains the next step, and waits for Enter.
    fn begin_step(&mut self) {
        let step = STEPS.get(self.steps).copied();
        self.steps += 1;
        let Some(step) = step.filter(|_| is_at_terminal() && !self.is_hurried) else {
            return;
        };
        print::write_stderr(&format!(
            "\n── {} of {} ── {step}\n[Enter] next step, [a]ll at once, Ctrl-C leaves: ",
            self.steps,
            STEPS.len()
        ));
        // The end of the input, or an error of it, is no reason to wait on.
        let line = read_first_line(&io::stdin()).unwrap_or_default();
        self.is_hurried = line.is_empty() || matches!(line.trim(), "a" | "all");
    }
}

/// Returns true if a person reads the tour and can press keys.
fn is_at_terminal() -> bool {
    isatty(io::stdin()) && isatty(io::stderr())
}

impl FrontEnd for TourFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        if matches!(event, TaskEvent::Transient(TransientEvent::Asking { .. })) {
            self.begin_step();
        }
        self.progress.on_event(event);
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        self.progress.request(question)
    }
}

impl SessionFrontEnd for TourFrontEnd {
    fn write(&mut self, lines: &str) {
        self.progress.write(lines);
    }
}
