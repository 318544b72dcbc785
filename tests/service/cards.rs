//! GPU rigs whole: the real `thermite serve` over the fake NVIDIA library, device nodes that stand for cards, and a kit
//! whose programs run on the CPU. What runs, is kept apart, stopped and measured is real; only the card's figures are fed.

mod check;
mod doctor;
mod faults;
mod figures;
mod house;
mod settings;
mod splits;
