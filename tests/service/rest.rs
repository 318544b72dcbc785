//! The REST door: every no as a problem with its status, keys, events that resume, output that is followed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use thermite_core::limits;
use thermite_core::record::verify_json;

use crate::scripted::{Answer, Served, Serving, all_of, run_request};

const NO_RUN: &str = "/v1/runs/00000000-0000-7000-8000-000000000000";

#[test]
fn health_needs_no_token_and_everything_else_does() {
    let (_folder, rig) = served();

    let health = rig.send_bare("GET", "/healthz", &[], b"");
    let no_token = rig.send_bare("GET", "/v1/rig", &[], b"");
    let unknown_path = rig.send_bare("GET", "/nothing", &[], b"");
    let wrong = format!("Bearer th_own_{}", "0".repeat(64));
    let wrong = rig.send_bare("GET", "/v1/rig", &[("authorization", &wrong)], b"");
    let no_bearer = format!("Basic {}", rig.token);
    let no_bearer = rig.send_bare("GET", "/v1/rig", &[("authorization", &no_bearer)], b"");

    assert_eq!((health.status, health.text()), (200, "ok"));
    for answer in [&no_token, &unknown_path] {
        let detail = answer.problem(401, "no-token");
        assert!(detail.contains("owner-token"), "{detail}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"thermite\"");
    }
    for answer in [wrong, no_bearer] {
        let detail = answer.problem(401, "wrong-token");
        assert!(!detail.contains("th_own_"), "{detail}");
        assert!(answer.headers["www-authenticate"].contains("invalid_token"));
    }
}

#[test]
fn a_path_that_is_not_there_is_a_problem_and_so_is_an_id_that_is_none() {
    let (_folder, rig) = served();

    assert!(rig.get("/v1/nothing").problem(404, "not-found").contains("/v1/nothing"));
    assert!(rig.get("/").problem(404, "not-found").contains("/"));
    assert!(rig.get("/v1/runs/seven").problem(400, "bad-request").contains("seven is not a UUID"));
    assert!(rig.get("/v1/jobs/seven").problem(400, "bad-request").contains("seven is not a UUID"));
    assert!(rig.get("/v1/dev-runs/seven").problem(400, "bad-request").contains("seven is not a UUID"));
    assert!(rig.get("/v1/dev-runs/seven/output").problem(400, "bad-request").contains("seven is not a UUID"));
    assert!(rig.delete("/v1/dev-runs/seven").problem(400, "bad-request").contains("seven is not a UUID"));
    let run = rig.run();
    let body = json!({"argv": ["try"]});
    let lane = rig.post(&format!("{run}/lanes/first/dev-runs"), &body);
    assert!(lane.problem(400, "bad-request").contains("lane first is not a lane's number"));
}

#[test]
fn unknown_things_are_404_with_their_name() {
    let (_folder, rig) = served();
    let id = "00000000-0000-7000-8000-000000000000";

    assert!(rig.get(NO_RUN).problem(404, "unknown-run").contains(id));
    assert!(rig.get(&format!("{NO_RUN}/jobs")).problem(404, "unknown-run").contains(id));
    assert!(rig.post(&format!("{NO_RUN}/pause"), &json!({})).problem(404, "unknown-run").contains(id));
    let body = json!({"change": "c"});
    assert!(rig.post(&format!("{NO_RUN}/jobs"), &body).problem(404, "unknown-run").contains(id));
    assert!(rig.get(&format!("/v1/jobs/{id}")).problem(404, "unknown-job").contains(id));
    assert!(rig.get(&format!("/v1/jobs/{id}/verdict")).problem(404, "unknown-job").contains(id));
    assert!(rig.get(&format!("/v1/dev-runs/{id}")).problem(404, "unknown-dev-run").contains(id));
    assert!(rig.get(&format!("/v1/dev-runs/{id}/output")).problem(404, "unknown-dev-run").contains(id));
    assert!(rig.delete(&format!("/v1/dev-runs/{id}")).problem(404, "unknown-dev-run").contains(id));
    let run = rig.run();
    for lane in ["4", "0", "17", "70000"] {
        let answer = rig.post(&format!("{run}/lanes/{lane}/dev-runs"), &json!({"argv": ["try"]}));
        assert!(answer.problem(404, "unknown-lane").contains("lanes 1 to 3"), "{answer:?}");
    }
}

