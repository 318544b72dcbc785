//! New names and luck from the operating system.

use crate::ports::Ids;

/// UUIDs of version 7, which sort by the time they were made, and seeds from the kernel's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsIds;

impl Ids for OsIds {
    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }

    fn seed(&self) -> u64 {
        getrandom::u64().expect("the kernel's generator answers once it is seeded at boot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_in_the_order_they_were_made() {
        let names: Vec<uuid::Uuid> = (0..1_000).map(|_| OsIds.uuid()).collect();

        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn seeds_are_not_repeated() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| OsIds.seed()).collect();

        assert_eq!(seeds.len(), 100, "two of a hundred 64-bit seeds are equal once in 10^15 runs");
    }
}
