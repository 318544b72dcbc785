//! The blocks of a stage as tables: what the drawings show, for readers who do not see them.

use maud::{Markup, html};

use super::charts::order;
use super::figures::{BlockFigures, Figures};
use super::words::{self, percent_or_none};

/// What was thrown away, by cause.
pub(super) fn thrown(figures: &Figures) -> Markup {
    let mut causes: Vec<(&str, Vec<usize>)> = Vec::new();
    for block in &figures.blocks {
        for cause in &block.causes {
            match causes.iter_mut().find(|(known, _)| known == cause) {
                Some((_, numbers)) => numbers.push(block.number),
                None => causes.push((cause, vec![block.number])),
            }
        }
    }
    html! {
        h3 { "Thrown blocks" }
        @if causes.is_empty() {
            p { "None." }
        } @else {
            p { "A block is thrown away only on signals that do not look at its times, and run again with a new coin." }
            div class="wide" {
                table {
                    thead { tr { th scope="col" { "Cause" } th scope="col" { "Blocks" } } }
                    tbody {
                        @for (cause, numbers) in &causes {
                            tr {
                                td { (cause) }
                                td { (numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Every block, in order.
pub(super) fn table(figures: &Figures) -> Markup {
    html! {
        div class="wide" tabindex="0" role="region" aria-label="All blocks" {
            table class="blocks" {
                thead {
                    tr {
                        th scope="col" { "Block" } th scope="col" { "Order" } th scope="col" { "Speed-up" }
                        th scope="col" { "Run 1" } th scope="col" { "Run 2" } th scope="col" { "Run 3" } th scope="col" { "Run 4" }
                        th scope="col" { "ln W" } th scope="col" { "ln F" } th scope="col" { "Lower" } th scope="col" { "Upper" }
                        @for signal in &figures.signals { th scope="col" { (crate::plain::plain(&signal.name)) } }
                        th scope="col" { "Thrown because" }
                    }
                }
                tbody { @for (at, block) in figures.blocks.iter().enumerate() { (row(at, block, figures)) } }
            }
        }
    }
}

fn row(at: usize, block: &BlockFigures, figures: &Figures) -> Markup {
    let after = block.after;
    html! {
        tr class=[(!block.causes.is_empty()).then_some("out")] {
            th scope="row" { (block.number) }
            td { (order(block.order)) }
            td class="figure" { (percent_or_none(block.d)) }
            @for run in 0..4 { td class="figure" { (block.ns.map_or_else(String::new, |ns| words::nanoseconds(ns[run]))) } }
            td class="figure" { (after.map_or_else(String::new, |after| format!("{:.3}", after.ln_w))) }
            td class="figure" { (after.map_or_else(String::new, |after| format!("{:.3}", after.ln_f))) }
            td class="figure" { (after.map_or_else(String::new, |after| words::lower(after.lower))) }
            td class="figure" { (after.map_or_else(String::new, |after| words::upper(after.upper))) }
            @for signal in &figures.signals {
                td class="figure" {
                    (signal.before.get(at).copied().flatten().map_or_else(String::new, |value| format!("{value:.2}")))
                }
            }
            td { (block.causes.join("; ")) }
        }
    }
}
