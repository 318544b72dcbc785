//! A change whose measured process is killed, by itself: its own failure, once chance is ruled out (rules D3, D5).

use super::house::{House, Load, Who};

#[test]
fn a_change_that_kills_itself_has_failed_itself_and_the_next_is_judged() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };

    let job = house.submit(&house.change("0", "kills-itself"));
    let ended = house.judged(&job);
    let next = house.judged(&house.submit(&house.faster("next")));

    let row = house.get(&job);
    println!("{ended}\nafter {}", row["failures"]);
    let why = ended["outcome"]["why"].as_str().unwrap();
    let said = "the change's measured run was ended by SIGKILL in 6 of 6 blocks, the champion's in none; neither the rig \
                nor the kernel for lack of memory did it";
    if ended["outcome"]["outcome"] == "no_verdict" && why.starts_with("a measured process died of infrastructure") {
        println!("the kernel killed for memory meanwhile, or does not count it: then nobody can tell");
    } else {
        assert_eq!(
            (&ended["outcome"]["outcome"], &ended["outcome"]["step"]),
            (&"change_failed".into(), &"measure".into())
        );
        assert_eq!(why, said, "{ended}");
    }
    assert_eq!(next["outcome"]["outcome"], "win", "{next}");
}
