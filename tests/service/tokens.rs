//! Tokens by kind: what each opens, how it ends, and that the token itself is nowhere.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermite_core::limits;
use thermite_svc::folder::OWNER_TOKEN;

use crate::binary::{Said, command};
use crate::scripted::{Answer, Served, Serving, all_of, run_request};

#[test]
fn a_lanes_token_opens_what_its_lane_does() {
    let (_folder, rig) = served();
    let run = rig.run();
    let lane = lane_token(&rig, json!({"kind": "lane", "lane": 2, "run": run.rsplit('/').next()}));

    let asked = lane.post(&format!("{run}/lanes/2/dev-runs"), &json!({"argv": ["try"]}));
    assert_eq!(asked.status, 202, "{asked:?}");
    let own = asked.headers["location"].clone();
    let submitted = lane.post(&format!("{run}/jobs"), &json!({"change": "faster"}));
    assert_eq!(submitted.status, 202, "{submitted:?}");
    let job = submitted.headers["location"].clone();
    let why = own.replace("/v1/dev-runs/", "/v1/why/");
    for path in ["/v1/rig", "/v1/runs", &run, &own, &format!("{own}/output"), &job, &why, "/v1/events?for_ms=0"] {
        assert_eq!(lane.get(path).status, 200, "{path}");
        assert_eq!(lane.send("HEAD", path, &[], b"").status, 200, "HEAD {path}");
    }
    assert_eq!(lane.delete(&own).status, 200);
    rig.end();
}

#[test]
fn a_lanes_token_opens_nothing_else() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (_, others) = rig.ask(&run, 1, false);
    let lane = lane_token(&rig, json!({"kind": "lane", "lane": 2}));
    let nobodys = "00000000-0000-7000-8000-000000000000";
    let of_another_run = lane_token(&rig, json!({"kind": "lane", "lane": 2, "run": nobodys}));
    let job = rig.post(&format!("{run}/jobs"), &json!({"change": "faster"})).headers["location"].clone();

    for (method, path, body) in [
        ("POST", "/v1/runs".to_owned(), run_request()),
        ("POST", format!("{run}/pause"), json!({})),
        ("POST", format!("{run}/resume"), json!({})),
        ("POST", format!("{run}/end"), json!({})),
        ("POST", format!("{run}/lanes/1/dev-runs"), json!({"argv": ["try"]})),
        ("POST", format!("{run}/lanes/18/dev-runs"), json!({"argv": ["try"]})),
        ("GET", format!("{run}/dev-runs"), Value::Null),
        ("GET", format!("{run}/jobs"), Value::Null),
        ("GET", others.clone(), Value::Null),
        ("GET", format!("{others}/output"), Value::Null),
        ("DELETE", others.clone(), Value::Null),
        ("PUT", "/v1/rig/settings".to_owned(), json!({"dev_run_wait": 1_000})),
        ("GET", "/v1/rig/settings".to_owned(), Value::Null),
        ("GET", "/metrics".to_owned(), Value::Null),
        ("GET", "/v1/tokens".to_owned(), Value::Null),
        ("POST", "/v1/tokens".to_owned(), json!({"kind": "owner"})),
        ("GET", "/v1/nothing".to_owned(), Value::Null),
    ] {
        let answer = send(&lane, method, &path, &body);
        let detail = answer.problem(403, "not-for-this-token");
        assert!(detail.contains("token lane-") && !detail.contains("th_lane_"), "{method} {path}: {detail}");
        assert!(answer.headers["www-authenticate"].contains("insufficient_scope"));
    }
    for (method, path, body) in [
        ("POST", format!("{run}/lanes/2/dev-runs"), json!({"argv": ["try"]})),
        ("POST", format!("{run}/jobs"), json!({"change": "faster"})),
        ("GET", job.clone(), Value::Null),
        ("GET", format!("{job}/verdict"), Value::Null),
    ] {
        let answer = send(&of_another_run, method, &path, &body);
        assert!(answer.problem(403, "not-for-this-token").contains(nobodys), "{method} {path}: {answer:?}");
    }
    assert_eq!(rig.get(&others).json()["status"]["status"], "running");
    assert_eq!(rig.get(&run).json()["state"], "running");
    rig.end();
}

