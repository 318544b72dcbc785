//! Where model files come from: real files, a small HTTP server with ranges, cuts and gaps, and a faked S3 endpoint.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use thermite_actors::host::models::Models;
use thermite_core::contract::ModelFile;
use thermite_core::ids::ContentHash;
use thermite_svc::models::{on_this_machine, with_s3};

/// What every source here has.
fn bytes() -> Vec<u8> {
    (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn model(url: String) -> ModelFile {
    let bytes = bytes();
    let sha256 = ContentHash::new(Sha256::digest(&bytes).into());
    ModelFile { name: "weights".into(), url, sha256, bytes: bytes.len() as u64 }
}

async fn why(models: &Models, model: ModelFile) -> String {
    models.have(&[model]).await.err().expect("it cannot be had")
}

async fn had(models: &Models, model: ModelFile) -> Vec<u8> {
    let in_use = models.have(&[model]).await.unwrap();
    std::fs::read(&in_use.mounts()[0].0).unwrap()
}

#[actix_web::test]
async fn a_file_of_this_machine_is_taken_and_a_missing_one_told() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("the weights");
    std::fs::write(&file, bytes()).unwrap();
    let models = on_this_machine(&place.path().join("data"), 1 << 30).unwrap();
    let url = format!("file://{}/the%20weights", place.path().display());

    let missing = why(&models, model(format!("file://{}/none", place.path().display()))).await;

    assert!(missing.starts_with("model file weights could not be fetched from file://"), "{missing}");
    assert!(missing.contains("not found"), "{missing}");
    assert_eq!(had(&models, model(url)).await, bytes());
}

#[actix_web::test]
async fn a_web_server_that_cuts_is_asked_on_by_range_and_one_without_ranges_from_the_start() {
    let server = Server::start();
    for (path, begins_at) in
        [("whole", vec![0]), ("cut", vec![0, 90_000, 180_000]), ("cut-first-no-ranges", vec![0, 90_000, 0])]
    {
        let place = tempfile::tempdir().unwrap();
        let models = on_this_machine(place.path(), 1 << 30).unwrap();

        let found = had(&models, model(server.url(path))).await;

        assert!(found == bytes(), "{path}: other bytes");
        assert_eq!(server.begun(), begins_at, "{path}");
    }
}

#[actix_web::test]
async fn a_file_that_is_not_there_shorter_or_another_is_told_and_not_kept() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let models = on_this_machine(place.path(), 1 << 30).unwrap();

    let missing = why(&models, model(server.url("none"))).await;
    let forbidden = why(&models, model(server.url("forbidden"))).await;
    let short = why(&models, model(server.url("short"))).await;
    // In a folder of its own: a part goes on wherever its hash is asked from.
    let other = tempfile::tempdir().unwrap();
    let wrong = why(&on_this_machine(other.path(), 1 << 30).unwrap(), model(server.url("wrong"))).await;
    let nobody = why(&models, model("http://127.0.0.1:1/weights".into())).await;

    assert!(missing.contains("not found"), "{missing}");
    assert!(forbidden.contains("403"), "{forbidden}");
    assert!(short.ends_with(": it ended after 150000 of 200000 bytes"), "{short}");
    assert!(wrong.contains("it has the SHA-256 "), "{wrong}");
    assert!(
        nobody.starts_with("model file weights could not be fetched from http://127.0.0.1:1/weights: "),
        "{nobody}"
    );
    assert_eq!(std::fs::read_dir(place.path().join("models/kept")).unwrap().count(), 0);
}

#[actix_web::test]
async fn a_bucket_behind_an_s3_endpoint_is_read_with_its_keys_and_by_range() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let endpoint = format!("http://{}", server.at);
    let s3 = [
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "eu-test-1"),
        ("AWS_ACCESS_KEY_ID", "the-key"),
        ("AWS_SECRET_ACCESS_KEY", "not told to anybody"),
        ("AWS_OF_ANOTHER_PROGRAM", "x"),
    ];
    let s3 = s3.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let models = with_s3(place.path(), 1 << 30, s3).unwrap();

    let found = had(&models, model("s3://bucket/cut".into())).await;
    let missing =
        why(&models, ModelFile { sha256: "ab".repeat(32).parse().unwrap(), ..model("s3://bucket/none".into()) }).await;

    assert!(found == bytes());
    assert_eq!(server.begun(), [0, 90_000, 180_000, 0]);
    assert!(missing.contains("not found"), "{missing}");
    let signed = server.seen.lock().unwrap().iter().all(|head| {
        head.contains("Credential=the-key/") && head.contains("/eu-test-1/s3/") && !head.contains("not told")
    });
    assert!(signed, "{:?}", server.seen.lock().unwrap());
}

/// A web server on loopback whose paths say how it behaves; it ends with the test's process.
struct Server {
    at: SocketAddr,
    /// The heads of what was asked.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { at: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // Whoever asks may go away.
                drop(serve(connection, &seen));
            }
        });
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.at)
    }

    /// From which byte on it was asked, each time since this was last looked at.
    fn begun(&self) -> Vec<u64> {
        let heads = self.seen.lock().unwrap().clone();
        let begun = heads.iter().map(|head| range_of(head).unwrap_or(0)).collect();
        if !heads.iter().any(|head| head.contains("credential"))
            && !heads.iter().any(|head| head.contains("Credential"))
        {
            self.seen.lock().unwrap().clear();
        }
        begun
    }
}

fn range_of(head: &str) -> Option<u64> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("range:"))?;
    line.split_once("bytes=")?.1.trim_end_matches('-').trim().parse().ok()
}

fn serve(mut connection: TcpStream, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = String::new();
    let mut lines = BufReader::new(connection.try_clone()?);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let path = head.split(' ').nth(1).unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
    let from = range_of(&head);
    seen.lock().unwrap().push(head);
    let status = match path.as_str() {
        "none" => Some("404 Not Found"),
        "forbidden" => Some("403 Forbidden"),
        _ => None,
    };
    if let Some(status) = status {
        return write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut bytes = bytes();
    match path.as_str() {
        "short" => bytes.truncate(150_000),
        "wrong" => bytes[77] ^= 1,
        _ => {}
    }
    let has_ranges = path != "cut-first-no-ranges";
    let start = from.filter(|_| has_ranges).unwrap_or(0) as usize;
    if start >= bytes.len() {
        return write!(
            connection,
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let status = if start > 0 { "206 Partial Content" } else { "200 OK" };
    let total = bytes.len();
    let rest = &bytes[start..];
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\r\nConnection: close\r\n",
        rest.len()
    )?;
    if start > 0 {
        write!(connection, "Content-Range: bytes {start}-{}/{total}\r\n", total - 1)?;
    }
    connection.write_all(b"\r\n")?;
    let asked_before = seen.lock().unwrap().len() > 1;
    let most = match path.as_str() {
        "cut" => 90_000,
        "cut-first-no-ranges" if !asked_before => 90_000,
        _ => rest.len(),
    };
    connection.write_all(&rest[..rest.len().min(most)])
}
