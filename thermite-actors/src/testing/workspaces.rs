//! Repositories that are words: a revision is its own commit, and a change is what its name says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;

use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::JobId;
use thermite_core::job::PinnedChange;
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;
use thermite_core::time::Span;

use crate::ports::{RunRequest, Workspaces};
use crate::rig::No;

/// Opens every run and pins every change, unless told to refuse it.
pub struct ScriptedWorkspaces {
    kit: RefCell<Kit>,
    pinning: Cell<Span>,
    refused: RefCell<BTreeMap<String, Refusal>>,
    forgotten: RefCell<Vec<JobId>>,
}

impl ScriptedWorkspaces {
    /// Workspaces whose kit measures on `target` under the usual contract and builds and checks nothing.
    pub fn new(target: Target) -> ScriptedWorkspaces {
        let kit = Kit {
            name: "scripted".to_owned(),
            target,
            build: None,
            check: None,
            measure: Argv(vec!["./measure".to_owned()]),
            timer: Timer::Wall,
            editable: vec!["src/**".to_owned()],
            artefacts: Vec::new(),
            models: Vec::new(),
            contract: Contract::default(),
        };
        ScriptedWorkspaces {
            kit: RefCell::new(kit),
            pinning: Cell::new(Span::ZERO),
            refused: RefCell::new(BTreeMap::new()),
            forgotten: RefCell::new(Vec::new()),
        }
    }

    /// A request for a run with that many lanes, its champion the revision `main`.
    pub fn request(lanes: u8) -> RunRequest {
        RunRequest {
            repo: PathBuf::from("/repo"),
            kit: PathBuf::from("kit.toml"),
            champion: "main".to_owned(),
            lanes: (1..=lanes).map(|lane| PathBuf::from(format!("/lanes/{lane}"))).collect(),
        }
    }

    /// Changes the kit that runs opened from here on have.
    pub fn change_kit(&self, change: impl FnOnce(&mut Kit)) {
        change(&mut self.kit.borrow_mut());
    }

    /// Makes pinning a change take that long from here on.
    pub fn pin_in(&self, span: Span) {
        self.pinning.set(span);
    }

    /// Refuses that change whenever it is to be pinned.
    pub fn refuse(&self, change: &str, refusal: Refusal) {
        self.refused.borrow_mut().insert(change.to_owned(), refusal);
    }

    /// The ended jobs whose attempts were forgotten, in order.
    pub fn forgotten(&self) -> Vec<JobId> {
        self.forgotten.borrow().clone()
    }
}

impl Workspaces for ScriptedWorkspaces {
    fn open(&self, request: RunRequest) -> LocalBoxFuture<'static, Result<RunSpec, No>> {
        let spec = RunSpec {
            repo: request.repo,
            kit_path: request.kit,
            kit: self.kit.borrow().clone(),
            kit_hash: "0".repeat(64),
            champion: request.champion,
            lanes: request.lanes,
        };
        Box::pin(std::future::ready(Ok(spec)))
    }

    fn pin(&self, run: RunSpec, champion: String, change: String) -> LocalBoxFuture<'static, Result<PinnedChange, No>> {
        let pinning = self.pinning.get();
        let answer = match self.refused.borrow().get(&change) {
            Some(refusal) => Err(refusal.clone().into()),
            None => Ok(PinnedChange {
                candidate: format!("{champion}+{change}"),
                candidate_tree: format!("tree of {champion}+{change}"),
                champion,
                change,
                paths: vec!["src/lib.rs".to_owned()],
                kit: run.kit,
                kit_hash: run.kit_hash,
            }),
        };
        Box::pin(async move {
            if pinning > Span::ZERO {
                tokio::time::sleep(pinning.to_std()).await;
            }
            answer
        })
    }

    fn check_command(&self, spec: &DevRunSpec) -> Result<(), Refusal> {
        if spec.argv.is_empty() { Err(Refusal::EmptyCommand) } else { Ok(()) }
    }

    fn forget(&self, job: JobId) -> LocalBoxFuture<'static, ()> {
        self.forgotten.borrow_mut().push(job);
        Box::pin(std::future::ready(()))
    }
}
