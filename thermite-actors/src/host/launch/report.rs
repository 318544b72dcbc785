//! Descriptor 3: where the kit's measuring program writes its time, and nobody else (docs/judging.md, two timers).
//!
//! A pair of sockets and no pipe: the kernel says of each write which process wrote. A descriptor that outlives the exec
//! of the measuring program is inherited by what that starts, unless it closes it; so what others write is told apart
//! here and is no part of the report.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
    sockopt,
};
use rustix::process::Pid;

use super::REPORT_BYTES_MAX;
use super::fault::{At, LaunchFault};
use super::sys::wait_any;
use super::wire::REPORT_CHUNK;

/// More pieces than a socket holds at once: each takes most of a kilobyte of its room, however short it is.
const PIECES_MAX: usize = 1_024;

/// Makes both ends, the reading one first. The kernel names the writers from here on.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), LaunchFault> {
    let (read, write) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).at("socketpair")?;
    sockopt::set_socket_passcred(&read, true).at("set SO_PASSCRED")?;
    Ok((read, write))
}

/// The reading end, in the run's init.
pub(super) struct Report {
    socket: Option<OwnedFd>,
    /// The measuring program: the run's first process.
    measurer: Pid,
    kept: usize,
    by_others: bool,
}

impl Report {
    pub(super) fn new(socket: Option<OwnedFd>, measurer: Pid) -> Report {
        Report { socket, measurer, kept: 0, by_others: false }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Whether another process than the measuring program wrote.
    pub(super) fn by_others(&self) -> bool {
        self.by_others
    }

    /// Takes what is there once the measuring program has ended, chunk by chunk.
    ///
    /// All that it wrote is among the first pieces; a leftover that never stops writing must not hold the end back.
    pub(super) fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for _ in 0..PIECES_MAX {
            if !self.fd().is_some_and(|fd| wait_any([Some(fd)], Some(Duration::ZERO))[0]) {
                break;
            }
            taken.push(self.take());
        }
        taken
    }

    /// Takes a chunk, up to the limit; the rest is read and dropped.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let Some(socket) = &self.socket else { return Vec::new() };
        let mut chunk = [0; REPORT_CHUNK];
        match receive(socket, &mut chunk) {
            Ok((0, _)) => self.socket = None,
            Ok((length, writer)) if writer == Some(self.measurer) => {
                let kept = length.min(REPORT_BYTES_MAX - self.kept);
                self.kept += kept;
                return chunk[..kept].to_vec();
            }
            Ok(_) => self.by_others = true,
            Err(Errno::INTR) => {}
            Err(_) => self.socket = None,
        }
        Vec::new()
    }
}

/// Bytes of one writer, and who it is.
fn receive(socket: &OwnedFd, chunk: &mut [u8]) -> rustix::io::Result<(usize, Option<Pid>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(chunk)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let writer = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(writer) => Some(writer.pid),
        _ => None,
    });
    Ok((received, writer))
}
