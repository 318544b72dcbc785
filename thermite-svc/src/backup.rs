//! Taking a backup of a data folder, and making a data folder of one.
//!
//! A backup is one file: the database as it was at one moment, whether or not a rig was writing it, with the git stores
//! and the list of worktrees packed into tables of their own. The owner's token is not in it (its hash is): the restored
//! rig makes a new one. Outputs of development runs and the input log are not in it: they are diagnostics.
//!
//! A restored rig has forgotten what happened after the backup was taken. The numbers of its holds and arrivals jump
//! ahead by more than can have been given out since, so that none is given out twice (rule A1).

use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use thermite_actors::host::git::Git;
use thermite_actors::host::workspaces::TREES;
use thermite_core::log::LogEntry;
use thermite_core::record;
use thermite_core::texts;

use crate::folder::LOCK;
use crate::records::{self, OpenFault, RecordsReader};

/// What a file of a store is split into: a row stays far below what SQLite takes.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// How far numbers jump ahead beyond one for each millisecond since the last entry.
const NUMBERS_MARGIN: u64 = 1_000_000;

const TABLES: &str = "
    CREATE TABLE backup (made_ms INTEGER NOT NULL, program TEXT NOT NULL);
    CREATE TABLE backup_stores (format TEXT PRIMARY KEY, kept TEXT NOT NULL, shallow TEXT NOT NULL);
    CREATE TABLE backup_files (name TEXT NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, part));
";

/// It did not work; the sentence names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum BackupFault {
    /// There is nothing to take, or it cannot be read.
    #[error(transparent)]
    Records(#[from] OpenFault),
    /// Something is there already.
    #[error("{} is there already; {way_out}", file.display())]
    There {
        /// What.
        file: PathBuf,
        /// What to do.
        way_out: &'static str,
    },
    /// It is no backup.
    #[error("{} is no backup of thermite's: {why}", file.display())]
    NoBackup {
        /// The file.
        file: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// What is in it is not what was put in.
    #[error("backup {} is damaged: {why}; take another one", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        why: String,
    },
    /// The disk, SQLite or git said no.
    #[error("{what} failed: {why}")]
    Failed {
        /// What was tried.
        what: String,
        /// The cause.
        why: String,
    },
}

/// A backup that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The file.
    pub file: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// Entries of the log in it.
    pub entries: u64,
    /// Verdict records in it.
    pub verdicts: u64,
    /// Commits in it.
    pub commits: u64,
}

/// A data folder that was made of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The folder.
    pub folder: PathBuf,
    /// When the backup was taken: milliseconds since 1970.
    pub made_ms: u64,
    /// Verdict records, each recomputed.
    pub verdicts: u64,
    /// How far numbers jump ahead.
    pub numbers_skipped: u64,
}

/// Takes a backup of the data folder `folder`, whose rig may be running, to a new file, or into a folder that is there.
///
/// # Errors
/// Where there is nothing to take, the file is there already, or the disk or git says no. Nothing half done is left.
pub fn take(folder: &Path, to: &Path, wall_ms: u64) -> Result<Taken, BackupFault> {
    let file = if to.is_dir() {
        to.join(format!("thermite-{}-{}.backup", texts::day(wall_ms), wall_ms % 86_400_000))
    } else {
        to.to_owned()
    };
    if file.exists() {
        return Err(BackupFault::There { file, way_out: "name a new file" });
    }
    // Refuses what is no rig's folder, and another layout.
    drop(RecordsReader::open(folder)?);
    let new = beside(&file, "new");
    let outcome = take_to(folder, &new, wall_ms).and_then(|counted| {
        let done = fs::File::open(&new).and_then(|made| made.sync_all()).and_then(|()| fs::rename(&new, &file));
        done.map_err(failed(format!("writing {}", file.display())))?;
        Ok(counted)
    });
    let (entries, verdicts, commits) = match outcome {
        Ok(counted) => counted,
        Err(fault) => {
            let _none = fs::remove_file(&new);
            return Err(fault);
        }
    };
    let bytes = fs::metadata(&file).map_or(0, |about| about.len());
    Ok(Taken { file, bytes, entries, verdicts, commits })
}

