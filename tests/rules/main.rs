//! The rules of thermite-core as tests: no runtime, in milliseconds.

mod verdict;
