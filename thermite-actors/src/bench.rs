//! The bench: where jobs are built that take no card yet (rule B7), as a member that is held like a device.
//!
//! It has an executor and nothing to read. Holding it is the build turn of the whole rig; its stop and its proof are a
//! device's.

use futures_util::future::LocalBoxFuture;

use thermite_core::contract::Target;
use thermite_core::readiness::Reading;

use crate::ports::{DeviceFacts, DeviceFault, TargetDriver};

/// The driver of what is no device.
pub(crate) struct BenchDriver {
    pub(crate) target: Target,
}

impl TargetDriver for BenchDriver {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            target: self.target,
            uuid: "bench".to_owned(),
            model: "bench".to_owned(),
            driver: String::new(),
            clock_policy: String::new(),
            cpus: String::new(),
            cores: 0,
        }
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        Box::pin(std::future::ready(Err(DeviceFault::Other("the bench is no device to be read".to_owned()))))
    }
}
