//! A whole rig on a real bus: control, nats-server with TLS and rights by JWT, the core, and its runners' processes, each
//! with folders, accounts and locks of its own, as on machines of their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use thermite_core::ids::{DevRunId, JobId, MemberId};
use thermite_core::job::StageKind;
use thermite_core::log::LogEntry;

use super::desk::Desk;
use super::nats::RIG;
use super::wire::Wire;
use crate::binary::{Own, PATIENCE, apart, command, until};
use crate::whole::house::{House, Load, MANY, Who};

/// One of a runner's two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Supervisor,
    Harness,
}

/// The whole rig. What it starts is ended when it is let go of.
pub(crate) struct Fleet {
    // Let go of first to last: the core before its bus.
    pub(crate) house: House,
    runners: BTreeMap<&'static str, Machine>,
    pub(crate) desk: Desk,
    token: PathBuf,
}

/// A runner's machine.
struct Machine {
    folder: PathBuf,
    apart: [(&'static str, String); 2],
    /// How its supervisor reaches the bus.
    wire: Wire,
    parts: BTreeMap<Part, Own>,
}

impl Fleet {
    /// A rig whose core judges on its runners alone, with a run, and these runners, `name=pool`, taking work; none where
    /// this machine gives no containment, which is said.
    pub(crate) fn start(runners: &[(&'static str, &str)]) -> Option<Fleet> {
        let desk = Desk::start();
        let house = House::build(Who::Me, Load::Quiet, "10 min");
        let token = house.path("rig-token");
        fs::write(&token, desk.make_rig()).unwrap();
        for (name, value) in [
            ("THERMITE_ROLE", "core".to_owned()),
            ("THERMITE_RIG_ID", RIG.to_owned()),
            ("CONTROL_URL", desk.url()),
            ("THERMITE_CONTROL_TOKEN_FILE", token.display().to_string()),
            ("THERMITE_LOCAL_JUDGE", "0".to_owned()),
        ] {
            house.set(name, &value);
        }
        if !house.start() {
            return None;
        }
        let mut fleet = Fleet { house, runners: BTreeMap::new(), desk, token };
        for (name, _) in runners {
            fleet.place(name);
            for part in [Part::Harness, Part::Supervisor] {
                fleet.launch(name, part);
            }
        }
        fleet.set_pools(runners);
        let names: Vec<String> = runners.iter().map(|(name, _)| format!("{name}/1")).collect();
        fleet.until_free(&names);
        fleet.house.begin_run(MANY);
        Some(fleet)
    }

    /// Makes a runner's machine, with nothing started there.
    pub(crate) fn place(&mut self, name: &'static str) {
        let folder = self.house.path(name);
        fs::create_dir(&folder).unwrap();
        let apart = apart(&folder.join("locks"));
        let bus = self.desk.nats.url();
        let wire = Wire::to(bus.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap());
        self.runners.insert(name, Machine { folder, apart, wire, parts: BTreeMap::new() });
    }

    /// Starts one of a runner's processes, which must not run.
    pub(crate) fn launch(&mut self, name: &'static str, part: Part) {
        let (control, fed) = (self.desk.url(), self.house.path("fed"));
        let machine = self.runners.get_mut(name).unwrap();
        let log = File::options().create(true).append(true).open(machine.folder.join("log")).unwrap();
        let mut process = command(&[match part {
            Part::Supervisor => "supervisor",
            Part::Harness => "harness",
        }]);
        process.arg("--data").arg(machine.folder.join("data")).envs(machine.apart.clone());
        process.envs([("THERMITE_ROLE", "runner"), ("THERMITE_RIG_ID", RIG)]);
        match part {
            Part::Harness => process.env("THERMITE_TARGET", "cpu").env("THERMITE_PROC_ROOT", fed),
            Part::Supervisor => process
                .envs([("THERMITE_RUNNER", name), ("CONTROL_URL", &control)])
                .env("THERMITE_CONTROL_TOKEN_FILE", &self.token)
                .env("THERMITE_NATS_URL", machine.wire.url()),
        };
        process.stdout(log.try_clone().unwrap()).stderr(log);
        let was = machine.parts.insert(part, Own(process.spawn().unwrap()));
        assert!(was.is_none(), "{part:?} of {name} runs already");
    }

    /// `kill -9` of one of a runner's processes, which is started again.
    pub(crate) fn kill_and_launch(&mut self, name: &str, part: Part) {
        let name = *self.runners.keys().find(|known| **known == name).unwrap();
        drop(self.runners.get_mut(name).unwrap().parts.remove(&part).expect("it runs"));
        self.launch(name, part);
    }

    /// How a runner reaches the bus.
    pub(crate) fn wire(&self, name: &str) -> &Wire {
        &self.runners[name].wire
    }

    /// Whether one of a runner's processes still runs; its exit code where it does not.
    pub(crate) fn exit_code(&mut self, name: &str, part: Part) -> Option<i32> {
        let process = self.runners.get_mut(name).unwrap().parts.get_mut(&part).unwrap();
        process.0.try_wait().unwrap().and_then(|status| status.code())
    }

    /// Has control give the rig these pools; answers once the core has taken them.
    pub(crate) fn set_pools(&self, runners: &[(&str, &str)]) {
        let list: Vec<Value> = runners.iter().map(|(name, pool)| json!({"name": name, "pools": [pool]})).collect();
        self.desk.ask("PUT", &format!("/v1/rigs/{RIG}/settings"), &json!({"runners": list})).good(200);
        until("the core has the runners that control was told", || {
            self.house.get("/v1/rig/runners")["asked"] == json!(list)
        });
    }

    /// The row of a runner, such as `box-1/1`.
    pub(crate) fn row(&self, name: &str) -> Value {
        let view = self.house.get("/v1/rig/runners");
        let rows = view["runners"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Waits until all of these take runs and run nothing.
    pub(crate) fn until_free(&mut self, names: &[String]) {
        let began = Instant::now();
        let is_free = |row: &Value| row["takes_runs"] == true && row["runs"].is_null();
        while !names.iter().all(|name| is_free(&self.row(name))) {
            let ended: Vec<String> = self.runners.values().flat_map(|machine| machine.ended()).collect();
            assert!(ended.is_empty() && began.elapsed() < PATIENCE, "{ended:?} {}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a runner runs something, and gives its row.
    pub(crate) fn until_busy(&self, name: &str) -> Value {
        let mut row = Value::Null;
        until("the runner runs something", || {
            row = self.row(name);
            !row["runs"].is_null()
        });
        row
    }

    /// The names of the runners by number, of all that there were.
    pub(crate) fn names(&self) -> BTreeMap<MemberId, String> {
        let mut names = BTreeMap::new();
        for fact in self.house.facts() {
            if let LogEntry::RunnersSet { runners, .. } = fact {
                names.extend(runners.iter().map(|set| (set.member, set.runner.to_string())));
            }
        }
        names
    }

    /// Where a job's stages were started, in order.
    pub(crate) fn stages(&self, job: &str) -> Vec<(StageKind, String)> {
        let job: JobId = job.strip_prefix("/v1/jobs/").unwrap().parse().unwrap();
        let names = self.names();
        let facts = self.house.facts().into_iter();
        facts
            .filter_map(|fact| match fact {
                LogEntry::StageStarted { job: of, stage, hold, .. } if of == job => {
                    Some((stage, name_of(&names, hold.member)))
                }
                _ => None,
            })
            .collect()
    }

    /// Where a development run was started.
    pub(crate) fn place_of(&self, dev_run: &str) -> String {
        let dev_run: DevRunId = dev_run.strip_prefix("/v1/dev-runs/").unwrap().parse().unwrap();
        let names = self.names();
        let started = self.house.facts().into_iter().find_map(|fact| match fact {
            LogEntry::DevRunStarted { dev_run: of, hold } if of == dev_run => Some(hold.member),
            _ => None,
        });
        name_of(&names, started.expect("it was started"))
    }

    /// Lets go of a runner whose supervisor has ended by itself: its harness is ended by its rules.
    pub(crate) fn forget(&mut self, name: &str) {
        let mut machine = self.runners.remove(name).unwrap();
        let harness = machine.parts.remove(&Part::Harness).unwrap();
        harness.signal(Signal::TERM);
        let said = harness.end();
        assert_eq!(said.code, Some(0), "{}", machine.log());
    }

    /// What all of its processes said.
    pub(crate) fn told(&self) -> String {
        let mut text = format!("core:\n{}", self.house.log_text());
        for (name, machine) in &self.runners {
            text.push_str(&format!("\n{name}:\n{}", machine.log()));
        }
        text
    }

    /// Ends everything by its rules, and holds that nothing is left.
    pub(crate) fn end(mut self) {
        assert_eq!(self.house.terminate(), Some(0), "{}", self.told());
        for (name, machine) in &mut self.runners {
            for (part, process) in std::mem::take(&mut machine.parts).into_iter() {
                process.signal(Signal::TERM);
                let said = process.end();
                assert_eq!(said.code, Some(0), "{part:?} of {name}: {}", machine.log());
            }
        }
        self.house.assert_traceless();
    }
}

impl Machine {
    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Those of its processes that have ended, with their codes.
    fn ended(&self) -> Vec<String> {
        let has_ended = |process: &Own| {
            let pid = rustix::process::Pid::from_child(&process.0);
            fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).is_ok_and(|stat| stat.contains(") Z "))
        };
        let ended = self.parts.iter().filter(|(_, process)| has_ended(process));
        ended.map(|(part, _)| format!("{part:?} in {}", self.folder.display())).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.told());
        }
    }
}

fn name_of(names: &BTreeMap<MemberId, String>, member: MemberId) -> String {
    names.get(&member).cloned().unwrap_or_else(|| member.to_string())
}
