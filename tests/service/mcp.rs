//! The door for agents without a client: what it says to those whom it does not let in, and to what is no protocol.
//! `tests/mcp.sh` tries it with a client.

use serde_json::{Value, json};

use crate::scripted::Served;

fn call(name: &str, arguments: &Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
        .to_string()
        .into_bytes()
}

fn ask(rig: &Served, token: &str, body: &[u8]) -> crate::scripted::Answer {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    rig.send_bare("POST", "/mcp", &headers, body)
}

#[test]
fn the_door_is_a_lanes_and_nobody_elses() {
    let (_folder, rig) = crate::rest::served();

    let bare = rig.send_bare("POST", "/mcp", &[], b"{}");
    let owner = ask(&rig, &rig.token, &call("status", &json!({})));

    bare.problem(401, "no-token");
    let detail = owner.problem(403, "not-for-this-token");
    assert!(detail.contains("thermite token make --lane"), "{detail}");
    assert!(!detail.contains(&rig.token), "{detail}");
}

#[test]
fn what_is_no_protocol_is_told_so_and_the_rig_goes_on() {
    let (_folder, rig) = crate::rest::served();
    let made = rig.post("/v1/tokens", &json!({"kind": "lane", "lane": 2})).json();
    let token = made["secret"].as_str().expect("a token is shown when it is made");

    for body in [b"".as_slice(), b"{", b"[]", b"{\"jsonrpc\":\"1.0\"}", &[0xff; 64], &vec![b'a'; 2 * 1024 * 1024]] {
        let answer = ask(&rig, token, body);
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    // A call outside of a session is no call of the older protocols.
    let answer = ask(&rig, token, &call("status", &json!({})));
    assert!((400..500).contains(&answer.status), "{answer:?}");
    assert_eq!(rig.get("/v1/rig").status, 200);
}
