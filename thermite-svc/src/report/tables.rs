//! Constants and facts of a stage as tables.

use maud::{Markup, html};

use thermite_core::contract::Contract;
use thermite_core::record::VerdictRecord;

use crate::plain::plain;

use super::words::{self, percent};

/// Every constant of the method and limit of the contract, fixed before the first block.
pub(super) fn constants(record: &VerdictRecord) -> Markup {
    let constants = &record.constants;
    let list = |figures: &[f64]| figures.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    let Contract { build_max, check_max, measure_max, dev_run_max: _, leftovers: _, .. } = &record.facts.contract;
    rows(&[
        ("method", plain(&record.method), "the way it is decided"),
        ("alpha", constants.alpha.to_string(), "largest chance of a false win"),
        ("beta", constants.beta.to_string(), "largest chance that a change as good as the plan is given up"),
        ("null margin", percent(constants.null_margin), "what counts as no gain"),
        ("plan effect", percent(constants.plan_effect), "the gain that the comparison is planned to find"),
        ("gate", percent(constants.gate), "least estimate that wins"),
        (
            "blocks, least and most",
            format!("{} and {}", constants.blocks_least, constants.blocks_most),
            "for a win, and at all",
        ),
        ("scale s", constants.scale.to_string(), "noise of a block's ratio, with its margin"),
        ("bets", list(&constants.bets()), "multiples of plan effect over scale, clamped"),
        ("multipliers", list(&constants.multipliers), "of the four bets"),
        (
            "bet, least and most",
            format!("{} and {}", constants.bet_least, constants.bet_most),
            "what bets are clamped to",
        ),
        ("clip", constants.clip.to_string(), "scales at which a ratio counts in full"),
        ("build, check, measure", format!("{build_max}, {check_max}, {measure_max}"), "longest each may take"),
        (
            "coins",
            format!("{}, seed {}", plain(&record.coins.algorithm), record.coins.seed),
            "drawn before each block, published after the verdict",
        ),
    ])
}

/// What was measured, where, and every hash.
pub(super) fn facts(record: &VerdictRecord) -> Markup {
    let facts = &record.facts;
    let or_none =
        |hash: &Option<String>| hash.as_deref().map_or_else(|| "none: the kit builds nothing".to_owned(), plain);
    let screened =
        facts.screened.as_ref().map_or_else(|| "no screening before it".to_owned(), |screened| plain(&screened.record));
    let layout = format!("SHA-256, layout {} of records", record.schema);
    rows(&[
        ("job", facts.job.to_string(), ""),
        ("run", facts.run.to_string(), ""),
        ("stage and attempt", format!("{}, attempt {}", facts.stage, facts.attempt), ""),
        ("begun", words::date(facts.wall_ms), ""),
        ("device", format!("{} ({})", plain(&facts.on.model), plain(&facts.on.uuid)), "model and name that stays"),
        ("hold", format!("{} of device {}", facts.hold, facts.member), "the right it was measured under"),
        ("machine", plain(&facts.on.runner), ""),
        ("CPUs", plain(&facts.on.cpus), "what the judge used"),
        ("driver", plain(&facts.on.driver), ""),
        ("clocks", plain(&facts.on.clock_policy), "how they are set"),
        ("timer", format!("{}: {}", words::timer(facts.timer), plain(&facts.timer_note)), ""),
        ("champion", plain(&facts.champion), "commit"),
        ("change", plain(&facts.change), "commit it was asked for as"),
        ("candidate", plain(&facts.candidate), "champion plus the change's editable paths: what was measured"),
        ("candidate's tree", plain(&facts.candidate_tree), "equal content, equal tree"),
        ("champion's artefacts", or_none(&facts.artefacts.champion), "SHA-256"),
        ("candidate's artefacts", or_none(&facts.artefacts.change), "SHA-256"),
        ("kit", format!("{}, {}", plain(&facts.kit), plain(&facts.kit_hash)), "name, and SHA-256 of its file"),
        ("screening", screened, "SHA-256 of its record"),
        ("record", plain(&record.sha256), layout.as_str()),
    ])
}

fn rows(rows: &[(&str, String, &str)]) -> Markup {
    html! {
        div class="wide" {
            table class="facts" {
                tbody {
                    @for (name, value, note) in rows {
                        tr { th scope="row" { (name) } td class="value" { (value) } td class="note" { (note) } }
                    }
                }
            }
        }
    }
}
