//! This machine as the ports: launching and containment, capture, the CPU driver, git workspaces.

pub mod launch;