fn take_to(folder: &Path, new: &Path, wall_ms: u64) -> Result<(u64, u64, u64), BackupFault> {
    let writing = format!("writing {}", new.display());
    // Empty and private before anything is in it.
    let _none = fs::remove_file(new);
    let made = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(new);
    made.map_err(failed(writing.clone()))?;
    let path = new
        .to_str()
        .ok_or_else(|| BackupFault::Failed { what: writing.clone(), why: "its path is not UTF-8".to_owned() })?;
    let database = folder.join(records::FILE);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source =
        Connection::open_with_flags(&database, flags).map_err(failed(format!("opening {}", database.display())))?;
    // One transaction of a reader: a moment of the database, whole, whoever writes meanwhile.
    source.execute("VACUUM INTO ?1", [path]).map_err(failed(writing.clone()))?;
    drop(source);
    let mut copy = Connection::open(new).map_err(failed(writing.clone()))?;
    let sqlite = failed(writing.clone());
    copy.execute_batch("PRAGMA synchronous = FULL").map_err(sqlite)?;
    // After the database: whatever it refers to is kept by then.
    let scratch =
        tempfile::tempdir_in(new.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")));
    let scratch = scratch.map_err(failed(writing.clone()))?;
    let stores = Git::beside(folder).take_whole(scratch.path());
    let stores = stores.map_err(failed("packing the commits".to_owned()))?;
    let mut commits = 0;
    let transaction = copy.transaction().map_err(failed(writing.clone()))?;
    let put = || -> Result<(), Box<dyn std::error::Error>> {
        transaction.execute_batch(TABLES)?;
        transaction.execute(
            "INSERT INTO backup (made_ms, program) VALUES (?1, ?2)",
            (wall_ms.cast_signed(), env!("CARGO_PKG_VERSION")),
        )?;
        for store in &stores {
            transaction.execute(
                "INSERT INTO backup_stores (format, kept, shallow) VALUES (?1, ?2, ?3)",
                (&store.object_format, store.kept.join("\n"), &store.shallow),
            )?;
            if let Some(pack) = &store.pack {
                put_file(&transaction, &store.object_format, pack)?;
            }
        }
        if folder.join(TREES).exists() {
            put_file(&transaction, TREES, &folder.join(TREES))?;
        }
        Ok(())
    };
    put().map_err(failed(writing.clone()))?;
    for store in &stores {
        commits += store.kept.len() as u64;
    }
    let count =
        |table: &str| transaction.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get::<_, i64>(0));
    let entries = count("log").map_err(failed(writing.clone()))?.cast_unsigned();
    let verdicts = count("verdicts").map_err(failed(writing.clone()))?.cast_unsigned();
    transaction.commit().map_err(failed(writing.clone()))?;
    copy.close().map_err(|(_, error)| failed(writing)(error))?;
    Ok((entries, verdicts, commits))
}

fn put_file(transaction: &Connection, name: &str, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut from = fs::File::open(file)?;
    let mut put = transaction.prepare("INSERT INTO backup_files (name, part, body) VALUES (?1, ?2, ?3)")?;
    for part in 0_i64.. {
        let mut bytes = Vec::new();
        Read::by_ref(&mut from).take(PART_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        put.execute((name, part, bytes))?;
    }
    Ok(())
}

/// Makes the data folder `folder`, new or empty, of the backup in `file`.
///
/// # Errors
/// Where the folder is not empty, the file is no backup, a newer program's or damaged, or the disk says no. The folder is
/// made whole or not at all.
pub fn restore(file: &Path, folder: &Path, wall_ms: u64) -> Result<Restored, BackupFault> {
    let is_empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed(format!("looking into {}", folder.display()))(error)),
    };
    if !is_empty {
        return Err(BackupFault::There { file: folder.to_owned(), way_out: "name a new or empty folder" });
    }
    let checked = Checked::open(file)?;
    let verdicts = checked.verdicts()?;
    let building = beside(folder, "restoring");
    let _none = fs::remove_dir_all(&building);
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&building);
    made.map_err(failed(format!("making {}", building.display())))?;
    let outcome = checked.build(&building, wall_ms).and_then(|skipped| {
        fs::rename(&building, folder).map_err(failed(format!("putting {} in its place", folder.display())))?;
        Ok(skipped)
    });
    match outcome {
        Ok(numbers_skipped) => {
            Ok(Restored { folder: folder.to_owned(), made_ms: checked.made_ms, verdicts, numbers_skipped })
        }
        Err(fault) => {
            let _stays = fs::remove_dir_all(&building);
            Err(fault)
        }
    }
}

