//! This machine as a rig's ports: its CPUs as the one device, or its GPUs, each with driver, executor, account and CPUs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use thermite_actors::host::cards::{CardAt, CardPlaces};
use thermite_actors::host::clock::BootClock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{CardSeat, ExecutorSettings, Executors};
use thermite_actors::host::gpu;
use thermite_actors::host::hex;
use thermite_actors::host::ids::OsIds;
use thermite_actors::host::launch::{self, CardGrant, Containment, Launcher, LauncherSettings};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{Executor, MemberPorts, TargetDriver};
use thermite_actors::rig::RigSetup;
use thermite_actors::runners::RunnerSetup;
use thermite_core::contract::Target;
use thermite_core::cpus::{CpuCut, CpuList};
use thermite_core::ids::MemberId;
use thermite_svc::budget::Stores;
use thermite_svc::cards::{self, Listed};
use thermite_svc::models;
use thermite_svc::serve::{Ground, Parts};
use thermite_svc::settings::gpus::GPUS;
use thermite_svc::settings::{Devices, GpuSettings, Settings};

/// Where the judge's own share of the load outlives the rig, in the data folder.
const OWN_SHARE: &str = "own-share.json";

/// The rig's ports.
///
/// # Errors
/// What this machine lacks, as a sentence with the way out.
pub(super) async fn assemble(ground: Ground) -> Result<Parts, String> {
    let Ground { folder, settings, records, inputs, mut bus } = ground;
    let data = folder.path();
    let Laid { members, bench, base } = lay(data, data, &settings).await?;
    let runners = match &mut bus {
        Some(bus) => {
            let outputs = Rc::new(base.executors.outputs().clone());
            bus.runners(data, Rc::new(base.workspaces.clone()), outputs)?
        }
        None => RunnerSetup::default(),
    };
    let setup = RigSetup {
        members,
        bench,
        workspaces: Rc::new(base.workspaces.clone()),
        records,
        clock: Rc::new(BootClock),
        ids: Rc::new(OsIds),
        inputs,
        settings: settings.rig,
        runners,
    };
    let outputs = Arc::new(base.executors.outputs().clone());
    Ok(Parts { setup, outputs, stores: Some(Arc::new(HostStores(base.workspaces))), bus })
}

/// This machine's devices with the ports that work them, for a rig and for a runner's harness alike.
pub(super) struct Laid {
    /// The devices, in order.
    pub(super) members: Vec<MemberPorts>,
    /// Where a split rig builds.
    bench: Option<Rc<dyn Executor>>,
    base: Base,
}

/// Lays out what this machine's devices need in `data`; runs see nothing of `hidden`, which holds it.
///
/// # Errors
/// What this machine lacks, as a sentence with the way out.
pub(super) async fn lay(data: &Path, hidden: &Path, settings: &Settings) -> Result<Laid, String> {
    let machine = Machine::look(settings).await?;
    let base = Base::lay(data, hidden, settings, &machine).await?;
    let (members, bench) = match &machine {
        Machine::Cpus => (vec![cpus(&base, settings, data)], None),
        Machine::Gpus(found) => (gpus(&base, found).await?, found.bench(&base)),
    };
    Ok(Laid { members, bench, base })
}

/// What the rig's devices are.
enum Machine {
    Cpus,
    Gpus(Found),
}

/// The cards of the rig, found before anything is made.
struct Found {
    driver: gpu::Cards,
    cards: Vec<gpu::CardFacts>,
    /// Every node by which some card can be reached.
    nodes: Vec<PathBuf>,
    /// Each card's own nodes, in the order of the cards.
    own: Vec<Vec<PathBuf>>,
    cut: CpuCut,
}

impl Machine {
    async fn look(settings: &Settings) -> Result<Machine, String> {
        match &settings.devices {
            Devices::Cpu => Ok(Machine::Cpus),
            Devices::Gpus(wanted) => Found::look(settings, wanted).await.map(Machine::Gpus),
        }
    }