#[test]
fn a_second_run_is_refused_and_names_the_first() {
    let (_folder, rig) = served();
    let run = rig.run();

    let answer = rig.post("/v1/runs", &run_request());

    let detail = answer.problem(409, "another-run");
    assert!(run.ends_with(answer.json()["refusal"]["under_way"].as_str().unwrap()), "{answer:?}");
    assert!(detail.ends_with("end it first"), "{detail}");
}

#[test]
fn what_can_never_run_is_refused_when_asked_for() {
    let (_folder, rig) = served();
    let run = rig.run();
    let dev_runs = format!("{run}/lanes/1/dev-runs");

    assert!(rig.post(&dev_runs, &json!({"argv": []})).problem(422, "empty-command").contains("empty"));
    assert!(rig.post(&dev_runs, &json!({"argv": [""]})).problem(422, "empty-command").contains("empty"));
    assert!(rig.post(&dev_runs, &json!({"argv": ["missing"]})).problem(422, "no-such-program").contains("/bin"));
    let long = json!({"argv": ["try", "x".repeat(limits::COMMAND_BYTES_MAX)]});
    assert!(rig.post(&dev_runs, &long).problem(422, "command-too-long").contains("at most 131072"));
    let many = json!({"argv": vec!["a"; limits::COMMAND_ARGS_MAX + 1]});
    assert!(rig.post(&dev_runs, &many).problem(422, "command-too-long").contains("1025 arguments"));
    let variable = json!({"argv": ["try"], "env": [["A=B", "c"]]});
    assert!(rig.post(&dev_runs, &variable).problem(422, "impossible").contains("an environment variable is A=B=c"));
    rig.post(&format!("{run}/end"), &json!({}));
    let mut missing = run_request();
    missing["champion"] = json!("missing");
    assert!(rig.post("/v1/runs", &missing).problem(422, "repository").contains("revision missing"));
    let mut empty = run_request();
    empty["repo"] = json!("");
    assert!(rig.post("/v1/runs", &empty).problem(422, "impossible").contains("repo is empty"));
}

#[test]
fn a_body_that_is_not_what_the_path_takes_is_named() {
    let (_folder, rig) = served();
    let run = rig.run();
    let jobs = format!("{run}/jobs");

    assert!(rig.post_text(&jobs, &[], "{\"change\": ").problem(400, "bad-request").contains("line 1"));
    assert!(rig.post_text(&jobs, &[], "").problem(400, "bad-request").contains("EOF"));
    assert!(rig.post(&jobs, &json!({"change": 7})).problem(400, "bad-request").contains("expected a string"));
    let extra = rig.post(&jobs, &json!({"change": "c", "champoin": "d"}));
    assert!(extra.problem(400, "bad-request").contains("champoin"), "{extra:?}");
    let text = rig.send("POST", &jobs, &[("content-type", "text/plain")], b"{}");
    assert!(text.problem(415, "not-json").contains("application/json"));
    assert!(rig.get(&format!("{jobs}?limit=0")).problem(400, "bad-request").contains("limit is 0"));
    assert!(rig.get(&format!("{jobs}?limt=3")).problem(400, "bad-request").contains("limt"));
}