#[test]
fn what_another_lane_asked_to_run_is_not_told_to_a_lane() {
    let (_folder, rig) = served();
    let run = rig.run();
    let lane = lane_token(&rig, json!({"kind": "lane", "lane": 2}));
    let (secret, own) = (json!({"argv": ["try"], "env": [["KEY", "their-secret"]]}), json!({"argv": ["our-own"]}));
    let mut streams = [&rig.token, &lane.token].map(|token| {
        let bearer = format!("Bearer {token}");
        let stream = rig.open("GET", "/v1/events?for_ms=1500", &[("authorization", &bearer)], b"");
        begun(stream)
    });

    assert_eq!(rig.post(&format!("{run}/lanes/1/dev-runs"), &secret).status, 202);
    assert_eq!(rig.post(&format!("{run}/lanes/2/dev-runs"), &own).status, 202);

    let [all, seen] = streams.each_mut().map(|stream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    assert!(all.contains("their-secret") && all.contains("our-own"), "{all}");
    assert!(!seen.contains("their-secret"), "{seen}");
    assert!(seen.contains("our-own") && !seen.contains("event: missed"), "{seen}");
    rig.end();
}

#[test]
fn a_revoked_token_opens_nothing_at_once_and_its_streams_end() {
    let (_folder, rig) = served();
    let run = rig.run();
    let made = rig.post("/v1/tokens", &json!({"kind": "lane", "lane": 1, "note": "agent"}));
    let (path, lane) = (made.headers["location"].clone(), with_token(&rig, &made));
    let own = lane.post(&format!("{run}/lanes/1/dev-runs"), &json!({"argv": ["try"]})).headers["location"].clone();
    let bearer = format!("Bearer {}", lane.token);
    let headers = [("authorization", bearer.as_str())];
    let mut events = begun(rig.open("GET", "/v1/events", &headers, b""));
    let mut poll = rig.open("GET", &format!("{own}/output?wait_ms=30000"), &headers, b"");
    // Both are under way: a later request of the same token is answered.
    assert_eq!(lane.get("/v1/rig").status, 200);

    let since = Instant::now();
    let revoked = rig.delete(&path);
    let mut rest = Vec::new();
    events.read_to_end(&mut rest).unwrap();
    let polled = Answer::read(&all_of(&mut poll));

    assert_eq!((revoked.status, revoked.body.len()), (204, 0));
    assert!(since.elapsed() < Duration::from_secs(20), "it took {:?}", since.elapsed());
    polled.problem(401, "wrong-token");
    lane.get("/v1/rig").problem(401, "wrong-token");
    rig.get(&path).problem(404, "unknown-token");
    rig.delete(&path).problem(404, "unknown-token");
    // What it had asked for stays.
    assert_eq!(rig.get(&own).json()["status"]["status"], "running");
    rig.end();
}

#[test]
fn a_token_that_expires_says_so_and_ends_what_it_holds_open() {
    let (_folder, rig) = served();
    let made = rig.post("/v1/tokens", &json!({"kind": "lane", "lane": 1, "valid_s": 2}));
    let lane = with_token(&rig, &made);
    let bearer = format!("Bearer {}", lane.token);
    let mut events = rig.open("GET", "/v1/events", &[("authorization", &bearer)], b"");

    // It ends by itself, or the read's own limit fails the test.
    let _ = all_of(&mut events);

    let answer = lane.get("/v1/rig");
    assert!(answer.problem(401, "expired-token").contains("has expired"), "{answer:?}");
    assert!(answer.headers["www-authenticate"].contains("invalid_token"));
    rig.end();
}

#[test]
fn a_rotated_token_stays_valid_for_the_overlap_and_no_longer() {
    let (_folder, rig) = served();
    let made = rig.post("/v1/tokens", &json!({"kind": "lane", "lane": 3, "note": "agent"}));
    let old = with_token(&rig, &made);
    let path = made.headers["location"].clone();

    let rotated = rig.post(&format!("{path}/rotate"), &json!({}));
    let new = with_token(&rig, &rotated);
    let both = [old.get("/v1/rig").status, new.get("/v1/rig").status];
    let left = rig.get(&path).json()["expires_ms"].as_u64().unwrap() - rotated.json()["made_ms"].as_u64().unwrap();
    let newest =
        with_token(&rig, &rig.post(&format!("{}/rotate", rotated.headers["location"]), &json!({"overlap_s": 0})));

    assert_eq!(rotated.status, 201, "{rotated:?}");
    assert_eq!((rotated.json()["lane"].as_u64(), rotated.json()["note"].as_str()), (Some(3), Some("agent")));
    assert_eq!(both, [200, 200]);
    assert!(left.abs_diff(limits::TOKEN_OVERLAP.as_millis()) < 1_000, "{left}");
    new.get("/v1/rig").problem(401, "expired-token");
    assert_eq!(newest.get("/v1/rig").status, 200);
    let too_long = rig.post(&format!("{path}/rotate"), &json!({"overlap_s": 604_801}));
    assert!(too_long.problem(400, "bad-request").contains("overlap_s is 604801; it must be 0 to 604800"));
    rig.end();
}

#[test]
fn the_files_token_ends_with_the_file_alone() {
    let (_folder, rig) = served();
    let own = rig.get("/v1/tokens").json()[0].clone();
    let path = format!("/v1/tokens/{}", own["token"].as_str().unwrap());

    assert_eq!((own["from_file"].as_bool(), own["kind"].as_str()), (Some(true), Some("owner")));
    assert!(rig.delete(&path).problem(409, "token-of-the-file").contains("remove that file"));
    assert!(rig.post(&format!("{path}/rotate"), &json!({})).problem(409, "token-of-the-file").contains(OWNER_TOKEN));
    assert_eq!(rig.get("/v1/rig").status, 200);
    rig.end();
}

#[test]
fn tokens_last_through_a_restart_and_are_nowhere_but_with_their_holder() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let lane = lane_token(&rig, json!({"kind": "lane", "lane": 1}));
    let owner = lane_token(&rig, json!({"kind": "owner", "note": "laptop"}));
    let gone = rig.post("/v1/tokens", &json!({"kind": "owner"}));
    assert_eq!(rig.delete(&gone.headers["location"]).status, 204);
    let listing = rig.get("/v1/tokens").text().to_owned();
    rig.end();

    let rig = Served::start(folder.path());
    let at = |token: &str| Serving { address: rig.address, token: token.to_owned() };

    assert_eq!([at(&lane.token).get("/v1/rig").status, at(&owner.token).get("/v1/tokens").status], [200, 200]);
    at(gone.json()["secret"].as_str().unwrap()).get("/v1/rig").problem(401, "wrong-token");
    assert_eq!(rig.get("/v1/tokens").json().as_array().unwrap().len(), 3);
    for token in [&lane.token, &owner.token, &rig.token] {
        let random = token.rsplit('_').next().unwrap();
        assert!(!listing.contains(random));
        for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            if entry.file_name() == OWNER_TOKEN || !entry.file_type().unwrap().is_file() {
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            let found = bytes.windows(random.len()).any(|part| part == random.as_bytes());
            assert!(!found, "a token is in {}", entry.path().display());
        }
    }
    rig.end();
}

