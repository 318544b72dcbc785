//! Frames on the bus: their bytes stay as they are for a version, another version is told by its first byte, and no input
//! whatever makes a reader panic or take more memory than a frame may.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::dev_run::Exit;
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, DevRunId, JobId, LaneId, RunId};
use thermite_core::job::{JobSpec, PinnedChange, StageKind};
use thermite_core::limits;
use thermite_core::time::Span;
use thermite_core::wire::{
    Answer, Ask, Checked, Document, Progress, SlotAnswer, SlotAsk, SlotFacts, SlotNo, Standing, StepOf, StepStanding,
    Ticket, WIRE_VERSION, Work,
};
use thermite_svc::bus::codec::{BUS, Codec, CodecFault};

use crate::support::Luck;

/// Counts what the running thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one only counts and passes on")]
// SAFETY: every call is the system's allocator's own, with the caller's own promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn the_bytes_of_a_version_stay_as_they_are() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../cases/wire/{WIRE_VERSION}.txt"));
    let mut expected = String::new();
    for (name, frame) in golden() {
        writeln!(expected, "{name} {}", hex(&frame)).unwrap();
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();

    assert_eq!(
        found, expected,
        "the bytes of wire version {WIRE_VERSION} are others than were committed: raise WIRE_VERSION, or, where no release \
         spoke this version yet, write them anew with UPDATE_DOCS=1"
    );
}

#[test]
fn what_is_said_is_read_again_as_it_was() {
    for ask in asks() {
        assert_eq!(BUS.decode::<Ask>(&BUS.encode(&ask).unwrap()).unwrap(), ask);
    }
    for answer in answers() {
        assert_eq!(BUS.decode::<Answer>(&BUS.encode(&answer).unwrap()).unwrap(), answer);
    }
}

/// A question of one release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OldAsk {
    slot: u16,
    what: OldWhat,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum OldWhat {
    Check,
    Stop { grant: u64 },
}

/// The same of the next, which knows more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct NewAsk {
    slot: u16,
    what: NewWhat,
    note: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum NewWhat {
    Check,
    Stop { grant: u64 },
    Rest { span: u64 },
}

const OLD: Codec<1_000> = Codec::new(1);
const NEW: Codec<1_000> = Codec::new(2);

#[test]
fn an_old_reader_is_told_the_new_version_and_reads_nothing_else_of_it() {
    let new = NewAsk { slot: 1, what: NewWhat::Rest { span: 7 }, note: "later".into() };

    let read = OLD.decode::<OldAsk>(&NEW.encode(&new).unwrap());
    let nothing_but_the_version = OLD.decode::<OldAsk>(&NEW.could_not_read());

    assert_eq!(read, Err(CodecFault::OtherWire { has: 2, wants: 1 }));
    assert_eq!(nothing_but_the_version, Err(CodecFault::OtherWire { has: 2, wants: 1 }));
}

#[test]
fn a_new_reader_is_told_the_old_version() {
    let old = OldAsk { slot: 1, what: OldWhat::Stop { grant: 3 } };

    let read = NEW.decode::<NewAsk>(&OLD.encode(&old).unwrap());

    assert_eq!(read, Err(CodecFault::OtherWire { has: 1, wants: 2 }));
}

#[test]
fn what_was_added_without_a_new_version_is_never_taken_for_something_else() {
    let added = NewAsk { slot: 1, what: NewWhat::Stop { grant: 3 }, note: "more".into() };
    let unknown = NewAsk { slot: 1, what: NewWhat::Rest { span: 3 }, note: String::new() };
    let old = OldAsk { slot: 1, what: OldWhat::Check };

    let garbled = |read: Result<OldAsk, CodecFault>| matches!(read, Err(CodecFault::Garbled(_)));

    assert!(garbled(OLD.decode(&OLD.encode(&added).unwrap())));
    assert!(garbled(OLD.decode(&OLD.encode(&unknown).unwrap())));
    assert!(matches!(OLD.decode::<NewAsk>(&OLD.encode(&old).unwrap()), Err(CodecFault::Garbled(_))));
}

#[test]
fn a_frame_that_is_too_long_is_neither_made_nor_read() {
    let output = |bytes: usize| {
        let what = SlotAnswer::Output { bytes: vec![7; bytes], offset: 0, total: 0, cut: 0, complete: true };
        Answer { boot: Uuid::nil(), what }
    };
    let most = limits::WIRE_FRAME_BYTES_MAX;

    let longest = BUS.encode(&output(most - 100)).unwrap();
    let too_long = BUS.encode(&output(most));
    let came = BUS.decode::<Answer>(&[&[WIRE_VERSION][..], &vec![0; most]].concat());

    assert!(longest.len() <= most);
    assert_eq!(BUS.decode::<Answer>(&longest).unwrap(), output(most - 100));
    assert_eq!(too_long, Err(CodecFault::TooLong { bytes: most + 1, most }));
    assert_eq!(came, Err(CodecFault::TooLong { bytes: most + 1, most }));
}

