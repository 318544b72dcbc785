//! Figures of each device: what it is, what it does, its noise, its newest reading, and what disturbed blocks on it.
//!
//! All of them are looked up when they are asked for; what disturbed blocks is the rig's life's, from its log.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use thermite_actors::view::{DevicePool, DeviceRow, RigView};
use thermite_core::readiness::SignalState;

use super::state_of;

type Labels<const N: usize> = [(&'static str, String); N];
type Figures<const N: usize> = Family<Labels<N>, Gauge<f64, AtomicU64>>;

/// Figures of the rig's devices, by their place in the rig's list.
#[derive(Default)]
pub(super) struct DeviceFigures {
    info: Family<Labels<6>, Gauge>,
    state: Family<Labels<2>, Gauge>,
    noise: Figures<1>,
    signals: Figures<2>,
    not_ok: Family<Labels<2>, Gauge>,
    disturbed: Family<Labels<3>, Counter>,
}

impl DeviceFigures {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("device_info", "What each device is; always 1", self.info.clone());
        registry.register("device_state", "What each device does: 1 for its state", self.state.clone());
        registry.register(
            "device_noise",
            "The largest measure of a device's noise, as ln of a ratio between blocks",
            self.noise.clone(),
        );
        registry.register(
            "device_signal",
            "The newest reading of a device whose driver looks all the time, by signal",
            self.signals.clone(),
        );
        registry.register(
            "device_signal_not_ok",
            "Signals of that reading which are busy or unknown: 1",
            self.not_ok.clone(),
        );
        registry.register(
            "blocks_disturbed",
            "Blocks thrown away in the rig's life, by device, cause, and the lane that alone ran beside them",
            self.disturbed.clone(),
        );
    }

    pub(super) fn look(&self, view: &RigView) {
        // Whatever is not so any more must not stay.
        self.info.clear();
        self.state.clear();
        self.noise.clear();
        self.signals.clear();
        self.not_ok.clear();
        view.devices.iter().for_each(|row| self.device(row));
    }

    fn device(&self, row: &DeviceRow) {
        let device = || ("device", row.member.0.to_string());
        let index = row.index.map(|index| index.to_string()).unwrap_or_default();
        let facts = &row.facts;
        let info = [
            device(),
            ("index", index),
            ("uuid", facts.uuid.clone()),
            ("model", facts.model.clone()),
            ("driver", facts.driver.clone()),
            ("pool", pool_of(row.pool).to_owned()),
        ];
        self.info.get_or_create(&info).set(1);
        self.state.get_or_create(&[device(), ("state", state_of(&row.state).to_owned())]).set(1);
        if let Some(most) = row.noise.iter().map(|noise| noise.scale).reduce(f64::max) {
            self.noise.get_or_create(&[device()]).set(most);
        }
        for signal in row.reading.iter().flat_map(|reading| &reading.signals) {
            let labels = [device(), ("signal", signal.name.clone())];
            match signal.state {
                SignalState::Ok => {}
                SignalState::Busy | SignalState::Unknown => drop(self.not_ok.get_or_create(&labels).set(1)),
            }
            if let Some(value) = signal.value.filter(|value| value.is_finite()) {
                self.signals.get_or_create(&labels).set(value);
            }
        }
        for blamed in &row.disturbed {
            let lane = blamed.blame.lane.map_or("none".to_owned(), |lane| format!("lane-{}", lane.number()));
            let labels = [device(), ("cause", blamed.blame.cause.name().to_owned()), ("lane", lane)];
            let counter = self.disturbed.get_or_create(&labels);
            counter.inc_by(blamed.blocks.saturating_sub(counter.get()));
        }
    }
}

const fn pool_of(pool: DevicePool) -> &'static str {
    match pool {
        DevicePool::Shared => "shared",
        DevicePool::Judge => "judge",
        DevicePool::Agents => "agents",
        DevicePool::Idle => "idle",
    }
}
