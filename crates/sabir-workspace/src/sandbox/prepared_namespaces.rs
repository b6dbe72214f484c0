//! Makes the user and network namespaces of a command before the command is known.
//!
//! A network namespace takes the kernel half a millisecond, more than all other namespaces together, and does not depend on what runs
//! in it. A supervisor that waits for an order makes one meanwhile. Each serves one command.

use std::os::fd::OwnedFd;

/// Handles of a user namespace and a network namespace of its own, in which the loopback interface is up.
pub(crate) struct PreparedNamespaces {
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux has namespaces")
    )]
    user: OwnedFd,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux has namespaces")
    )]
    network: OwnedFd,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{Pid, WaitOptions, waitpid};
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    use super::PreparedNamespaces;
    use crate::platform::{self, ForkSide};
    use crate::sandbox::namespaces::{create_user_namespace, raise_loopback};

    impl PreparedNamespaces {
        /// Has a child process create the namespaces. This process must have no other threads.
        ///
        /// # Errors
        /// Where the system has no user namespaces, or forbids them.
        pub(crate) fn create() -> io::Result<Self> {
            let (mut made, mut announce_made) = io::pipe()?;
            // Closing `hold` lets the child end, also when this process is killed meanwhile.
            let (mut opened, hold) = io::pipe()?;
            // This process cannot do it itself: it must stay in the namespaces of the user for
            // commands that have the network, and could not come back.
            match platform::fork_process()? {
                ForkSide::Child => {
                    drop((made, hold));
                    if create_here().is_ok() {
                        let _ = announce_made.write_all(&[1]);
                    }
                    drop(announce_made);
                    // The files in /proc exist as long as this process.
                    let _ = opened.read(&mut [0]);
                    std::process::exit(0)
                }
                ForkSide::Parent(maker) => {
                    drop((announce_made, opened));
                    let prepared = made.read_exact(&mut [0]).and_then(|()| Self::open(maker));
                    drop(hold);
                    // Otherwise the supervisor would find it later among the processes of the
                    // command.
                    let _ = waitpid(Some(maker), WaitOptions::empty());
                    prepared
                }
            }
        }

        /// Opens the namespaces of a process.
        fn open(process: Pid) -> io::Result<Self> {
            let open_namespace = |kind: &str| {
                let path = format!("/proc/{}/ns/{kind}", process.as_raw_nonzero());
                open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            };
            Ok(Self {
                user: open_namespace("user")?,
                network: open_namespace("net")?,
            })
        }

        /// Moves this process into the namespaces.
        pub(in crate::sandbox) fn enter(&self) -> io::Result<()> {
            // The user namespace first: only in it does this process have the right to enter the
            // network that belongs to it.
            move_into_link_name_space(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
            move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(())
        }
    }

    /// Moves this process into new namespaces.
    fn create_here() -> io::Result<()> {
        // Its files in /proc belong to its user only then.
        platform::allow_inspection()?;
        create_user_namespace(rustix::thread::UnshareFlags::NEWNET)?;
        raise_loopback()
    }
}
