//! Cards in view, status and figures: index, UUID, model, driver, pool, state, newest reading (rule B4, D6).

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