#[test]
fn a_frame_that_is_cut_or_has_something_behind_it_is_garbled() {
    for (name, frame) in golden() {
        let read = |frame: &[u8]| match name.starts_with("ask") {
            true => BUS.decode::<Ask>(frame).map(drop),
            false => BUS.decode::<Answer>(frame).map(drop),
        };
        assert_eq!(read(&frame), Ok(()), "{name}");
        for length in 1..frame.len() {
            assert!(matches!(read(&frame[..length]), Err(CodecFault::Garbled(_))), "{name} cut at {length}");
        }
        let longer = [&frame[..], &[0]].concat();
        assert!(matches!(read(&longer), Err(CodecFault::Garbled(_))), "{name}");
        assert!(matches!(read(&[]), Err(CodecFault::Garbled(_))));
    }
}

#[test]
fn no_input_makes_a_reader_panic_or_take_more_than_a_frame_may() {
    let is_long = std::env::var_os("THERMITE_LONG").is_some_and(|value| value == "1");
    let inputs: u64 = if is_long { 10_000_000 } else { 100_000 };
    let mut luck = Luck::seeded(20_261_201);
    let frames: Vec<Vec<u8>> = golden().into_iter().map(|(_, frame)| frame).collect();
    let mut read_whole = 0;

    for _ in 0..inputs {
        let input = input(&mut luck, &frames);
        read_whole += u64::from(is_read::<Ask>(&input)) + u64::from(is_read::<Answer>(&input));
    }

    println!("{inputs} inputs; {read_whole} of them meant something");
    assert!(read_whole > 0, "the inputs are too far from frames to try a reader");
}

/// Whether it can be read; whatever it is, it costs no more than a frame and what its bytes hold.
fn is_read<T: DeserializeOwned>(input: &[u8]) -> bool {
    let before = TAKEN.with(Cell::get);
    let read = BUS.decode::<T>(input);
    let taken = TAKEN.with(Cell::get) - before;
    // A claim to hold much is believed up to a frame's length, or the reader's own first guess of 1 MiB; and text is taken
    // once by the reader and once by its type.
    let most = 2 * limits::WIRE_FRAME_BYTES_MAX.max(1 << 20) + 96 * input.len();
    assert!(taken <= most, "{taken} bytes were taken for a frame of {}: {}", input.len(), hex(input));
    read.is_ok()
}

/// Random bytes, or a frame with something done to it.
fn input(luck: &mut Luck, frames: &[Vec<u8>]) -> Vec<u8> {
    let random = |most: u64, luck: &mut Luck| -> Vec<u8> {
        let length = luck.below(most);
        (0..length).map(|_| luck.below(256) as u8).collect()
    };
    match luck.below(8) {
        0 => random(64, luck),
        1 => [vec![WIRE_VERSION], random(256, luck)].concat(),
        kind => {
            let mut frame = frames[luck.below(frames.len() as u64) as usize].clone();
            for _ in 0..=luck.below(3) {
                let at = luck.below(frame.len() as u64) as usize;
                match kind {
                    2 => frame[at] = luck.below(256) as u8,
                    3 => frame[at] ^= 1 << luck.below(8),
                    // The marks of long numbers: lengths that claim a great deal.
                    4 => frame[at] = 251 + luck.below(5) as u8,
                    5 => frame.truncate(at.max(1)),
                    6 => frame.extend(random(16, luck)),
                    _ => {
                        let other = &frames[luck.below(frames.len() as u64) as usize];
                        let from = luck.below(other.len() as u64) as usize;
                        frame.splice(at.., other[from..].iter().copied());
                    }
                }
            }
            frame
        }
    }
}

fn golden() -> Vec<(String, Vec<u8>)> {
    let asks = asks().into_iter().enumerate().map(|(at, ask)| (format!("ask-{at}"), BUS.encode(&ask).unwrap()));
    let answers = answers().into_iter().enumerate();
    let answers = answers.map(|(at, answer)| (format!("answer-{at}"), BUS.encode(&answer).unwrap()));
    asks.chain(answers).collect()
}