/// A backup whose pages hold.
struct Checked {
    file: PathBuf,
    connection: Connection,
    made_ms: u64,
}

impl Checked {
    fn open(file: &Path) -> Result<Checked, BackupFault> {
        let no_backup = |why: &str| BackupFault::NoBackup { file: file.to_owned(), why: why.to_owned() };
        let damaged = |why: String| BackupFault::Damaged { file: file.to_owned(), why };
        if !file.is_file() {
            return Err(no_backup("there is no such file"));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags).map_err(|error| no_backup(&error.to_string()))?;
        let folder = file.parent().unwrap_or(file);
        if records::layout_of(&connection, folder, file)? == 0 {
            return Err(no_backup("it is empty"));
        }
        let said = connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get::<_, String>(0));
        match said {
            Ok(said) if said == "ok" => {}
            Ok(said) => return Err(damaged(said)),
            Err(error) => return Err(damaged(error.to_string())),
        }
        let made = connection.query_row("SELECT made_ms FROM backup", (), |row| row.get::<_, i64>(0)).optional();
        match made {
            Ok(Some(made_ms)) => Ok(Checked { file: file.to_owned(), connection, made_ms: made_ms.cast_unsigned() }),
            Ok(None) => Err(damaged("it does not say when it was taken".to_owned())),
            Err(_) => Err(no_backup("it is a data folder's own database; take a backup with `thermite backup`")),
        }
    }

    fn damaged(&self, why: impl std::fmt::Display) -> BackupFault {
        BackupFault::Damaged { file: self.file.clone(), why: why.to_string() }
    }

    /// Recomputes every verdict from its record (rule D9); gives how many there are.
    fn verdicts(&self) -> Result<u64, BackupFault> {
        let mut query =
            self.connection.prepare("SELECT hash, body FROM verdicts").map_err(|error| self.damaged(error))?;
        let mut rows = query.query(()).map_err(|error| self.damaged(error))?;
        let mut verdicts = 0;
        while let Some(row) = rows.next().map_err(|error| self.damaged(error))? {
            let read = |at| row.get::<_, String>(at).map_err(|error| self.damaged(error));
            let (hash, body) = (read(0)?, read(1)?);
            let found = record::verify_json(&body)
                .map_err(|why| self.damaged(format!("verdict record {hash} does not hold: {why}")))?;
            if found.sha256 != hash {
                return Err(self.damaged(format!("verdict record {hash} closes with {}", found.sha256)));
            }
            verdicts += 1;
        }
        Ok(verdicts)
    }

    fn build(&self, folder: &Path, wall_ms: u64) -> Result<u64, BackupFault> {
        let file = folder.join(records::FILE);
        let writing = format!("writing {}", file.display());
        let path = file
            .to_str()
            .ok_or_else(|| BackupFault::Failed { what: writing.clone(), why: "its path is not UTF-8".to_owned() })?;
        self.connection.execute("VACUUM INTO ?1", [path]).map_err(failed(writing.clone()))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(failed(writing.clone()))?;
        let skipped = self.skip_numbers(&file, wall_ms).map_err(failed(writing))?;
        self.bring_commits(folder)?;
        if self.has_file(TREES)? {
            let trees = folder.join(TREES);
            self.write_file(TREES, &trees)?;
        }
        // The mark of a rig's folder, so that a rig takes it.
        let lock = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(folder.join(LOCK));
        lock.map_err(failed(format!("writing {}", folder.join(LOCK).display())))?;
        Ok(skipped)
    }

    /// Takes the backup's own tables out and says in the log that this is a restored folder.
    fn skip_numbers(&self, file: &Path, wall_ms: u64) -> rusqlite::Result<u64> {
        let mut connection = Connection::open(file)?;
        let transaction = connection.transaction()?;
        transaction.execute_batch("DROP TABLE backup; DROP TABLE backup_stores; DROP TABLE backup_files")?;
        let last: Option<i64> = transaction.query_row("SELECT max(wall_ms) FROM log", (), |row| row.get(0))?;
        // A hold takes more than a millisecond, and an asking is made durable before the next of its lane.
        let since = wall_ms.saturating_sub(last.unwrap_or(0).cast_unsigned().min(self.made_ms));
        let numbers_skipped = since + NUMBERS_MARGIN;
        let body = serde_json::to_string(&LogEntry::RigRestored { numbers_skipped })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        transaction.execute(
            "INSERT INTO log (wall_ms, kind, body) VALUES (?1, 'rig_restored', ?2)",
            (wall_ms.cast_signed(), body),
        )?;
        transaction.commit()?;
        Ok(numbers_skipped)
    }

    fn bring_commits(&self, folder: &Path) -> Result<(), BackupFault> {
        let what = || "bringing the commits back".to_owned();
        let git = Git::begin(folder).map_err(failed(what()))?;
        let scratch = tempfile::tempdir_in(folder).map_err(failed(what()))?;
        let mut query = self
            .connection
            .prepare("SELECT format, kept, shallow FROM backup_stores")
            .map_err(|error| self.damaged(error))?;
        let mut rows = query.query(()).map_err(|error| self.damaged(error))?;
        while let Some(row) = rows.next().map_err(|error| self.damaged(error))? {
            let read = |at| row.get::<_, String>(at).map_err(|error| self.damaged(error));
            let (format, kept, shallow) = (read(0)?, read(1)?, read(2)?);
            let kept: Vec<String> = kept.lines().map(str::to_owned).collect();
            let pack = scratch.path().join("pack");
            let has_pack = self.has_file(&format)?;
            if has_pack {
                self.write_file(&format, &pack)?;
            }
            git.bring_whole(&format, &kept, &shallow, has_pack.then_some(pack.as_path())).map_err(failed(what()))?;
        }
        Ok(())
    }

    fn has_file(&self, name: &str) -> Result<bool, BackupFault> {
        let found =
            self.connection.query_row("SELECT 1 FROM backup_files WHERE name = ?1", [name], |_| Ok(())).optional();
        Ok(found.map_err(|error| self.damaged(error))?.is_some())
    }

    fn write_file(&self, name: &str, to: &Path) -> Result<(), BackupFault> {
        let writing = || format!("writing {}", to.display());
        let mut file = fs::File::create(to).map_err(failed(writing()))?;
        let mut query = self
            .connection
            .prepare("SELECT body FROM backup_files WHERE name = ?1 ORDER BY part")
            .map_err(|error| self.damaged(error))?;
        let mut rows = query.query([name]).map_err(|error| self.damaged(error))?;
        while let Some(row) = rows.next().map_err(|error| self.damaged(error))? {
            let body = row.get_ref(0).map_err(|error| self.damaged(error))?;
            let bytes = body.as_blob().map_err(|error| self.damaged(error))?;
            std::io::Write::write_all(&mut file, bytes).map_err(failed(writing()))?;
        }
        file.sync_all().map_err(failed(writing()))
    }
}

/// Beside `path`, with one more ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn failed<E: std::fmt::Display>(what: String) -> impl FnOnce(E) -> BackupFault {
    move |error| BackupFault::Failed { what, why: error.to_string() }
}
