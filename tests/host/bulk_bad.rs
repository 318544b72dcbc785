//! Bad transfers: each is a clean no of its own kind, nothing of it is used, and the next good one is taken.

use std::path::Path;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use thermite_actors::host::bulk::TRANSFERS;
use thermite_actors::host::git::Git;
use thermite_core::ids::{ContentHash, RunId};
use thermite_core::limits;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk, BulkNo, Chunk};

use crate::bulk::{Both, block_on, noise};
use crate::repo::{git, write};

#[test]
fn a_chunk_that_is_too_long_beyond_the_end_or_of_another_length_is_refused_and_nothing_is_written() {
    let both = Both::new(&[("a", "1\n")]);
    let name = hash(b"anything");
    let put = |total: u64, from: u64, bytes: usize| {
        let bytes = Chunk(vec![7; bytes]);
        ask(&both, BulkAsk::Put { transfer: name.clone(), total, from, bytes })
    };
    let most = limits::BULK_CHUNK_BYTES_MAX;

    assert_eq!(
        put(1 << 30, 0, most + 1),
        no(BulkNo::TooMuch { what: "a chunk".into(), size: most as u64 + 1, most: most as u64 })
    );
    let size = limits::BULK_TRANSFER_BYTES_MAX + 1;
    assert_eq!(
        put(size, 0, 1),
        no(BulkNo::TooMuch { what: "a transfer".into(), size, most: limits::BULK_TRANSFER_BYTES_MAX })
    );
    assert_eq!(put(10, 8, 3), no(BulkNo::BeyondEnd { end: 11, total: 10 }));
    assert_eq!(put(10, u64::MAX, 3), no(BulkNo::BeyondEnd { end: u64::MAX, total: 10 }));
    // A gap is no fault: what is before it may still come.
    assert_eq!(put(10, 5, 5), BulkAnswer::Stored { length: 0 });
    assert_eq!(both.files(TRANSFERS), 0);
    assert_eq!(put(10, 0, 4), BulkAnswer::Stored { length: 4 });
    assert_eq!(put(11, 4, 4), no(BulkNo::BeyondEnd { end: 11, total: 10 }));
    assert_eq!(put(10, 1, 2), BulkAnswer::Stored { length: 4 }, "what is there stays as it is");
    assert_eq!(put(10, 2, 6), BulkAnswer::Stored { length: 8 }, "and is only added to");
}

#[test]
fn a_transfer_that_is_cut_short_is_not_taken_and_goes_on() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let bundle = bundle_of(&both, &champion, &[]);
    let (first, rest) = bundle.split_at(bundle.len() / 2);

    put(&both, &bundle, 0, first);
    let cut = take(&both, &bundle, &champion);
    put(&both, &bundle, first.len(), rest);
    let whole = take(&both, &bundle, &champion);
    let again = take(&both, &bundle, &champion);

    assert_eq!(cut, no(BulkNo::NotWhole { length: first.len() as u64, total: bundle.len() as u64 }));
    assert_eq!((whole, again), (BulkAnswer::Taken, BulkAnswer::Taken));
}

#[test]
fn a_late_chunk_of_a_transfer_that_was_taken_starts_nothing_and_goes_with_the_leftovers() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let bundle = bundle_of(&both, &champion, &[]);
    put(&both, &bundle, 0, &bundle);
    assert_eq!(take(&both, &bundle, &champion), BulkAnswer::Taken);

    put(&both, &bundle, 0, &bundle[..10]);
    assert_eq!(take(&both, &bundle, &champion), BulkAnswer::Taken, "it is there, whatever lies beside it");

    for other in 0..20_u8 {
        let bytes = Chunk(vec![other; 100]);
        ask(&both, BulkAsk::Put { transfer: hash(&[other]), total: 1_000, from: 0, bytes });
        assert!(both.files(TRANSFERS) <= limits::BULK_LEFTOVERS_MAX);
    }
    assert_eq!(both.files(TRANSFERS), limits::BULK_LEFTOVERS_MAX);
    for entry in std::fs::read_dir(both.runner().join(TRANSFERS)).unwrap() {
        let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3_600)).unwrap();
    }
    ask(&both, BulkAsk::Put { transfer: hash(b"new"), total: 9, from: 0, bytes: Chunk(vec![1]) });
    assert_eq!(both.files(TRANSFERS), 1, "what nobody went on with for a day is gone");
}