    /// What runs are kept from, and where the launcher's own work is.
    fn for_launcher(&self) -> launch::Cards {
        match self {
            Machine::Cpus => launch::Cards::default(),
            Machine::Gpus(found) => {
                launch::Cards { nodes: found.nodes.clone(), others: found.others(), ..launch::Cards::default() }
            }
        }
    }

    const fn target(&self) -> Target {
        match self {
            Machine::Cpus => Target::Cpu,
            Machine::Gpus(_) => Target::CudaGpu,
        }
    }
}

impl Found {
    async fn look(settings: &Settings, wanted: &GpuSettings) -> Result<Found, String> {
        let library = wanted.library.clone();
        // The driver's library is foreign code that may hang; listing has its own limit.
        let opened = tokio::task::spawn_blocking(move || gpu::Cards::open(library.as_deref())).await;
        let driver = opened.map_err(|error| error.to_string())?.map_err(|fault| fault.to_string())?;
        let listed = Listed { found: driver.list(), unreadable: driver.unreadable() };
        for card in &listed.unreadable {
            let (index, why) = (card.index, &card.fault);
            tracing::warn!(index, %why, "a card cannot be used: it is no device of this rig until its next start");
        }
        let picked = cards::pick(&listed, &wanted.cards)?;
        let places = card_places(settings);
        let own = picked.iter().map(|card| match card.minor {
            Some(minor) => {
                places.nodes_of(minor).map_err(|why| format!("card {} has no device node: {why}", card.uuid))
            }
            None => Err(format!(
                "the driver does not say which device node card {} has; name the other cards by {GPUS}",
                card.uuid
            )),
        });
        let own = own.collect::<Result<Vec<_>, String>>()?;
        let cut = places.cut(&picked.iter().map(CardAt::from).collect::<Vec<_>>());
        for (card, cpus) in picked.iter().zip(&cut.cards) {
            let (index, uuid, model) = (card.index, &card.uuid, &card.model);
            tracing::info!(index, %uuid, %model, cpus = %cpus.cpus, nearness = ?cpus.nearness, "a card of the rig");
            if !cpus.is_own {
                tracing::warn!(%uuid, cpus = %cpus.cpus, "there are fewer cores than cards: its CPUs are another's too");
            }
        }
        Ok(Found { driver, cards: picked, nodes: places.all_nodes(), own, cut })
    }

    /// The CPUs that are no card's, where there are any.
    fn others(&self) -> Option<CpuList> {
        Some(self.cut.others.clone()).filter(|others| !others.is_empty())
    }

    /// Where a split rig builds. One card is shared: it builds under its hold (rule B7).
    fn bench(&self, base: &Base) -> Option<Rc<dyn Executor>> {
        if self.cards.len() < 2 {
            return None;
        }
        Some(Rc::new(base.executors.of_bench(self.others())))
    }
}

/// The cards that a rig of these settings would have; none where its devices are no cards.
pub(super) async fn rig_cards(settings: &Settings) -> Option<Result<Vec<gpu::CardFacts>, String>> {
    match &settings.devices {
        Devices::Cpu => None,
        Devices::Gpus(wanted) => Some(Found::look(settings, wanted).await.map(|found| found.cards)),
    }
}

/// Where the machine's cards are, by the settings.
pub(super) fn card_places(settings: &Settings) -> CardPlaces {
    let root = settings.proc_root.clone().unwrap_or_else(|| PathBuf::from("/"));
    CardPlaces::below(root).with_nodes_in(settings.device_nodes.clone())
}

/// What all devices of a rig stand on.
struct Base {
    workspaces: HostWorkspaces,
    executors: Executors,
}

