//! One pass over every state that can be reached: the properties, and whether from each of them the end can be
//! reached (AG EF ended). Stateright's own `eventually` overlooks cycles, so that question has its own pass.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// A world that is walked.
pub(super) trait World: Clone + Hash {
    /// What is checked.
    type Setup;
    /// One thing that happens.
    type Step: Copy;

    /// Where it begins.
    fn fresh(setup: &Self::Setup) -> Self;
    /// What can happen next.
    fn steps(&self, setup: &Self::Setup, steps: &mut Vec<Self::Step>);
    /// The world after a step.
    fn after(&self, setup: &Self::Setup, step: Self::Step) -> Self;
    /// Whether everything asked for has come to its end.
    fn ended(&self, setup: &Self::Setup) -> bool;
    /// The property that was broken.
    fn broken(&self) -> Option<&'static str>;
}

/// What was found.
pub(super) struct Found<Step> {
    pub(super) states: usize,
    pub(super) edges: usize,
    pub(super) depth: usize,
    /// The shortest story to each broken property.
    pub(super) broken: BTreeMap<&'static str, Vec<Step>>,
    /// The shortest story to a state from which nothing can happen although not all has ended.
    pub(super) stuck: Option<Vec<Step>>,
    /// The shortest story to a state from which the end cannot be reached.
    pub(super) lost: Option<Vec<Step>>,
    /// Whether every state was seen.
    pub(super) complete: bool,
}

/// Walks the whole graph, at most `most` states of it.
pub(super) fn explore<W: World>(setup: &W::Setup, most: usize) -> Found<W::Step> {
    let first = W::fresh(setup);
    let mut seen: BTreeMap<u128, u32> = BTreeMap::from([(fingerprint(&first), 0)]);
    let mut came_from: Vec<(u32, Option<W::Step>)> = vec![(0, None)];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut good: Vec<u32> = Vec::new();
    let mut broken: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut stuck = None;
    let mut level = vec![(0, first)];
    let mut depth = 0;
    let mut complete = true;
    let mut steps = Vec::new();
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for (at, rig) in level {
            if let Some(property) = rig.broken() {
                broken.entry(property).or_insert(at);
                good.push(at);
                continue;
            }
            let ended = rig.ended(setup);
            if ended {
                good.push(at);
            }
            steps.clear();
            rig.steps(setup, &mut steps);
            let mut moved = false;
            for step in &steps {
                let next = rig.after(setup, *step);
                let fresh = u32::try_from(came_from.len()).expect("fewer than four thousand million states");
                let id = *seen.entry(fingerprint(&next)).or_insert(fresh);
                if id == fresh {
                    came_from.push((at, Some(*step)));
                    next_level.push((id, next));
                }
                if id != at {
                    moved = true;
                    edges.push((at, id));
                }
            }
            if !moved && !ended {
                stuck.get_or_insert(at);
            }
        }
        level = next_level;
        depth += 1;
        if came_from.len() > most {
            complete = false;
            break;
        }
    }
    let lost = if complete { first_lost(came_from.len(), &edges, &good) } else { None };
    let story = |at: u32| story(&came_from, at);
    Found {
        states: came_from.len(),
        edges: edges.len(),
        depth,
        broken: broken.into_iter().map(|(property, at)| (property, story(at))).collect(),
        stuck: stuck.map(story),
        lost: lost.map(story),
        complete,
    }
}

/// 128 bits of a state in one pass; two states share them less often than memory errs.
fn fingerprint(rig: &impl Hash) -> u128 {
    let mut print = Print(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    rig.hash(&mut print);
    u128::from(print.0) << 64 | u128::from(print.1)
}

/// Two multiply-and-fold hashes side by side.
struct Print(u64, u64);

impl Print {
    fn mix(word: u64, by: u64) -> u64 {
        let product = u128::from(word) * u128::from(by);
        (product >> 64) as u64 ^ product as u64
    }
}

impl Hasher for Print {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = Print::mix(self.0 ^ word, 0x9e37_79b9_7f4a_7c15);
        self.1 = Print::mix(self.1.rotate_left(23) ^ word, 0xe703_7ed1_a0b4_28db);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The first state from which no good one can be reached.
fn first_lost(states: usize, edges: &[(u32, u32)], good: &[u32]) -> Option<u32> {
    let mut into = edges.to_vec();
    into.sort_unstable_by_key(|edge| edge.1);
    let mut reaches = vec![false; states];
    let mut open: Vec<u32> = good.to_vec();
    good.iter().for_each(|at| reaches[*at as usize] = true);
    while let Some(at) = open.pop() {
        let begin = into.partition_point(|edge| edge.1 < at);
        for (from, _) in into[begin..].iter().take_while(|edge| edge.1 == at) {
            if !reaches[*from as usize] {
                reaches[*from as usize] = true;
                open.push(*from);
            }
        }
    }
    reaches.iter().position(|reached| !reached).map(|at| u32::try_from(at).expect("states are numbered in 32 bits"))
}

fn story<Step: Copy>(came_from: &[(u32, Option<Step>)], mut at: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    while let (from, Some(step)) = came_from[at as usize] {
        steps.push(step);
        at = from;
    }
    steps.reverse();
    steps
}
