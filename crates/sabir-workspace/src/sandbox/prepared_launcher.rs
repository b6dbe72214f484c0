//! Starts the launcher of a command before the command is known.
//!
//! The namespaces of a command, the first process in them, and the mounts that every command has
//! take the kernel more than a millisecond, and depend only on the machine. While a supervisor
//! waits for a request, it has a launcher create them and fork the shell, which drops its
//! privileges. When a request arrives, the first process makes the mounts of the command; the shell
//! waits for them, and becomes the program. Each launcher serves one command, or none: a supervisor
//! whose command needs another one closes the socket, which ends this one.
//!
//! Nothing that protects a command is taken from an earlier moment than its start: the sockets of the machine, what is hidden and what is
//! protected are looked up and covered for each command. The mounts made ahead are used only if the machine has mounted nothing since.

#[cfg(not(target_os = "linux"))]
/// A launcher that was started ahead, which only Linux has.
pub(crate) enum AssignedLauncher {}

#[cfg(target_os = "linux")]
pub(crate) use linux::{AssignedLauncher, PreparedLauncher};
#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::fs::File;
    use std::io::{self, IoSlice, IoSliceMut, PipeReader};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
    };
    use rustix::process::{Pid, WaitOptions, getpid, getuid, waitpid};
    use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};

    use crate::kernel;
    use crate::platform::{self, ForkSide};
    use crate::sandbox::environment::{
        LaunchProgram, LauncherLinks, prepare_process, write_status,
    };
    use crate::sandbox::host_sockets::HostSocketLists;
    use crate::sandbox::launch;
    use crate::sandbox::mounts::{self, FileIdentity};
    use crate::sandbox::namespaces::{self, NamespaceSide};
    use crate::sandbox::{EffectiveLevel, NetworkAccess, SandboxPlan, SetupStage};
    use crate::supervise::fork_server::SupervisorOrder;
    use crate::supervise::{OutputDevice, SupervisorPlan, close_streams};

    /// The most bytes of a message, which holds the path of a folder.
    const MAX_MESSAGE: usize = 1 + libc::PATH_MAX as usize;
    /// The most descriptors of a message.
    const MAX_DESCRIPTORS: usize = 6;
    /// The bit in the first byte of an order that has a socket for the handle by which writes are watched.
    const HAS_WATCH: u8 = 1;
    /// The bit in the first byte of an order that has a pipe with the protected paths.
    const HAS_PROTECTED: u8 = 2;
    /// The message of the first process to the shell that all folders are mounted.
    const MOUNTED: &[u8] = b"m";
    /// The message of the first process to the shell that all paths are protected.
    const PROTECTED: &[u8] = b"p";

    /// A launcher that has made what does not depend on a command, or is about to.
    pub(crate) struct PreparedLauncher {
        process: Pid,
        /// Leads to the first process of the namespaces.
        socket: OwnedFd,
        /// The mounts of the machine, which can be polled for a change since they were opened.
        mounts: File,
        /// The services of the system that stay visible.
        services: Vec<Option<FileIdentity>>,
    }

    /// A prepared launcher with the order of its supervisor.
    pub(crate) struct AssignedLauncher {
        launcher: PreparedLauncher,
        /// The file with the order.
        order: File,
    }

    impl PreparedLauncher {
        /// Forks a launcher. This process must have no other threads.
        ///
        /// # Errors
        /// Where no process can be forked, and where a command needs a control group, which has to be entered first. If the launcher
        /// itself fails, it ends, and takes no order.
        pub(crate) fn start() -> io::Result<Self> {
            if !kernel::has_process_limit_per_namespace() && getuid().is_root() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let (socket, theirs) = open_connection()?;
            // Both before the fork: a change between them and the copy of the mounts is noticed.
            let mounts = File::open("/proc/self/mountinfo")?;
            let services = mounts::identify_services();
            let supervisor = getpid();
            match platform::fork_process()? {
                ForkSide::Parent(process) => Ok(Self {
                    process,
                    socket,
                    mounts,
                    services,
                }),
                // Nobody could read a report: without an answer, the supervisor starts another
                // launcher, which says why.
                ForkSide::Child => std::process::exit(run_ahead(supervisor, theirs).unwrap_or(1)),
            }
        }

        pub(crate) fn with_order(self, order: File) -> AssignedLauncher {
            AssignedLauncher {
                launcher: self,
                order,
            }
        }

        /// Waits until there is input, or the machine has mounted or unmounted something. Returns false for the latter: the launcher then
        /// has outdated mounts, and cannot be used.
        pub(crate) fn wait_for_input(&self, input: BorrowedFd<'_>) -> bool {
            let mut waited = [
                PollFd::from_borrowed_fd(input, PollFlags::IN),
                PollFd::new(&self.mounts, PollFlags::PRI),
            ];
            while let Err(rustix::io::Errno::INTR) = poll(&mut waited, None) {}
            let [_, mounts] = waited;
            // Looked at first: the kernel reports each change once.
            mounts.revents().is_empty()
        }

        /// Returns true if the launcher still runs, and the machine has mounted and unmounted nothing since it was started.
        fn is_current(&self) -> bool {
            // Somebody may have killed it. A command that it cannot wait for must not be started.
            if !matches!(waitpid(Some(self.process), WaitOptions::NOHANG), Ok(None)) {
                return false;
            }
            let mut waited = [PollFd::new(&self.mounts, PollFlags::PRI)];
            matches!(poll(&mut waited, Some(&Timespec::default())), Ok(0))
                && self.services == mounts::identify_services()
        }
    }

    impl AssignedLauncher {
        /// Returns true if the launcher can start the command of this plan.
        pub(in crate::sandbox) fn can_launch(
            &self,
            plan: &SandboxPlan,
            device: OutputDevice,
        ) -> bool {
            let is_visible = |path: &Path| !mounts::is_replaced(path);
            device == OutputDevice::Pipe
                && plan.network == NetworkAccess::Denied
                && plan.loopback.is_none()
                && is_visible(&plan.tmp)
                && plan.visible_paths().all(|path| is_visible(path))
                && self.launcher.is_current()
        }

        /// Sends the order, with the standard output and error of this process. Returns the launcher.
        pub(in crate::sandbox) fn send_order(
            self,
            folder: &Path,
            links: &LauncherLinks,
        ) -> io::Result<Pid> {
            let status = links.status.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
            let mut descriptors = vec![self.order.as_fd(), stdout(), stderr(), status.as_fd()];
            let mut kinds = 0;
            if let Some(watch) = &links.watch {
                kinds |= HAS_WATCH;
                descriptors.push(watch.as_fd());
            }
            if let Some(protected) = &links.protected {
                kinds |= HAS_PROTECTED;
                descriptors.push(protected.as_fd());
            }
            let mut message = vec![kinds];
            message.extend_from_slice(folder.as_os_str().as_bytes());
            if message.len() > MAX_MESSAGE {
                return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
            }
            send_message(self.launcher.socket.as_fd(), &message, &descriptors)?;
            Ok(self.launcher.process)
        }
    }

    fn send_message(
        socket: BorrowedFd<'_>,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)?;
        Ok(())
    }

    /// Makes what does not depend on a command, waits for the order, and follows it. Returns the exit code of a process that is done.
    fn run_ahead(supervisor: Pid, socket: OwnedFd) -> io::Result<i32> {
        // The copies of the connections to agent, reaper and server would keep those open.
        close_streams()?;
        platform::close_other_descriptors_except(socket.as_fd())?;
        prepare_process(supervisor, OutputDevice::Pipe, None)?;
        // The shell is allowed unix sockets, so those of the machine must be known.
        let lists = HostSocketLists::open()?;
        namespaces::create_all_namespaces(NetworkAccess::Denied)?;
        let end = match namespaces::fork_first_process()? {
            NamespaceSide::Launcher(ends) => {
                drop((socket, lists));
                return Ok(namespaces::exit_like_shell(ends));
            }
            NamespaceSide::First(end) => end,
        };
        if namespaces::is_supervisor_gone(&socket) {
            return Ok(1);
        }
        mounts::mount_system()?;
        namespaces::bring_up_loopback()?;
        let (to_shell, from_first) = open_connection()?;
        match platform::fork_process()? {
            ForkSide::Child => {
                drop((socket, lists, to_shell, end));
                run_shell(&from_first)
            }
            ForkSide::Parent(shell) => {
                drop(from_first);
                // Keeps this process's data in /proc unreadable for the command.
                platform::forbid_inspection()?;
                run_first_process(socket, to_shell, lists)?;
                Ok(namespaces::reap_until_empty(shell, end))
            }
        }
    }

    fn open_connection() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?)
    }

    /// Passes the order on to the shell, and makes the mounts. If that fails, or there is no order, the shell ends with this process.
    fn run_first_process(
        socket: OwnedFd,
        to_shell: OwnedFd,
        lists: HostSocketLists,
    ) -> io::Result<()> {
        let received = receive_message(&socket)?;
        drop(socket);
        let descriptors: Vec<_> = received.descriptors.iter().map(AsFd::as_fd).collect();
        // The shell reads it at the same time.
        send_message(to_shell.as_fd(), &received.bytes, &descriptors)?;
        drop(descriptors);
        let DecodedMessage {
            order, mut links, ..
        } = decode_message(received)?;
        let done = make_mounts(&order, links.protected.take(), &to_shell, &lists);
        if let Err(error) = &done {
            let number = error.raw_os_error().unwrap_or(0);
            write_status(links.status.as_ref(), &format!("{number}\n"));
        }
        done
    }

    fn make_mounts(
        order: &LaunchOrder,
        protected: Option<PipeReader>,
        to_shell: &OwnedFd,
        lists: &HostSocketLists,
    ) -> io::Result<()> {
        let failed = |error: io::Error| SetupStage::Mounts.to_error(&error);
        let LaunchOrder { plan, sandbox, .. } = order;
        let sockets = lists.list_sockets().map_err(failed)?;
        mounts::mount_command(sandbox, &sockets, &plan.text).map_err(failed)?;
        send_message(to_shell.as_fd(), MOUNTED, &[]).map_err(failed)?;
        if let Some(protected) = protected {
            mounts::protect_received(protected).map_err(failed)?;
        }
        send_message(to_shell.as_fd(), PROTECTED, &[]).map_err(failed)
    }

    /// Confines the shell as far as possible, waits for the order, and becomes the program. Returns the exit code.
    fn run_shell(from_first: &OwnedFd) -> io::Result<i32> {
        launch::confine_ahead(NetworkAccess::Denied)?;
        let DecodedMessage {
            order,
            links,
            output,
            errors,
        } = decode_message(receive_message(from_first)?)?;
        dup2_stdout(&output)?;
        dup2_stderr(&errors)?;
        drop((output, errors));
        let done = become_program(&order, &links, from_first);
        Ok(launch::report_end(done, &links))
    }

    fn become_program(
        order: &LaunchOrder,
        links: &LauncherLinks,
        from_first: &OwnedFd,
    ) -> io::Result<i32> {
        let LaunchOrder { plan, sandbox, .. } = order;
        let program = LaunchProgram {
            path: &plan.shell,
            arguments: plan.shell_arguments(),
            variables: Some(&order.variables),
            device: plan.device,
            input: None,
        };
        // After the mounts: rules hold for the folders that are found now.
        expect_message(from_first, MOUNTED)?;
        let landlock = launch::confine_to_files(sandbox, EffectiveLevel::Two)?;
        // Entered by its name, and when the mounts in it are complete.
        expect_message(from_first, PROTECTED)?;
        rustix::process::chdir(&order.folder)
            .map_err(|error| SetupStage::Folder.to_error(&error.into()))?;
        let level = EffectiveLevel::Two;
        Err(launch::execute_program(
            sandbox, level, &program, landlock, None, links,
        ))
    }

    /// Waits for a message without descriptors.
    fn expect_message(socket: &OwnedFd, expected: &[u8]) -> io::Result<()> {
        let received =
            receive_message(socket).map_err(|error| SetupStage::Mounts.to_error(&error))?;
        match received.bytes == expected {
            true => Ok(()),
            false => Err(SetupStage::Mounts.to_error(&io::Error::from_raw_os_error(libc::EBADMSG))),
        }
    }

    /// A message as it was received.
    struct ReceivedMessage {
        bytes: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    }

    /// Waits for a message. Fails if the other end was closed, because no launcher is needed, or its process has ended.
    fn receive_message(socket: &OwnedFd) -> io::Result<ReceivedMessage> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; MAX_MESSAGE];
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        bytes.truncate(received.bytes);
        let descriptors = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(sent) => Some(sent),
                _ => None,
            })
            .flatten()
            .collect();
        Ok(ReceivedMessage { bytes, descriptors })
    }

    /// An order in the launcher.
    struct LaunchOrder {
        plan: SupervisorPlan,
        sandbox: SandboxPlan,
        variables: Vec<(OsString, OsString)>,
        folder: PathBuf,
    }

    struct DecodedMessage {
        order: LaunchOrder,
        links: LauncherLinks,
        output: OwnedFd,
        errors: OwnedFd,
    }

    fn decode_message(received: ReceivedMessage) -> io::Result<DecodedMessage> {
        let malformed = || io::Error::from_raw_os_error(libc::EBADMSG);
        let (kinds, bytes) = received.bytes.split_first().ok_or_else(malformed)?;
        let folder = PathBuf::from(OsStr::from_bytes(bytes));
        let mut descriptors = received.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(malformed);
        let file = next()?;
        let output = next()?;
        let errors = next()?;
        let status = next()?;
        let watch = (kinds & HAS_WATCH != 0).then(&mut next).transpose()?;
        let protected = (kinds & HAS_PROTECTED != 0).then(&mut next).transpose()?;
        let order = SupervisorOrder::read_at_start(&File::from(file))?;
        let plan = SupervisorPlan::from_args(order.arguments).ok_or_else(malformed)?;
        let sandbox = SandboxPlan::from_args(&plan.sandbox).ok_or_else(malformed)?;
        Ok(DecodedMessage {
            order: LaunchOrder {
                plan,
                sandbox,
                variables: order.environment,
                folder,
            },
            links: LauncherLinks {
                status: Some(status),
                proxy: None,
                watch: watch.map(Into::into),
                protected: protected.map(Into::into),
            },
            output,
            errors,
        })
    }
}