#[test]
fn bytes_of_another_hash_are_thrown_away() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let bundle = bundle_of(&both, &champion, &[]);
    let mut other = bundle.clone();
    *other.last_mut().unwrap() ^= 1;
    put(&both, &bundle, 0, &other);

    let answer = take(&both, &bundle, &champion);

    assert_eq!(answer, no(BulkNo::WrongHash { expected: hash(&bundle), found: hash(&other) }));
    assert_eq!(both.files(TRANSFERS), 0);
}

#[test]
fn a_bundle_on_what_is_not_there_says_so_as_often_as_it_is_asked() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");
    let bundle = bundle_of(&both, &candidate, std::slice::from_ref(&champion));
    put(&both, &bundle, 0, &bundle);

    let answers = [take(&both, &bundle, &candidate), take(&both, &bundle, &candidate)];

    assert_eq!(answers, [(); 2].map(|()| no(BulkNo::MissingBase { said: champion.clone() })));
    assert!(!is_there(&both, &candidate));
}

#[test]
fn what_is_no_bundle_of_the_commits_that_were_asked_for_is_thrown_away() {
    let both = Both::new(&[("src/a.c", "1\n"), ("large", &noise(50_000, 9))]);
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");
    let good = bundle_of(&both, &champion, &[]);
    let header_end = good.windows(2).position(|pair| pair == b"\n\n").unwrap() + 2;
    let pack = &good[header_end..];
    let with_header = |header: &str| [header.as_bytes(), b"\n", pack].concat();
    let own = format!("{champion} refs/thermite/keep/{champion}\n");
    let noise = noise(10_000, 10).into_bytes();

    for (what, bundle) in [
        ("nothing", Vec::new()),
        ("noise", noise.clone()),
        ("a header without an end", format!("# v2 git bundle\n{own}").into_bytes()),
        ("a header without end of lines", [b"# v2 git bundle\n".as_slice(), &[b'-'; 100_000]].concat()),
        ("a header that is no text", [b"# v2 git bundle\n\xff\xfe".as_slice(), &good].concat()),
        ("no pack", with_header(&format!("# v2 git bundle\n{own}"))[..header_end].to_vec()),
        ("another version", with_header(&format!("# v9 git bundle\n{own}"))),
        ("another format", with_header(&format!("# v3 git bundle\n@object-format=sha256\n{own}"))),
        ("a filter", with_header(&format!("# v3 git bundle\n@object-format=sha1\n@filter=blob:none\n{own}"))),
        ("no reference", with_header("# v2 git bundle\n")),
        ("a second one", with_header(&format!("# v2 git bundle\n{own}{champion} refs/heads/main\n"))),
        (
            "another commit under its name",
            with_header(&format!("# v2 git bundle\n{candidate} refs/thermite/keep/{champion}\n")),
        ),
        ("a base that is no name", with_header(&format!("# v2 git bundle\n---upload-pack=touch\n{own}"))),
        ("half a pack", good[..good.len() / 2].to_vec()),
        ("a pack of noise", [&good[..header_end], &noise].concat()),
        ("a flipped byte", {
            let mut bundle = good.clone();
            let at = header_end + pack.len() / 2;
            bundle[at] ^= 0x10;
            bundle
        }),
    ] {
        if !bundle.is_empty() {
            put(&both, &bundle, 0, &bundle);
        }
        let answer = take(&both, &bundle, &champion);
        println!("{what}: {answer:?}");
        assert!(matches!(answer, BulkAnswer::No(BulkNo::Unsound { .. })), "{what}: {answer:?}");
        assert_eq!(both.files(TRANSFERS), 0, "{what}");
        assert!(!is_there(&both, &champion), "{what}");
    }
    put(&both, &good, 0, &good);
    assert_eq!(take(&both, &good, &champion), BulkAnswer::Taken);
}

