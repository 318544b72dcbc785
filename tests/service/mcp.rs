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

/// The answer of a tool, called within a session as the older protocols have it.
fn called(rig: &Served, token: &str, name: &str, arguments: &Value) -> Value {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let begun = rig.send_bare("POST", "/mcp", &headers, hello.to_string().as_bytes());
    let session = begun.headers.get("mcp-session-id").unwrap_or_else(|| panic!("no session: {begun:?}")).clone();
    let within: Vec<(&str, &str)> = headers.into_iter().chain([("mcp-session-id", session.as_str())]).collect();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let told = rig.send_bare("POST", "/mcp", &within, ready.to_string().as_bytes());
    assert_eq!(told.status, 202, "{told:?}");
    let answer = rig.send_bare("POST", "/mcp", &within, &call(name, arguments));
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let told = text.lines().filter_map(|line| line.strip_prefix("data:")).find_map(|data| {
        let data: Value = serde_json::from_str(data.trim()).ok()?;
        data.get("result").cloned()
    });
    told.unwrap_or_else(|| panic!("no result: {answer:?}"))
}

#[test]
fn status_tells_an_agent_of_the_runners_and_who_waits_for_one() {
    let (_folder, rig) = crate::rest::served();
    rig.run();
    let list = json!([{ "name": "box-1", "pools": ["judge"] }, { "name": "box-2", "pools": ["lane-2"] }]);
    let set = rig.send("PUT", "/v1/rig/runners", &[("content-type", "application/json")], list.to_string().as_bytes());
    assert_eq!(set.status, 200, "{set:?}");
    let made = rig.post("/v1/tokens", &json!({"kind": "lane", "lane": 2})).json();
    let token = made["secret"].as_str().expect("a token is shown when it is made");

    let told = called(&rig, token, "status", &json!({}));

    let words = told["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no words: {told}"));
    for row in ["runner box-1/1 (pool judge): ", "runner box-2/1 (pool lane-2): "] {
        assert!(words.lines().any(|line| line.starts_with(row)), "{row}: {words}");
    }
    let runners = &told["structuredContent"]["rig"]["runners"];
    assert_eq!(runners["asked"], list, "{told}");
}

#[test]
fn the_door_is_a_lanes_and_nobody_elses() {
    let (_folder, rig) = crate::rest::served();

    let bare = rig.send_bare("POST", "/mcp", &[], b"{}");
    let owner = ask(&rig, &rig.token, &call("status", &json!({})));

    bare.problem(401, "no-token");
    let detail = owner.problem(403, "not-for-this-token");
    assert!(detail.contains("thermite token new --kind lane --lane"), "{detail}");
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
