//! Shells.