#[test]
fn commits_that_git_finds_unsound_are_not_taken() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let evil = both.repo.folder.path().canonicalize().unwrap().join("evil");
    std::fs::create_dir(&evil).unwrap();
    git(&evil, &["init", "--quiet"]);
    let blob = object(&evil, "blob", b"#!/bin/sh\n");
    let tree_of = |mode: &str, name: &str| {
        let mut tree = format!("{mode} {name}\0").into_bytes();
        tree.extend((0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap()));
        object(&evil, "tree", &tree)
    };
    let commit_of = |tree: &str| {
        let text = format!("tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n");
        object(&evil, "commit", text.as_bytes())
    };

    for (what, mode, name) in [
        ("a way out", "100644", ".."),
        ("git's own folder", "100644", ".git"),
        ("git's own folder for other systems", "100644", ".GIT"),
        ("a name with a slash", "100644", "a/b"),
        ("a link as .gitmodules", "120000", ".gitmodules"),
        ("an empty name", "100644", ""),
    ] {
        let tree = tree_of(mode, name);
        let commit = commit_of(&tree);
        let bundle = packed(&evil, &commit, &[&commit, &tree, &blob]);
        put(&both, &bundle, 0, &bundle);
        let answer = take(&both, &bundle, &commit);
        println!("{what}: {answer:?}");
        assert!(matches!(answer, BulkAnswer::No(BulkNo::Unsound { .. })), "{what}: {answer:?}");
        assert!(!is_there(&both, &commit), "{what}");
    }
    // Sound by itself, and not all there.
    let tree = tree_of("100644", "a");
    let commit = commit_of(&tree);
    let bundle = packed(&evil, &commit, &[&commit, &tree]);
    put(&both, &bundle, 0, &bundle);
    let answer = take(&both, &bundle, &commit);
    println!("a missing file: {answer:?}");
    assert!(matches!(answer, BulkAnswer::No(BulkNo::Unsound { .. })), "{answer:?}");
    let bundle = packed(&evil, &commit, &[&commit, &tree, &blob]);
    put(&both, &bundle, 0, &bundle);
    assert_eq!(take(&both, &bundle, &commit), BulkAnswer::Taken, "the same with all that belongs to it");
}

#[test]
fn a_commit_beyond_what_is_laid_out_is_not_kept() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let file = std::fs::File::create(both.repo.path().join("large")).unwrap();
    file.set_len(limits::COMMIT_FILE_BYTES_MAX + 1).unwrap();
    let large = both.repo.commit("large");
    let bundle = packed_all(&both.repo.path(), &large);
    put(&both, &bundle, 0, &bundle);

    let answer = take(&both, &bundle, &large);

    assert!(matches!(&answer, BulkAnswer::No(BulkNo::Unsound { said }) if said.contains("large is")), "{answer:?}");
    assert!(!is_there(&both, &large));
}

#[test]
fn names_that_are_no_commits_and_too_many_of_them_are_refused() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let tips = |wanted: Vec<String>| ask(&both, BulkAsk::Tips { run: both.run, wanted });

    for odd in ["", "HEAD", "--all", "../x", &champion[..39], &champion.to_uppercase(), &format!("{champion}\n")] {
        let answer = tips(vec![odd.to_owned()]);
        // All digits may be no letters to be in the wrong case.
        assert!(matches!(answer, BulkAnswer::No(BulkNo::Unsound { .. })), "{odd:?}: {answer:?}");
    }
    let mixed = tips(vec![champion.clone(), "d4".repeat(32)]);
    assert!(matches!(mixed, BulkAnswer::No(BulkNo::Unsound { .. })), "{mixed:?}");
    let most = limits::BULK_COMMITS_MAX;
    assert_eq!(
        tips(vec![champion; most + 1]),
        no(BulkNo::TooMuch { what: "commits".into(), size: most as u64 + 1, most: most as u64 })
    );
}

