//! `thermite noise`: how much the devices vary by themselves, what that costs, and the alarm on the harness (rule D6).

use clap::Args;

use thermite_actors::noise::{AlarmView, DeviceNoise, KitNoise};
use thermite_core::ids::MemberId;
use thermite_core::time::Span;

use crate::client::Client;

use super::exit;
use super::say::Say;

/// What `noise` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct NoiseArgs {
    /// Have this device's noise measured anew by the next stage of each kit
    #[arg(long, value_name = "DEVICE", conflicts_with = "clear")]
    again: Option<MemberId>,
    /// Put this device back into service: its alarm was looked into
    #[arg(long, value_name = "DEVICE")]
    clear: Option<MemberId>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite noise
  thermite noise --again 0
  thermite noise --clear 0

A device's noise is how much the champion differs from itself. It is measured by the judge, as part of a stage, for each \
kit, driver and clock setting: the first time, after 24 h, when a job's own blocks vary by another measure, and when you \
ask for it with --again. Over twice the kit's plan effect it is a warning, over three times the device refuses the kit.

The alarm adds up all blocks of the champion against itself in the device's life. Where they favour one side, the fault \
is in how this rig measures, and the device is out of service until you have looked and said --clear.

Exit codes: 0 done; 69 refused, such as where there is no alarm to clear; 70 infrastructure.";

/// Shows the noise, or changes what is kept of it.
pub(crate) fn noise(args: &NoiseArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    if let Some(device) = args.again {
        let again = client.noise_again(device)?;
        if args.json {
            say.json(&again);
        } else {
            let measures =
                if again.dropped == 1 { "1 measure".to_owned() } else { format!("{} measures", again.dropped) };
            say.line(&format!("{device}: {measures} dropped; the next stage of each kit takes its own"));
        }
        return Ok(exit::OK);
    }
    if let Some(device) = args.clear {
        let cleared = client.clear_alarm(device)?;
        if args.json {
            say.json(&cleared);
        } else {
            say.line(&format!("{device}: alarm cleared; it comes back into service, and its alarm begins anew"));
        }
        return Ok(exit::OK);
    }
    let devices = client.noise()?;
    if args.json {
        say.json(&devices);
    } else {
        let wall_ms = client.rig()?.wall_ms;
        devices.iter().flat_map(|device| lines(device, wall_ms)).for_each(|line| say.line(&line));
    }
    Ok(exit::OK)
}

fn lines(device: &DeviceNoise, wall_ms: u64) -> Vec<String> {
    let mut lines = vec![format!("{} ({})", device.member, device.model)];
    if device.kits.is_empty() {
        lines.push("  not measured yet: the first stage does it".to_owned());
    }
    lines.extend(device.kits.iter().flat_map(|kit| of_kit(kit, wall_ms)));
    lines.push(format!("  {}", alarm(&device.alarm)));
    lines
}

fn of_kit(kit: &KitNoise, wall_ms: u64) -> Vec<String> {
    let noise = &kit.noise;
    let name = kit.kit.as_deref().unwrap_or("of no run that is known");
    let age = Span::millis(wall_ms.saturating_sub(noise.wall_ms) / 60_000 * 60_000);
    let age = if age == Span::ZERO { "less than a minute".to_owned() } else { age.to_string() };
    let again = if kit.is_good { "" } else { "; the next stage measures it anew" };
    let mut lines = vec![format!(
        "  kit {name} ({}): noise {:.2} %, {} blocks, measured {age} ago, {}, {}{again}",
        noise.key.kit.get(..8).unwrap_or(&noise.key.kit),
        100.0 * noise.scale,
        noise.blocks,
        noise.key.driver,
        noise.key.clock_policy,
    )];
    if let Some(plan) = &kit.plan {
        lines.push(match &plan.warning {
            Some(warning) => format!("    warning: {warning}"),
            None => format!(
                "    plan effect {:.2} %: about {:.0} blocks to screen, {:.0} to confirm",
                100.0 * plan.plan_effect,
                plan.blocks_to_screen,
                plan.blocks_to_confirm
            ),
        });
    }
    lines
}

fn alarm(alarm: &AlarmView) -> String {
    match &alarm.quarantined {
        Some(why) => format!("alarm: quarantined: {why}"),
        None => format!(
            "alarm: quiet after {} blocks of the champion twice (evidence ln {:.1}, raised at {:.1})",
            alarm.blocks, alarm.ln_evidence, alarm.ln_raised_at
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_actors::noise::PlanView;
    use thermite_core::ids::MemberId;
    use thermite_core::noise::{Noise, NoiseKey, Suits};

    #[test]
    fn a_device_is_shown_with_its_noise_what_it_costs_and_its_alarm() {
        let shown = lines(&device(None, None), 3_700_000).join("\n");

        assert_eq!(
            shown,
            "device 0 (A CPU)
  kit matrix (d4d4d4d4): noise 0.81 %, 40 blocks, measured 1 h 1 min ago, cpu 1, governor performance
    plan effect 1.00 %: about 7 blocks to screen, 11 to confirm
  alarm: quiet after 40 blocks of the champion twice (evidence ln 0.3, raised at 6.9)"
        );
    }

    #[test]
    fn a_warning_and_a_quarantine_stand_in_their_places() {
        let noisy = device(Some("device 0 is noisy".into()), Some("it favours the change".into()));

        let shown = lines(&noisy, 3_700_000).join("\n");

        assert!(shown.contains("\n    warning: device 0 is noisy\n"), "{shown}");
        assert!(shown.ends_with("\n  alarm: quarantined: it favours the change"), "{shown}");
    }

    fn device(warning: Option<String>, quarantined: Option<String>) -> DeviceNoise {
        let key = NoiseKey {
            device: "u".into(),
            kit: "d4".repeat(32),
            driver: "cpu 1".into(),
            clock_policy: "governor performance".into(),
        };
        let plan =
            PlanView { plan_effect: 0.01, suits: Suits::Well, blocks_to_screen: 7.2, blocks_to_confirm: 11.2, warning };
        DeviceNoise {
            member: MemberId(0),
            device: "u".into(),
            model: "A CPU".into(),
            alarm: AlarmView { blocks: 40, ln_evidence: 0.31, ln_raised_at: 6.9, quarantined },
            kits: vec![KitNoise {
                kit: Some("matrix".into()),
                noise: Noise { key, scale: 0.0081, blocks: 40, wall_ms: 0 },
                is_good: true,
                plan: Some(plan),
            }],
        }
    }
}