impl Base {
    async fn lay(data: &Path, hidden: &Path, settings: &Settings, machine: &Machine) -> Result<Base, String> {
        let accounts = Accounts::of_this_user(settings.lane_uid_base);
        // Two rigs of one machine have two folders, and must not take each other's runs for leftovers.
        let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
        let rig = format!("rig-{}", hex(&digest[..6]));
        let launcher = Launcher::open(LauncherSettings {
            rig: rig.clone(),
            state: data.join("runs"),
            hidden: vec![hidden.to_owned()],
            program: LauncherSettings::THIS_PROGRAM.into(),
            wanted: settings.containment,
            trial_uid: accounts.trial(),
            cards: machine.for_launcher(),
        });
        let launcher = launcher.await.map_err(|fault| fault.to_string())?;
        tell_containment(launcher.containment())?;
        let path = std::env::var("PATH").unwrap_or_default();
        let workspaces = HostWorkspaces::open(data, accounts, path);
        let mut workspaces = workspaces.map_err(|error| format!("workspaces: {error}"))?;
        let mut for_models = data.to_owned();
        if !launcher.containment().has_own_view() && accounts != Accounts::rigs_user() {
            // The data folder is closed to the judge's account, and nothing can be shown to it elsewhere.
            let open_to_all = PathBuf::from(format!("/var/tmp/thermite-{rig}"));
            for_models.clone_from(&open_to_all);
            workspaces =
                workspaces.lay_out_in(&open_to_all).map_err(|error| format!("{}: {error}", open_to_all.display()))?;
        }
        let workspaces = workspaces.for_target(machine.target()).map_err(|error| format!("workspaces: {error}"))?;
        let set = ExecutorSettings { rig, data: data.to_owned(), accounts };
        let executors = Executors::open(launcher, workspaces.clone(), set);
        let models = models::on_this_machine(&for_models, settings.models_keep)
            .map_err(|error| format!("model files: {error}"))?;
        let executors = executors.map_err(|error| format!("outputs: {error}"))?.with_models(models);
        Ok(Base { workspaces, executors })
    }
}

fn cpus(base: &Base, settings: &Settings, data: &Path) -> MemberPorts {
    let driver = match &settings.proc_root {
        None => CpuDriver::of_this_machine(),
        Some(root) => {
            tracing::warn!(root = %root.display(), "THERMITE_PROC_ROOT is set: load is read there, not of this machine");
            CpuDriver::fed_from(root)
        }
    };
    driver.remember_own_use(&data.join(OWN_SHARE));
    let executor = base.executors.of_machine(driver.clone());
    MemberPorts { member: MemberId(0), driver: Rc::new(driver), executor: Rc::new(executor) }
}

async fn gpus(base: &Base, found: &Found) -> Result<Vec<MemberPorts>, String> {
    let mut members = Vec::new();
    for (seat, ((card, nodes), cpus)) in (0..).zip(found.cards.iter().zip(&found.own).zip(&found.cut.cards)) {
        let driver = found.driver.driver(&card.uuid).map_err(|fault| fault.to_string())?;
        let driver: Rc<dyn TargetDriver> = Rc::new(driver);
        let grant = CardGrant { uuid: card.uuid.clone(), nodes: nodes.clone(), cpus: Some(cpus.cpus.clone()) };
        let seat_of = CardSeat { seat, grant, others: found.others() };
        let executor = base.executors.of_card(Rc::clone(&driver), seat_of).await;
        members.push(MemberPorts { member: MemberId(u16::from(seat)), driver, executor: Rc::new(executor) });
    }
    Ok(members)
}

/// Says how runs are contained.
///
/// # Errors
/// Where they cannot be, with what is missing and the way out.
fn tell_containment(containment: &Containment) -> Result<(), String> {
    if containment.isolation().is_none() {
        return Err(format!(
            "no containment for a run here: {}; serve as root, or allow user namespaces; `thermite doctor` says more",
            containment.missing_in_words()
        ));
    }
    tracing::info!(%containment, "runs are contained");
    for missing in &containment.missing {
        tracing::info!(layer = %missing.layer, why = missing.why, "without it {}", missing.leaves_open);
    }
    if !containment.has_own_view() {
        tracing::warn!(%containment, "runs have no view of their own; `thermite doctor` says what that leaves open");
    }
    for open in &containment.open {
        tracing::info!("containment leaves open: {open}");
    }
    Ok(())
}

/// The commits that this machine's workspaces keep.
struct HostStores(HostWorkspaces);

impl Stores for HostStores {
    fn prune(&self, needed: &BTreeSet<String>) -> Result<usize, String> {
        self.0.prune(needed)
    }
}