fn ask(both: &Both, ask: BulkAsk) -> BulkAnswer {
    block_on(async { both.net.answer(ask).await })
}

fn no(no: BulkNo) -> BulkAnswer {
    BulkAnswer::No(no)
}

fn hash(bytes: &[u8]) -> ContentHash {
    ContentHash::new(Sha256::digest(bytes).into())
}

/// Puts bytes as a part of the transfer of a bundle.
fn put(both: &Both, bundle: &[u8], from: usize, bytes: &[u8]) {
    for (at, chunk) in bytes.chunks(limits::BULK_CHUNK_BYTES_MAX).enumerate() {
        let from = (from + at * limits::BULK_CHUNK_BYTES_MAX) as u64;
        let (transfer, total) = (hash(bundle), bundle.len() as u64);
        let answer = ask(both, BulkAsk::Put { transfer, total, from, bytes: Chunk(chunk.to_vec()) });
        assert!(matches!(answer, BulkAnswer::Stored { .. }), "{answer:?}");
    }
}

fn take(both: &Both, bundle: &[u8], commit: &str) -> BulkAnswer {
    let take = || BulkAsk::Take {
        transfer: hash(bundle),
        total: bundle.len() as u64,
        run: RunId(uuid::Uuid::from_u128(7)),
        commits: vec![commit.to_owned()],
        cut: vec![commit.to_owned()],
    };
    loop {
        match ask(both, take()) {
            BulkAnswer::Taking => {}
            answer => return answer,
        }
    }
}

fn is_there(both: &Both, commit: &str) -> bool {
    Git::beside(&both.runner()).missing(&[commit.to_owned()]).unwrap().is_empty()
}

/// The bundle that the core makes.
fn bundle_of(both: &Both, commit: &str, on: &[String]) -> Vec<u8> {
    let file = both.repo.folder.path().join(format!("{commit}.bundle"));
    Git::beside(&both.repo.data()).make_bundle(&[commit.to_owned()], on, &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    bytes
}

/// Writes an object as it is, sound or not.
fn object(repo: &Path, kind: &str, bytes: &[u8]) -> String {
    let file = repo.join("object");
    std::fs::write(&file, bytes).unwrap();
    git(repo, &["hash-object", "-t", kind, "-w", "--literally", "--", file.to_str().unwrap()])
}

/// A bundle of a commit with exactly these objects.
fn packed(repo: &Path, commit: &str, objects: &[&str]) -> Vec<u8> {
    bundle(commit, &pack(repo, &["pack-objects", "--stdout", "--quiet"], &(objects.join("\n") + "\n")))
}

/// A bundle of a commit with all that belongs to it.
fn packed_all(repo: &Path, commit: &str) -> Vec<u8> {
    bundle(commit, &pack(repo, &["pack-objects", "--stdout", "--quiet", "--revs"], &format!("{commit}\n")))
}

fn bundle(commit: &str, pack: &[u8]) -> Vec<u8> {
    [format!("# v2 git bundle\n{commit} refs/thermite/keep/{commit}\n\n").as_bytes(), pack].concat()
}

fn pack(repo: &Path, arguments: &[&str], input: &str) -> Vec<u8> {
    write(&repo.join("list"), input);
    let list = std::fs::File::open(repo.join("list")).unwrap();
    let out = Command::new("git").args(arguments).current_dir(repo).stdin(list).stderr(Stdio::inherit()).output();
    let out = out.unwrap();
    assert!(out.status.success());
    out.stdout
}