/// One of each kind, with numbers of each length.
fn asks() -> Vec<Ask> {
    let boot = Uuid::from_u128(0x0198_c1f2_7a10_7c3e_9d7f_1b2a_3c4d_5e6f);
    let ticket = Ticket { boot, number: 300 };
    let dev_run = Work::DevRun {
        dev_run: DevRunId(Uuid::from_u128(1)),
        run: RunId(Uuid::from_u128(2)),
        lane: LaneId::new(3).unwrap(),
        argv: vec!["cargo".into(), "bench".into()],
        env: vec![("A".into(), "1".into())],
        contract: Box::default(),
        limit: Some(Span::minutes(5)),
        commit: "0123456789abcdef0123456789abcdef01234567".into(),
        models: Vec::new(),
    };
    let of = StepOf { job: Arc::new(job()), stage: StageKind::Confirmation, attempt: 2 };
    let step = Document(r#"{"step":"prepare"}"#.into());
    let whats = [
        SlotAsk::Check { ticket: None },
        SlotAsk::Check { ticket: Some(ticket) },
        SlotAsk::Start { ticket, grant: 70_000, work: Box::new(dev_run) },
        SlotAsk::Start { ticket, grant: 1, work: Box::new(Work::Stage) },
        SlotAsk::Step { boot, grant: 250, number: 251, of: Box::new(of), step },
        SlotAsk::Stop { grant: u64::MAX, cause: StopCause::LimitReached { limit: Span::minutes(5) } },
        SlotAsk::Tell { grant: 5_000_000_000 },
        SlotAsk::Output { grant: 9, from: 1 << 40, most: 262_144 },
        SlotAsk::Ack { grant: 0 },
    ];
    whats.into_iter().map(|what| Ask { epoch: 12, slot: 1, what }).collect()
}

fn job() -> JobSpec {
    JobSpec {
        job: JobId(Uuid::from_u128(4)),
        run: RunId(Uuid::from_u128(2)),
        arrival: Arrival(7),
        pinned: PinnedChange {
            champion: "aa".repeat(20),
            change: "bb".repeat(20),
            candidate: "cc".repeat(20),
            candidate_tree: "dd".repeat(20),
            paths: vec!["src/lib.rs".into()],
            kit: Kit {
                name: "small".into(),
                target: Target::Cpu,
                build: Some(Argv(vec!["sh".into(), "build.sh".into()])),
                check: None,
                measure: Argv(vec!["./program".into()]),
                timer: Timer::Wall,
                editable: vec!["src/**".into()],
                artefacts: Vec::new(),
                models: Vec::new(),
                contract: Contract::default(),
            },
            kit_hash: "ee".repeat(32),
        },
    }
}

fn answers() -> Vec<Answer> {
    let boot = Uuid::from_u128(0x0198_c1f2_7a10_7c3e_9d7f_1b2a_3c4d_5e6f);
    let standing = |at: Progress, step: Option<StepStanding>| Standing {
        grant: 70_000,
        dev_run: step.is_none().then(|| DevRunId(Uuid::from_u128(1))),
        at,
        step,
    };
    let facts = SlotFacts {
        target: Target::CudaGpu,
        uuid: "GPU-1".into(),
        model: "A card".into(),
        driver: "NVML 999".into(),
        clock_policy: "default".into(),
        cpus: "0-3".into(),
        cores: 4,
        containment: Some("namespaces + cgroup".into()),
    };
    let exited = StopCause::Exited { exit: Exit::Code(3), ran: Span::seconds(9) };
    let grants = vec![
        standing(Progress::Accepted, None),
        standing(Progress::Running { since_start: Span::seconds(1) }, None),
        standing(Progress::Stopping, Some(StepStanding { number: 4, report: None })),
        standing(Progress::Over { end: HoldEnd::Stopped(exited) }, None),
    ];
    let checked = Checked {
        ticket: Ticket { boot, number: 1 },
        serves: 2,
        highest: 70_000,
        facts: Some(facts),
        unable: None,
        faults: 0,
        grants,
    };
    let away =
        Checked { facts: None, unable: Some("its harness is away".into()), grants: Vec::new(), ..checked.clone() };
    let reported = StepStanding { number: 4, report: Some(Document(r#"{"came":"prepared"}"#.into())) };
    let no = [
        SlotNo::Stale { epoch: 12, grant: 8 },
        SlotNo::Rebooted,
        SlotNo::Busy { grant: 7 },
        SlotNo::Late,
        SlotNo::NoSuchSlot { serves: 1 },
        SlotNo::Unknown { grant: 3 },
        SlotNo::NotAble { why: "its disk is full".into() },
    ];
    let said = [
        SlotAnswer::Checked(Box::new(checked)),
        SlotAnswer::Checked(Box::new(away)),
        SlotAnswer::Stands(Box::new(standing(Progress::Running { since_start: Span::ZERO }, Some(reported)))),
        SlotAnswer::Stands(Box::new(standing(Progress::Over { end: HoldEnd::NotStarted }, None))),
        SlotAnswer::Output { bytes: b"hello\n\xff".to_vec(), offset: 2, total: 9, cut: 0, complete: false },
        SlotAnswer::Forgotten,
    ];
    said.into_iter().chain(no.map(SlotAnswer::No)).map(|what| Answer { boot, what }).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