#[test]
fn a_body_over_the_limit_is_413_known_beforehand_or_not() {
    let (_folder, rig) = served();
    let run = rig.run();
    let path = format!("{run}/jobs");
    let large = format!("{{\"change\": \"{}\"}}", "x".repeat(limits::REST_BODY_BYTES_MAX));

    let known = rig.post_text(&path, &[], &large);
    let chunk = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let bearer = format!("Bearer {}", rig.token);
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/json"), ("transfer-encoding", "chunked")];
    let mut stream = rig.open("POST", &path, &headers, b"");
    let _ = stream.write_all(chunk.as_bytes());
    let unknown = Answer::read(&all_of(&mut stream));

    assert!(known.problem(413, "too-large").contains("at most 1048576"), "{known:?}");
    assert!(unknown.problem(413, "too-large").contains("more than 1048576"), "{unknown:?}");
}

#[test]
fn a_wrong_method_is_405_and_says_which_are_allowed() {
    let (_folder, rig) = served();
    let id = "00000000-0000-7000-8000-000000000000";
    let paths = [
        ("/healthz".to_owned(), "DELETE", "GET, HEAD"),
        ("/v1/rig".to_owned(), "POST", "GET, HEAD"),
        ("/v1/runs".to_owned(), "DELETE", "GET, HEAD, POST"),
        (NO_RUN.to_owned(), "PUT", "GET, HEAD"),
        (format!("{NO_RUN}/pause"), "GET", "POST"),
        (format!("{NO_RUN}/resume"), "GET", "POST"),
        (format!("{NO_RUN}/end"), "TRACE", "POST"),
        (format!("{NO_RUN}/lanes/1/dev-runs"), "GET", "POST"),
        (format!("{NO_RUN}/jobs"), "PATCH", "GET, HEAD, POST"),
        (format!("/v1/dev-runs/{id}"), "POST", "GET, HEAD, DELETE"),
        (format!("/v1/dev-runs/{id}/output"), "OPTIONS", "GET, HEAD"),
        (format!("/v1/jobs/{id}"), "DELETE", "GET, HEAD"),
        (format!("/v1/jobs/{id}/verdict"), "POST", "GET, HEAD"),
        ("/v1/events".to_owned(), "POST", "GET, HEAD"),
    ];
    for (path, method, allowed) in paths {
        let answer = rig.send(method, &path, &[], b"");
        let detail = answer.problem(405, "method-not-allowed");
        assert_eq!(answer.headers["allow"], allowed, "{method} {path}");
        assert!(detail.contains(allowed), "{detail}");
    }
}

#[test]
fn a_lane_has_one_development_run_and_a_second_is_refused_by_its_name() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (first, path) = rig.ask(&run, 1, false);

    let answer = rig.post(&format!("{run}/lanes/1/dev-runs"), &json!({"argv": ["try"]}));

    assert!(answer.problem(409, "lane-busy").contains(&first.to_string()));
    assert_eq!(answer.json()["refusal"]["under_way"], first.to_string());
    let over = rig.delete(&path);
    assert_eq!(over.status, 200);
    assert_eq!(over.json()["end"], "cancelled");
    assert_eq!(over.json()["note"], "diagnostic only: this number never counts");
    // The answer comes when the lane is free again.
    rig.ask(&run, 1, false);
}

#[test]
fn a_paused_run_takes_no_development_run_until_it_is_resumed() {
    let (_folder, rig) = served();
    let run = rig.run();

    let paused = rig.post(&format!("{run}/pause"), &json!({}));
    let refused = rig.post(&format!("{run}/lanes/1/dev-runs"), &json!({"argv": ["try"]}));
    let seen = rig.get(&run);
    let resumed = rig.send("POST", &format!("{run}/resume"), &[], b"");

    assert_eq!((paused.status, &paused.json()["state"]), (200, &json!("paused")));
    refused.problem(409, "run-paused");
    assert_eq!(seen.json()["state"], "paused");
    assert_eq!((resumed.status, &resumed.json()["state"]), (200, &json!("running")));
    rig.ask(&run, 1, false);
    assert_eq!(rig.get("/v1/runs").json().as_array().unwrap().len(), 1);
}

