//! Handles signals: SIGINT interrupts the session, SIGTERM and SIGHUP end it, and a second signal
//! ends the process.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use sabir_session::{Command, SessionHandle};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::screen::{self, ExitBySignal};

/// The number of listeners so far. Only the last one acts: a session may follow another in one process.
static LISTENERS: AtomicU64 = AtomicU64::new(0);

/// Listens for signals on a separate thread, because the main thread may be blocked on disk I/O. `exit` ends the process.
///
/// In a session that stays open the first SIGINT of a run interrupts it, and the second one ends the process. Where the session only
/// waits for a message, SIGINT leaves it.
///
/// # Errors
/// When no thread can be started.
pub fn listen_for_signals(
    session: SessionHandle,
    stays_open: bool,
    exit: ExitBySignal,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut signals: Vec<Signal> = {
        let _inside = runtime.enter();
        // A signal that cannot be handled keeps its default action, which ends the process.
        kinds
            .into_iter()
            .filter_map(|kind| signal(kind).ok())
            .collect()
    };
    let number = LISTENERS.fetch_add(1, Ordering::SeqCst) + 1;
    let listen = move || {
        let mut interrupted_run = None;
        loop {
            let received = runtime.block_on(any(&mut signals));
            if LISTENERS.load(Ordering::SeqCst) != number {
                return;
            }
            let run = session.run_number();
            if interrupted_run == Some(run) {
                screen::restore();
                exit(SignalKind::interrupt().as_raw_value());
                return;
            }
            interrupted_run = Some(run);
            let is_by_key = stays_open && received == 0;
            if is_by_key && session.end_if_waiting() {
                continue;
            }
            // Rejected only if the session is over, when no command is needed.
            _ = if is_by_key {
                session.submit(Command::Interrupt)
            } else {
                session.cancel()
            };
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)?;
    Ok(())
}

/// Waits for one of these signals and returns its index.
async fn any(signals: &mut [Signal]) -> usize {
    poll_fn(|context| {
        match signals
            .iter_mut()
            .position(|signal| signal.poll_recv(context).is_ready())
        {
            Some(at) => Poll::Ready(at),
            None => Poll::Pending,
        }
    })
    .await
}

/// Runs a server until it ends by itself. It gets a future that SIGINT or SIGTERM completes; a second signal ends the process.
///
/// # Errors
/// When signals cannot be received.
pub fn serve_until_signal<T>(
    runtime: Runtime,
    exit: ExitBySignal,
    server: impl AsyncFnOnce(Pin<Box<dyn Future<Output = ()> + Send>>) -> T,
) -> io::Result<T> {
    let served = runtime.block_on(async {
        let end = shutdown_signal(exit)?;
        Ok(server(Box::pin(end)).await)
    });
    // The thread that reads standard input cannot be stopped, and must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}

/// Returns a future that resolves when the process receives SIGINT or SIGTERM, for programs that serve others. A second signal ends the
/// process through `exit`. Must be called within a tokio runtime.
///
/// # Errors
/// When signals cannot be received.
pub fn shutdown_signal(exit: ExitBySignal) -> io::Result<impl Future<Output = ()> + Send> {
    let mut signals = vec![
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ];
    Ok(async move {
        any(&mut signals).await;
        tokio::spawn(async move {
            any(&mut signals).await;
            exit(SignalKind::interrupt().as_raw_value());
        });
    })
}