#[test]
fn a_listing_goes_page_by_page_and_says_when_each_was_used() {
    let (_folder, rig) = served();
    let used = lane_token(&rig, json!({"kind": "lane", "lane": 1}));
    (0..4).for_each(|_| drop(lane_token(&rig, json!({"kind": "lane", "lane": 1}))));
    assert_eq!(used.get("/v1/rig").status, 200);

    let mut path = "/v1/tokens?limit=2".to_owned();
    let mut rows: Vec<Value> = Vec::new();
    let mut pages = 0;
    loop {
        let page = rig.get(&path);
        rows.extend(page.json().as_array().unwrap().clone());
        pages += 1;
        match page.headers.get("link") {
            Some(link) => path = link[1..].split_once('>').unwrap().0.to_owned(),
            None => break,
        }
    }

    assert!((3..=4).contains(&pages), "{pages}");
    let names: Vec<&str> = rows.iter().map(|row| row["token"].as_str().unwrap()).collect();
    assert!(names.len() == 6 && names.is_sorted(), "{names:?}");
    assert_eq!(rows.iter().filter(|row| !row["used_ms"].is_null()).count(), 2, "{rows:?}");
    assert!(rig.get("/v1/tokens?limit=501").problem(400, "bad-request").contains("limit is 501; it must be 1 to 500"));
    assert!(rig.get("/v1/tokens?after=x").problem(400, "bad-request").contains("after x is not a token's public name"));
    rig.end();
}

#[test]
fn a_token_that_cannot_be_made_is_refused_with_why() {
    let (_folder, rig) = served();

    for (body, status, kind, word) in [
        (json!({"kind": "lane"}), 422, "impossible", "name it as `lane`"),
        (json!({"kind": "owner", "lane": 1}), 422, "impossible", "has no lane"),
        (json!({"kind": "lane", "lane": 17}), 400, "bad-request", "lane 17 does not exist"),
        (json!({"kind": "king"}), 400, "bad-request", "kind: unknown variant `king`"),
        (json!({"kind": "owner", "note": "x".repeat(201)}), 422, "impossible", "201 bytes"),
        (json!({"kind": "owner", "note": "a\nb"}), 422, "impossible", "one line"),
        (json!({"kind": "owner", "valid_s": 0}), 400, "bad-request", "valid_s is 0"),
        (json!({"kind": "owner", "valid_s": 316_224_001_u64}), 400, "bad-request", "valid_s"),
    ] {
        let answer = rig.post("/v1/tokens", &body);
        assert!(answer.problem(status, kind).contains(word), "{answer:?}");
    }
    rig.end();
}