#[test]
fn asking_twice_with_a_key_is_asking_once_and_with_another_body_it_is_refused() {
    let (_folder, rig) = served();
    let run = rig.run();
    let path = format!("{run}/lanes/1/dev-runs");
    let ask = |key: &str, body: &str| rig.post_text(&path, &[("idempotency-key", key)], body);

    let first = ask("k-1", r#"{"argv": ["try", "it"]}"#);
    let again = ask("k-1", r#"{ "attached": false, "argv": [ "try", "it" ] }"#);
    let other = ask("k-1", r#"{"argv": ["try", "that"]}"#);
    let elsewhere = rig.post_text(&format!("{run}/jobs"), &[("idempotency-key", "k-1")], r#"{"change": "c"}"#);
    let too_long = ask(&"k".repeat(limits::IDEMPOTENCY_KEY_BYTES_MAX + 1), r#"{"argv": ["try"]}"#);
    let blank = ask("two words", r#"{"argv": ["try"]}"#);

    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(again.status, 202, "{again:?}");
    assert_eq!(first.json()["dev_run"], again.json()["dev_run"]);
    assert!(other.problem(409, "key-reused").contains("k-1"));
    elsewhere.problem(409, "key-reused");
    assert!(too_long.problem(400, "bad-request").contains("255"));
    blank.problem(400, "bad-request");
}

#[test]
fn a_key_is_remembered_through_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let key = [("idempotency-key", "k-7")];
    let rig = Served::start(folder.path());
    let first = rig.post_text("/v1/runs", &key, &run_request().to_string());
    rig.end();

    let rig = Served::start(folder.path());
    let again = rig.post_text("/v1/runs", &key, &run_request().to_string());
    let mut other = run_request();
    other["champion"] = json!("another");
    let other = rig.post_text("/v1/runs", &key, &other.to_string());

    assert_eq!((first.status, again.status), (201, 201), "{again:?}");
    assert_eq!(first.json(), again.json());
    other.problem(409, "key-reused");
}

#[test]
fn output_is_read_by_offset_and_a_read_waits_for_what_comes() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (dev_run, path) = rig.ask(&run, 1, false);
    rig.script.started(dev_run);

    let nothing = rig.get(&format!("{path}/output"));
    let waiting = rig.open_get(&format!("{path}/output?wait_ms=30000"));
    rig.script.prints(dev_run, "first\n");
    let first = waiting.answer();
    let none_new = rig.get(&format!("{path}/output?offset=6&wait_ms=1"));
    let waiting = rig.open_get(&format!("{path}/output?offset=6&wait_ms=30000"));
    rig.script.exits(dev_run, 3);
    let end = waiting.answer();
    let again = rig.get(&format!("{path}/output?offset=2&wait_ms=30000"));
    let over = rig.get(&format!("{path}?wait_ms=30000"));

    assert_eq!((nothing.status, nothing.text(), complete(&nothing)), (200, "", "false"));
    assert_eq!((first.text(), complete(&first)), ("first\n", "false"));
    assert_eq!((first.headers["thermite-offset"].as_str(), first.headers["thermite-total"].as_str()), ("0", "6"));
    assert_eq!((none_new.text(), complete(&none_new)), ("", "false"));
    assert_eq!((end.text(), complete(&end)), ("", "true"));
    assert_eq!((again.text(), complete(&again)), ("rst\n", "true"));
    assert_eq!(again.headers["thermite-cut"], "0");
    assert_eq!(over.json()["status"]["end"]["end"], "exited", "{}", over.text());
    assert_eq!(over.json()["status"]["end"]["exit"]["code"], 3);
}

#[test]
fn the_output_of_a_run_that_never_started_ends_with_the_run() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (first, _) = rig.ask(&run, 1, false);
    rig.script.started(first);
    let (_, second) = rig.ask(&run, 2, false);

    let waiting = rig.open_get(&format!("{second}/output?wait_ms=30000"));
    assert_eq!(rig.delete(&second).status, 200);
    let answer = waiting.answer();

    assert_eq!((answer.status, answer.text(), complete(&answer)), (200, "", "true"));
}

#[test]
fn an_attached_run_ends_after_its_callers_stream_dropped_and_a_detached_one_does_not() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (attached, attached_path) = rig.ask(&run, 1, true);
    let (_, detached_path) = rig.ask(&run, 2, false);
    let (_, never_followed) = rig.ask(&run, 3, true);
    rig.script.started(attached);
    for path in [&attached_path, &detached_path] {
        // Goes away in the middle of a wait.
        let stream = rig.open_get(&format!("{path}/output?wait_ms=30000")).0;
        stream.shutdown(Shutdown::Both).unwrap();
    }

    let over = rig.get(&format!("{attached_path}?wait_ms=30000"));

    assert_eq!(over.json()["status"]["end"]["end"], "cancelled", "{}", over.text());
    assert_ne!(rig.get(&detached_path).json()["status"]["status"], "ended");
    let over = rig.get(&format!("{never_followed}?wait_ms=30000"));
    assert_eq!(over.json()["status"]["end"]["end"], "cancelled", "{}", over.text());
}

#[test]
fn an_attached_run_lives_while_it_is_followed_by_one_wait_after_the_other() {
    let (_folder, rig) = served();
    let run = rig.run();
    let (dev_run, path) = rig.ask(&run, 1, true);
    rig.script.started(dev_run);

    // Together longer than a caller may be away.
    for _ in 0..3 {
        let wait = limits::DETACHED_CALLER_MAX.as_millis() / 2;
        let answer = rig.get(&format!("{path}/output?wait_ms={wait}"));
        assert_eq!(complete(&answer), "false");
    }

    assert_eq!(rig.get(&path).json()["status"]["status"], "running");
}

#[test]
fn events_resume_where_a_reader_left_off() {
    let (_folder, rig) = served();
    let mut first = rig.events(None);
    assert_eq!(first.next().name, "ready");
    let run = rig.run();
    let started = first.next_with("recorded", "run_started");
    drop(first);
    rig.post(&format!("{run}/pause"), &json!({}));
    rig.post(&format!("{run}/resume"), &json!({}));

    let mut again = rig.events(Some(&started.id));
    let paused = again.next_with("recorded", "run_changed");
    let resumed = again.next_with("recorded", "run_changed");

    assert_eq!(paused.json["fact"]["state"], "paused");
    assert_eq!(resumed.json["fact"]["state"], "running");
    assert_eq!(number(&resumed.id), resumed.json["id"].as_u64().unwrap());
    assert!(number(&paused.id) > number(&started.id));
}

#[test]
fn a_reader_from_another_life_of_the_rig_is_told_that_it_missed_some() {
    let (_folder, rig) = served();
    rig.run();

    let mut reader = rig.events(Some("0123456789abcdef-5"));

    assert_eq!(reader.next().name, "ready");
    assert_eq!(reader.next().name, "missed");
}

#[test]
fn events_end_with_the_rig() {
    let (_folder, rig) = served();
    let mut reader = rig.events(None);
    assert_eq!(reader.next().name, "ready");

    rig.end();

    while reader.try_next().is_some() {}
}

#[test]
fn a_job_goes_to_its_verdict_and_its_records_verify_byte_for_byte() {
    let (_folder, rig) = served();
    let run = rig.run();
    let mut events = rig.events(None);
    let before = rig.run_champion(&run);

    let submitted = rig.post(&format!("{run}/jobs"), &json!({"change": "faster"}));
    let path = submitted.headers["location"].clone();
    events.next_with("recorded", "job_ended");
    let job = rig.get(&path).json();
    let verdict = rig.get(&format!("{path}/verdict"));
    let screening = rig.get(&format!("{path}/verdict?stage=screening"));
    let confirmation = rig.get(&format!("{path}/verdict?stage=confirmation"));

    assert_eq!(submitted.status, 202, "{submitted:?}");
    assert_eq!(job["status"]["outcome"]["outcome"], "win", "{job}");
    assert_eq!(verdict.status, 200, "{verdict:?}");
    assert_eq!(verdict.body, confirmation.body);
    for record in [&verdict, &screening] {
        verify_json(record.text()).unwrap();
    }
    assert_eq!(verdict.json()["sha256"], job["status"]["record"]);
    assert_eq!(screening.json()["sha256"], job["status"]["screening"]);
    assert_ne!(rig.run_champion(&run), before);
    rig.get(&format!("{path}/verdict?stage=both")).problem(400, "bad-request");
}

#[test]
fn jobs_are_paged_in_the_order_of_asking() {
    let (_folder, rig) = served();
    let run = rig.run();
    rig.post(&format!("{run}/pause"), &json!({}));
    let asked: Vec<Value> = (0..5)
        .map(|n| rig.post(&format!("{run}/jobs"), &json!({"change": format!("same-{n}")})).json()["job"].clone())
        .collect();

    let first = rig.get(&format!("{run}/jobs?limit=2"));
    let link = first.headers["link"].clone();
    let next = link.strip_prefix('<').unwrap().split('>').next().unwrap();
    let second = rig.get(next);
    let rest = rig.get(&format!("{run}/jobs?after={}", asked[3].as_str().unwrap()));

    let ids =
        |answer: &Answer| answer.json().as_array().unwrap().iter().map(|job| job["job"].clone()).collect::<Vec<_>>();
    assert_eq!([ids(&first), ids(&second), ids(&rest)].concat(), asked);
    assert!(link.ends_with("rel=\"next\""), "{link}");
    assert!(!rest.headers.contains_key("link"));
    let path = format!("/v1/jobs/{}/verdict", asked[0].as_str().unwrap());
    assert!(rig.get(&path).problem(404, "not-found").contains("is not over"));
}

#[test]
fn the_whole_rig_is_one_look_and_head_is_a_look_without_a_body() {
    let (_folder, rig) = served();
    rig.run();

    let look = rig.get("/v1/rig").json();
    let head = rig.send("HEAD", "/v1/rig", &[], b"");

    assert_eq!(look["devices"][0]["facts"]["model"], "scripted");
    assert_eq!(look["runs"].as_array().unwrap().len(), 1);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

pub(crate) fn served() -> (tempfile::TempDir, Served) {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    (folder, rig)
}

fn complete(answer: &Answer) -> &str {
    &answer.headers["thermite-complete"]
}

fn number(id: &str) -> u64 {
    id.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// A request that was sent and not answered.
struct Waiting(TcpStream);

impl Waiting {
    fn answer(mut self) -> Answer {
        Answer::read(&all_of(&mut self.0))
    }
}

/// A stream of server-sent events.
struct Events(BufReader<TcpStream>);

#[derive(Debug)]
struct Event {
    name: String,
    id: String,
    json: Value,
}

impl Serving {
    fn open_get(&self, path: &str) -> Waiting {
        let bearer = format!("Bearer {}", self.token);
        Waiting(self.open("GET", path, &[("authorization", &bearer)], b""))
    }

    fn run_champion(&self, run: &str) -> String {
        self.get(run).json()["champion"].as_str().unwrap().to_owned()
    }

    fn events(&self, last: Option<&str>) -> Events {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("last-event-id", last)));
        let mut reader = BufReader::new(self.open("GET", "/v1/events", &headers, b""));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Events(reader)
    }
}

impl Events {
    fn next(&mut self) -> Event {
        self.try_next().expect("the stream goes on")
    }

    /// The next event of that name about that fact.
    fn next_with(&mut self, name: &str, fact: &str) -> Event {
        loop {
            let event = self.next();
            if event.name == name && event.json["fact"]["entry"] == fact {
                return event;
            }
        }
    }

    /// The next event; `None` at the stream's end.
    fn try_next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), id: String::new(), json: Value::Null };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // Chunk sizes and their ends are no fields.
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => {
                    event.json = serde_json::from_str(data).unwrap();
                    return Some(event);
                }
                _ => {}
            }
        }
    }
}
