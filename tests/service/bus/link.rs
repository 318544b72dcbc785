//! A core's link and a supervisor's side on a real nats-server: what is asked, what is not, and what its faults do.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;
use uuid::Uuid;

use thermite_actors::ports::{BringFault, LinkFault, RunnerLink};
use thermite_core::ids::RunId;
use thermite_core::wire::{Answer, Ask, ProcessName, SlotAnswer, SlotAsk, SlotNo};
use thermite_svc::bus::codec::BUS;
use thermite_svc::bus::connection::{Access, BusThread, Rights};
use thermite_svc::bus::nats::{Bringing, BulkConnection, NatsLink, open_core};
use thermite_svc::bus::runner_side::{Question, RunnerSide};
use thermite_svc::bus::subjects::RigName;

use super::is_long;
use super::on_one_thread as block_on;
use super::plain_nats::PlainNats;
use crate::binary::PATIENCE;

#[test]
fn an_ask_is_answered_and_a_hint_is_heard() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        runner.answers();

        let answer = core.until_answered(SlotAsk::Tell { grant: 7 }).await;
        let hinted = core.link.hinted(&box_2());
        runner.hints_until(hinted).await;

        assert_eq!(answer, Answer { boot: Uuid::from_u128(1), what: SlotAnswer::No(SlotNo::Unknown { grant: 7 }) });
    });
}

#[test]
fn bulk_goes_over_a_connection_of_its_own() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        let mut asked = runner.side.bulk_asks::<Vec<u8>, u64>();
        tokio::task::spawn_local(async move {
            while let Some(Question { what, answer }) = asked.recv().await {
                let _ = answer.send(what.len() as u64);
            }
        });

        let chunk = vec![7_u8; 512 * 1024];
        let length = loop {
            match core.bulk.ask_anything::<_, u64>(&box_2(), chunk.clone()).await {
                Ok(length) => break length,
                Err(fault) => assert!(matches!(fault, LinkFault::Down | LinkFault::NoAnswer), "{fault}"),
            }
        };

        assert_eq!(length, 512 * 1024);
    });
}

#[test]
fn a_runner_that_comes_while_it_is_asked_is_heard_within_the_same_ask() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        core.until_up().await;

        let asked = core.ask(SlotAsk::Tell { grant: 1 });
        let comes = async {
            let runner = Runner::open(&nats).await;
            runner.answers();
            runner
        };
        let (first, _runner) = futures_util::future::join(asked, comes).await;

        // The bus hears of a subscription a moment later: without the retry the first ask always finds nobody.
        assert!(first.is_ok(), "{first:?}");
    });
}

#[test]
fn an_ask_that_nobody_answers_ends_by_itself() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        core.until_up().await;
        let silent = Runner::open(&nats).await;
        let mut asked = silent.side.asks::<Ask, Answer>();

        let nobody = core.link.ask(&"box-3".parse().unwrap(), ask(SlotAsk::Tell { grant: 1 })).await;
        let hears_and_says_nothing = loop {
            let answer = core.ask(SlotAsk::Tell { grant: 1 }).await;
            if asked.try_recv().is_ok() {
                break answer;
            }
        };

        assert_eq!(nobody, Err(LinkFault::NoAnswer));
        assert_eq!(hears_and_says_nothing, Err(LinkFault::NoAnswer));
    });
}