#[test]
fn no_header_however_hostile_opens_the_door_or_ends_the_rig() {
    let (_folder, rig) = served();
    let lane = lane_token(&rig, json!({"kind": "lane", "lane": 1}));
    let mut headers: Vec<Vec<u8>> =
        ["", "Bearer", "Bearer ", "Bearer  ", "Basic x", "Bearer th_own_", "Bearer th_lane_"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec();
    for token in [&rig.token, &lane.token] {
        headers.push(token.as_bytes().to_vec());
        // Every length around and far beyond a token's own, and every place changed.
        headers.extend((0..token.len()).map(|len| format!("Bearer {}", &token[..len]).into_bytes()));
        headers
            .extend([1, 2, 64, 1_000, 10_000].map(|more| format!("Bearer {token}{}", "0".repeat(more)).into_bytes()));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            headers.push([b"Bearer ", &changed[..]].concat());
        }
        headers.push(format!("Bearer {token}\u{e9}").into_bytes());
        headers.push(format!("Bearer {token} {token}").into_bytes());
        headers.push(format!("Bearer {}", token.to_uppercase()).into_bytes());
    }
    headers.push(b"Bearer \xff\xfe\x80".to_vec());

    for header in headers {
        let answer = with_header(&rig, &header);
        let shown = String::from_utf8_lossy(&header[..header.len().min(100)]).into_owned();
        assert!([400, 401, 431].contains(&answer.status), "{shown}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("th_own_"), "{answer:?}");
    }
    assert_eq!(with_header(&rig, format!("bEaReR  {}", rig.token).as_bytes()).status, 200);
    rig.end();
}

#[test]
fn the_command_makes_lists_rotates_and_revokes() {
    let (folder, rig) = served();
    let data = folder.path().to_str().unwrap();
    let say = |args: &[&str]| Said::by(command(&[&["token"], args, &["--data", data]].concat()).output().unwrap());

    let new = say(&["new", "--kind", "lane", "--lane", "2", "--note", "agent two", "--valid", "1h"]);
    let secret = new.out.trim().to_owned();
    let id =
        new.err.split_whitespace().find(|word| word.starts_with("lane-")).unwrap().trim_end_matches(':').to_owned();
    let at = |token: &str| Serving { address: rig.address, token: token.to_owned() };
    assert_eq!((new.code, at(&secret).get("/v1/rig").status), (Some(0), 200), "{new:?}");
    assert!(!new.err.contains("th_lane_"), "{new:?}");

    let list = say(&["list"]);
    assert!(list.out.contains(&format!("{id}: lane 2, for 59 min")) && list.out.contains("agent two"), "{list:?}");
    assert!(list.out.contains("owner, in the data folder's file") && !list.out.contains("th_"), "{list:?}");
    let rotated = say(&["rotate", &id, "--overlap", "0s", "--json"]);
    let made: Value = serde_json::from_str(&rotated.out).unwrap();
    at(&secret).get("/v1/rig").problem(401, "expired-token");
    assert_eq!(at(made["secret"].as_str().unwrap()).get("/v1/rig").status, 200);
    let revoked = say(&["revoke", made["token"].as_str().unwrap()]);
    assert!(revoked.out.ends_with("is revoked\n"), "{revoked:?}");
    at(made["secret"].as_str().unwrap()).get("/v1/rig").problem(401, "wrong-token");
    let again = say(&["revoke", made["token"].as_str().unwrap()]);
    assert!(again.refused_with(69).contains("does not exist"));
    let listed: Value = serde_json::from_str(&say(&["list", "--json"]).out).unwrap();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(say(&["new", "--kind", "lane", "--lane", "17"]).code, Some(64));
    rig.end();
}

fn served() -> (tempfile::TempDir, Served) {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    (folder, rig)
}

fn lane_token(rig: &Served, body: Value) -> Serving {
    with_token(rig, &rig.post("/v1/tokens", &body))
}

/// The door, opened with the token that was made.
fn with_token(rig: &Served, made: &Answer) -> Serving {
    assert_eq!((made.status, made.headers["cache-control"].as_str()), (201, "no-store"), "{made:?}");
    Serving { address: rig.address, token: made.json()["secret"].as_str().unwrap().to_owned() }
}

fn send(rig: &Serving, method: &str, path: &str, body: &Value) -> Answer {
    match body {
        Value::Null => rig.send(method, path, &[], b""),
        body => rig.send(method, path, &[("content-type", "application/json")], body.to_string().as_bytes()),
    }
}

/// A stream of events, read up to its greeting: what comes from here on is its reader's.
fn begun(stream: std::net::TcpStream) -> BufReader<std::net::TcpStream> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("event: ready") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream begins");
    }
    reader
}

fn with_header(rig: &Serving, value: &[u8]) -> Answer {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(rig.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head =
        [b"GET /v1/rig HTTP/1.1\r\nhost: rig\r\nconnection: close\r\nauthorization: ", value, b"\r\n\r\n"].concat();
    stream.write_all(&head).unwrap();
    Answer::read(&all_of(&mut stream))
}
