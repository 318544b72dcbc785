//! Cards in view, status and figures: index, UUID, model, driver, pool, state, newest reading (rule B4, D6).

use std::time::Duration;

use crate::binary::until;

use super::house::CardHouse;

#[test]
fn every_card_is_shown_with_what_names_it_and_how_it_stands() {
    let Some(house) = CardHouse::with(vec!["Stand-in A"; 3], &[("THERMITE_GPUS", "2,0")]) else { return };
    house.start();
    house.until_card(0, "a reading is there", |row| row["reading"]["signals"].is_array());

    let rows = house.devices();
    let status = house.say(&["status"]).out;
    let figures = house.get("/metrics");
    let figures = figures.as_str().unwrap();

    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["index"], &rows[1]["index"]), (&2.into(), &0.into()), "in the order they were named in");
    assert_eq!(rows[0]["facts"]["uuid"], house.uuid(2));
    assert_eq!(rows[0]["facts"]["driver"], "nvidia 580.82.07");
    let signals = rows[0]["reading"]["signals"].as_array().unwrap();
    assert!(signals.iter().any(|signal| signal["name"] == "temperature" && signal["value"] == 40.0), "{rows:?}");
    assert!(status.contains(&format!("the judge's; index 2, {}, nvidia 580.82.07", house.uuid(2))), "{status}");
    assert!(status.contains("newest reading: gpu_use 0.00 of at most 5.00 %"), "{status}");
    let info = format!(
        "thermite_device_info{{device=\"1\",index=\"0\",uuid=\"{}\",model=\"Stand-in A\",driver=\"nvidia \
         580.82.07\",pool=\"agents\"}} 1",
        house.uuid(0)
    );
    assert!(figures.contains(&info), "{figures}");
    assert!(figures.contains("thermite_device_signal{device=\"0\",signal=\"temperature\"} 40.0"), "{figures}");
    assert!(figures.contains("thermite_device_state{device=\"0\",state=\"ready\"} 1"), "{figures}");
    house.end();
}

/// What disturbed blocks is a fact of the log: it is there after a restart.
#[test]
fn who_disturbed_which_blocks_is_counted_and_outlives_the_rig() {
    let Some(house) = CardHouse::served(2) else { return };
    house.faster("quick");
    let dev_run = house.ask(2, &["sleep", "250"]);
    house.until_status(&dev_run, "running");
    let job = house.submit("quick");
    until("blocks are measured", || {
        house.get(&job)["status"]["stage"]["accepted"].as_u64().is_some_and(|accepted| accepted > 0)
    });

    // The power limit for a moment, again and again: a block each time, until it is too many for the attempt.
    let mut row = serde_json::Value::Null;
    until("blocks are told as disturbed", || {
        house.change(0, &["reasons 4"]);
        std::thread::sleep(Duration::from_millis(700));
        house.change(0, &[]);
        std::thread::sleep(Duration::from_millis(1_500));
        row = house.devices()[0].clone();
        row["disturbed"].is_array()
    });
    house.ok("DELETE", &dev_run, None);
    house.end();
    house.start();

    let slowed = |row: &serde_json::Value| {
        let rows = row["disturbed"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["cause"] == "slowed").unwrap_or_else(|| panic!("{row}"))
    };
    let before = slowed(&row);
    assert_eq!(before["lane"], 2, "{row}");
    let after = slowed(&house.devices()[0]);
    assert!(after["blocks"].as_u64() >= before["blocks"].as_u64(), "{after}");
    let told = house.say(&["status"]).out;
    assert!(told.contains("the device was slowed for heat or power, while lane 2 alone ran"), "{told}");
    let figures = house.get("/metrics");
    let counted = "thermite_blocks_disturbed_total{device=\"0\",cause=\"slowed\",lane=\"lane-2\"}";
    assert!(figures.as_str().unwrap().contains(counted), "{figures}");
    house.end();
}