#[test]
fn a_runner_of_another_version_is_told_and_tells_its_own() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        runner.answers();
        core.until_answered(SlotAsk::Tell { grant: 1 }).await;
        let bare = async_nats::connect(nats.url()).await.unwrap();
        let mut newer = bare.subscribe("rig.lab.runner.box-9.ask").await.unwrap();
        bare.flush().await.unwrap();

        // What a newer core asks is answered by the version alone.
        let mut frame = BUS.encode(&ask(SlotAsk::Tell { grant: 1 })).unwrap();
        frame[0] = 200;
        let to_newer_core = bare.request("rig.lab.runner.box-2.ask", frame.into()).await.unwrap();
        let garbled = bare.request("rig.lab.runner.box-2.ask", vec![1, 255, 255].into()).await.unwrap();
        // What a newer runner answers names its version.
        let of_newer_runner = core.link.ask(&"box-9".parse().unwrap(), ask(SlotAsk::Tell { grant: 1 }));
        let answers = async {
            let asked = newer.next().await.unwrap();
            bare.publish(asked.reply.unwrap(), vec![200, 1, 2, 3].into()).await.unwrap();
        };
        let (of_newer_runner, ()) = futures_util::future::join(of_newer_runner, answers).await;

        assert_eq!(&to_newer_core.payload[..], [1]);
        assert_eq!(&garbled.payload[..], [1]);
        assert_eq!(of_newer_runner, Err(LinkFault::OtherWire { version: 200 }));
        core.until_answered(SlotAsk::Tell { grant: 2 }).await;
    });
}

#[test]
fn nothing_is_published_while_the_bus_is_down_and_all_goes_on_when_it_is_back() {
    let mut nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        let heard = runner.answers();
        core.until_answered(SlotAsk::Tell { grant: 1 }).await;

        nats.kill();
        let lost = Instant::now();
        while core.link.is_up() {
            assert!(lost.elapsed() < PATIENCE, "a bus that is gone is not noticed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut down = Vec::new();
        for grant in 100..110 {
            down.push(core.ask(SlotAsk::Tell { grant }).await);
        }
        nats.start_again();
        core.until_answered(SlotAsk::Tell { grant: 2 }).await;

        assert!(down.iter().all(|answer| *answer == Err(LinkFault::Down)), "{down:?}");
        let late: Vec<u64> = heard.borrow().iter().copied().filter(|grant| (100..110).contains(grant)).collect();
        assert_eq!(late, Vec::<u64>::new(), "asks of the time without a bus arrived later");
    });
}

#[test]
fn a_bus_that_stands_still_is_noticed_by_its_pings() {
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        runner.answers();
        core.until_answered(SlotAsk::Tell { grant: 1 }).await;

        nats.pause();
        let paused = Instant::now();
        while core.link.is_up() {
            // A client that pings every minute would notice after three.
            assert!(paused.elapsed() < Duration::from_secs(60), "a paused bus is not noticed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("a paused bus was noticed after {:?}", paused.elapsed());
        let while_paused = core.ask(SlotAsk::Tell { grant: 2 }).await;
        nats.go_on();
        core.until_answered(SlotAsk::Tell { grant: 3 }).await;

        assert_eq!(while_paused, Err(LinkFault::Down));
    });
}

#[test]
fn an_ask_costs_little_more_than_a_bare_request() {
    if !is_long() || cfg!(debug_assertions) {
        println!(
            "left out: a figure, of the optimised build; THERMITE_LONG=1 cargo test --release runs it (tests/long.sh)"
        );
        return;
    }
    let nats = PlainNats::start();
    block_on(async {
        let core = Core::open(&nats).await;
        let runner = Runner::open(&nats).await;
        runner.answers();
        core.until_answered(SlotAsk::Tell { grant: 1 }).await;
        let bare = async_nats::connect(nats.url()).await.unwrap();
        let other = async_nats::connect(nats.url()).await.unwrap();
        let mut echoes = other.subscribe("bare").await.unwrap();
        other.flush().await.unwrap();
        tokio::task::spawn_local(async move {
            while let Some(asked) = echoes.next().await {
                other.publish(asked.reply.unwrap(), asked.payload).await.unwrap();
            }
        });
        while bare.request("bare", vec![7; 40].into()).await.is_err() {}
        let (mut asks, mut requests) = (Vec::new(), Vec::new());
        // In turn: whatever else the machine does meets both.
        for grant in 0..2_000 {
            let began = Instant::now();
            core.ask(SlotAsk::Tell { grant }).await.unwrap();
            asks.push(began.elapsed());
            let began = Instant::now();
            bare.request("bare", vec![7; 40].into()).await.unwrap();
            requests.push(began.elapsed());
        }

        let (ask, request) = (median(asks), median(requests));
        println!("median of an ask {ask:?}, of a bare request {request:?}");
        assert!(ask <= request + Duration::from_micros(150), "an ask takes {ask:?}, a bare request {request:?}");
    });
}

pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A core with its two connections.
pub(super) struct Core {
    pub(super) link: NatsLink,
    pub(super) bulk: BulkConnection,
}

struct BringsNothing;

impl Bringing for BringsNothing {
    fn bring(&self, _: &ProcessName, _: RunId, _: Vec<String>) -> LocalBoxFuture<'static, Result<(), BringFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Core {
    pub(super) async fn open(nats: &PlainNats) -> Core {
        let thread = Rc::new(BusThread::start().unwrap());
        let (told, _) = mpsc::unbounded_channel();
        let (connection, bulk) = open_core(thread, lab(), access(nats, "core"), told).await.unwrap();
        Core { link: connection.link(Rc::new(BringsNothing)), bulk }
    }

    pub(super) fn ask(&self, what: SlotAsk) -> LocalBoxFuture<'static, Result<Answer, LinkFault>> {
        self.link.ask(&box_2(), ask(what))
    }

    pub(super) async fn until_up(&self) {
        let began = Instant::now();
        while !self.link.is_up() {
            assert!(began.elapsed() < PATIENCE, "the link does not come up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn until_answered(&self, what: SlotAsk) -> Answer {
        let began = Instant::now();
        loop {
            match self.ask(what.clone()).await {
                Ok(answer) => return answer,
                Err(fault) => assert!(began.elapsed() < PATIENCE, "no answer: {fault}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A supervisor's side, with a test instead of a supervisor.
struct Runner {
    side: RunnerSide,
}

impl Runner {
    async fn open(nats: &PlainNats) -> Runner {
        let thread = Rc::new(BusThread::start().unwrap());
        let (told, _) = mpsc::unbounded_channel();
        let side = RunnerSide::open(thread, lab(), box_2(), access(nats, "runner box-2"), told).await.unwrap();
        Runner { side }
    }

    /// Says of every grant that nothing is known of it; gives those that were asked for.
    fn answers(&self) -> Rc<RefCell<Vec<u64>>> {
        let heard: Rc<RefCell<Vec<u64>>> = Rc::default();
        let (mut asked, all) = (self.side.asks::<Ask, Answer>(), Rc::clone(&heard));
        tokio::task::spawn_local(async move {
            while let Some(Question { what, answer }) = asked.recv().await {
                let SlotAsk::Tell { grant } = what.what else { continue };
                all.borrow_mut().push(grant);
                let what = SlotAnswer::No(SlotNo::Unknown { grant });
                let _ = answer.send(Answer { boot: Uuid::from_u128(1), what });
            }
        });
        heard
    }

    /// Hints until one is heard: each may be lost.
    async fn hints_until(&self, heard: LocalBoxFuture<'static, ()>) {
        let hints = async {
            loop {
                self.side.hint();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let within = tokio::time::timeout(PATIENCE, async {
            tokio::select! {
                () = heard => {}
                () = hints => {}
            }
        });
        within.await.expect("no hint is heard");
    }
}

pub(super) fn lab() -> RigName {
    "lab".parse().unwrap()
}

pub(super) fn box_2() -> ProcessName {
    "box-2".parse().unwrap()
}

fn ask(what: SlotAsk) -> Ask {
    Ask { epoch: 1, slot: 1, what }
}

fn access(nats: &PlainNats, name: &str) -> Access {
    Access { url: nats.url(), ca: None, rights: Rights::Open, name: name.to_owned() }
}
