//! What goes over the control socket between the rig, a launcher and an init.
//!
//! A packet is one kind byte and a body; packets keep their order and their limits (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::fault::LaunchFault;

/// The longest packet, in bytes.
const PACKET_MAX: usize = 16 * 1024;
/// How much of what descriptor 3 received goes into one packet, in bytes.
pub(super) const REPORT_CHUNK: usize = 8 * 1024;
/// The most descriptors that one packet carries.
const FDS_MAX: usize = 4;

/// How the leader ended, as its init saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaderEnd {
    /// The exit code, or `None` for a signal.
    pub(super) code: Option<i32>,
    /// The signal, or 0.
    pub(super) signal: i32,
    /// When it was reaped, `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) at_ns: u64,
    /// CPU time of the tree, in nanoseconds.
    pub(super) cpu_ns: u64,
    /// Whether another process than the leader wrote on descriptor 3.
    pub(super) reported_by_others: bool,
}

/// The run's init, as the launcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InitFacts {
    /// Its pid outside.
    pub(super) pid: u32,
    /// Its start time in clock ticks since boot: with the pid, one process for certain.
    pub(super) start: u64,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Rig to launcher: descriptors of the order, the lifeline, the gate and the start pipe.
    Order,
    /// Launcher to rig, with the init's pidfd: the init exists and the run file is written.
    Init(InitFacts),
    /// Leader to rig: everything is prepared, it waits at the gate.
    AtGate,
    /// Anyone to rig: it cannot be done.
    Fault(LaunchFault),
    /// Init to rig: bytes from descriptor 3.
    Reported(Vec<u8>),
    /// Init to rig: the leader ended.
    Ended(LeaderEnd),
    /// Init or launcher to rig: the kernel knows of no process of the run; only where it has no namespaces.
    Empty,
}

impl Packet {
    fn encode(&self) -> Vec<u8> {
        fn json(kind: u8, body: &impl Serialize) -> Vec<u8> {
            let mut bytes = vec![kind];
            serde_json::to_writer(&mut bytes, body).expect("plain numbers and strings have a JSON form");
            bytes
        }
        match self {
            Packet::Order => vec![b'O'],
            Packet::Init(facts) => json(b'I', facts),
            Packet::AtGate => vec![b'G'],
            Packet::Empty => vec![b'N'],
            Packet::Fault(fault) => json(b'F', fault),
            Packet::Reported(bytes) => [b"R", bytes.as_slice()].concat(),
            Packet::Ended(end) => json(b'E', end),
        }
    }

    fn decode(bytes: &[u8]) -> io::Result<Packet> {
        let (kind, body) = bytes.split_first().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(match kind {
            b'O' => Packet::Order,
            b'I' => Packet::Init(serde_json::from_slice(body)?),
            b'G' => Packet::AtGate,
            b'N' => Packet::Empty,
            b'F' => Packet::Fault(serde_json::from_slice(body)?),
            b'R' => Packet::Reported(body.to_vec()),
            b'E' => Packet::Ended(serde_json::from_slice(body)?),
            kind => return Err(io::Error::other(format!("unknown packet kind {kind}"))),
        })
    }
}

/// Sends a packet with descriptors.
pub(super) fn send(socket: impl AsFd, packet: &Packet, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = packet.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "at most {FDS_MAX} descriptors go into a packet");
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a packet with its descriptors; `None` at the end of the other side.
pub(super) fn receive(socket: impl AsFd, wait: bool) -> io::Result<Option<(Packet, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if !wait {
        flags |= RecvFlags::DONTWAIT;
    }
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            // The other side died with packets of ours unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    if received == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(Some((Packet::decode(&bytes[..received])?, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_comes_back_as_it_was() {
        let packets = [
            Packet::Order,
            Packet::Init(InitFacts { pid: 7, start: u64::MAX }),
            Packet::AtGate,
            Packet::Empty,
            Packet::Fault(LaunchFault::new("mount /proc", "no")),
            Packet::Reported(vec![0, 255, 10]),
            Packet::Ended(LeaderEnd { code: Some(3), signal: 0, at_ns: 1, cpu_ns: 2, reported_by_others: true }),
        ];
        for packet in packets {
            assert_eq!(Packet::decode(&packet.encode()).unwrap(), packet);
        }
        assert!(Packet::decode(b"").is_err());
        assert!(Packet::decode(b"?").is_err());
    }
}
