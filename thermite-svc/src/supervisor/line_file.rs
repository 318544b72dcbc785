//! A file of lines that grows at its end and is never in doubt: each line is durable before it counts, and what was being
//! written when the process or the machine died is cut off at the next start.
//!
//! A line is the first 16 hex digits of its text's SHA-256, a space, the text, a newline. A last line that is not whole was
//! being written and never counted; any other that does not hold is a fault: less was read than was said to be durable.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use thermite_actors::host::hex;
use thermite_core::limits;

/// A file of lines, open for more.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    file: File,
    /// How far it is whole: what stands behind is what a failed write left.
    whole: u64,
}

impl LineFile {
    /// Opens the file, or makes it; gives the lines in it, and how many bytes of a torn one were cut off.
    ///
    /// # Errors
    /// Where the file cannot be had, or a line that was durable does not hold.
    pub fn open(path: &Path) -> io::Result<(LineFile, Vec<String>, u64)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        sync_folder(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (lines, whole) = read(&bytes).map_err(|at| {
            let said =
                format!("{} is damaged at byte {at}: a line that was written whole does not hold", path.display());
            io::Error::new(io::ErrorKind::InvalidData, said)
        })?;
        let torn = bytes.len() as u64 - whole;
        let mut opened = LineFile { path: path.to_owned(), file, whole };
        if torn > 0 {
            opened.cut()?;
        }
        Ok((opened, lines, torn))
    }

    /// Writes lines at the end; they are durable when this comes back. All of them count, or none.
    ///
    /// # Errors
    /// Where the disk does not take them: the file is as it was before.
    pub fn append<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let bytes = written(lines)?;
        // What a failed try left is taken off first, so that nothing ever stands between two lines that count.
        self.cut()?;
        let took = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        match took {
            Ok(()) => {
                self.whole += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Where this fails too, the next append begins with it.
                let _ = self.cut();
                Err(error)
            }
        }
    }

    /// Puts lines in place of all there are, at once and durably.
    ///
    /// # Errors
    /// Where the disk does not take them: the file is as it was before.
    pub fn replace<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let bytes = written(lines)?;
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        self.file = file;
        self.whole = bytes.len() as u64;
        sync_folder(&self.path)
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() != self.whole {
            self.file.set_len(self.whole)?;
            self.file.sync_data()?;
        }
        self.file.seek(SeekFrom::Start(self.whole)).map(drop)
    }
}

/// The lines that hold, and where they end; the place of a line that does not hold and is not the last.
fn read(bytes: &[u8]) -> Result<(Vec<String>, u64), u64> {
    let mut lines = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') else { break };
        let Some(text) = text_of(&bytes[at..at + end]) else {
            // A torn write may have any bytes in it, newlines too: only what follows and holds tells that it is not one.
            let follows = bytes[at..].split(|byte| *byte == b'\n').skip(1).any(|line| text_of(line).is_some());
            return if follows { Err(at as u64) } else { Ok((lines, at as u64)) };
        };
        lines.push(text.to_owned());
        at += end + 1;
    }
    Ok((lines, at as u64))
}

fn text_of(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (sum == checksum(text)).then_some(text)
}

fn written<'a>(lines: impl IntoIterator<Item = &'a str>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        if line.contains('\n') || line.len() > limits::JOURNAL_LINE_BYTES_MAX {
            let said = format!("a line of {} bytes, or of several lines, cannot be kept", line.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
        }
        bytes.extend_from_slice(checksum(line).as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    Ok(bytes)
}

fn checksum(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

/// A new name in a folder is durable when the folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_there_again_in_their_order_and_new_ones_stand_in_place_of_old() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut file, none, _) = LineFile::open(&path).unwrap();
        file.append(["one", "two"]).unwrap();
        file.append(["three"]).unwrap();

        let (_, lines, torn) = LineFile::open(&path).unwrap();
        file.replace(["three"]).unwrap();
        file.append(["four"]).unwrap();
        let (_, after, _) = LineFile::open(&path).unwrap();

        assert!(none.is_empty());
        assert_eq!((lines, torn), (vec!["one".into(), "two".into(), "three".into()], 0));
        assert_eq!(after, ["three", "four"]);
    }

    #[test]
    fn a_last_line_that_is_cut_anywhere_is_none_and_what_follows_stands_behind_whole_ones() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut file, _, _) = LineFile::open(&path).unwrap();
        file.append(["first"]).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        file.append(["second, and a little longer"]).unwrap();
        let whole = std::fs::read(&path).unwrap();

        for length in before..whole.len() as u64 {
            std::fs::write(&path, &whole[..length as usize]).unwrap();
            let (mut file, lines, torn) = LineFile::open(&path).unwrap();
            assert_eq!((lines, torn), (vec!["first".to_owned()], length - before));
            file.append(["third"]).unwrap();
            assert_eq!(LineFile::open(&path).unwrap().1, ["first", "third"]);
        }
    }

    #[test]
    fn a_last_line_of_any_bytes_is_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut file, _, _) = LineFile::open(&path).unwrap();
        file.append(["first"]).unwrap();
        let whole = std::fs::read(&path).unwrap();

        for torn in [&b"\0\0\0\0\n\0\0"[..], b"\n", b"0123456789abcdef text\n", b"\xff\xfe\n\n\n"] {
            std::fs::write(&path, [&whole, torn].concat()).unwrap();
            let (_, lines, cut) = LineFile::open(&path).unwrap();
            assert_eq!((lines, cut), (vec!["first".to_owned()], torn.len() as u64));
        }
    }

    #[test]
    fn a_line_that_counted_and_does_not_hold_is_never_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut file, _, _) = LineFile::open(&path).unwrap();
        file.append(["first", "second"]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[18] ^= 1;
        std::fs::write(&path, &bytes).unwrap();

        let fault = LineFile::open(&path).unwrap_err();

        assert!(fault.to_string().contains("is damaged at byte 0"), "{fault}");
    }

    #[test]
    fn what_would_be_several_lines_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut file, _, _) = LineFile::open(&path).unwrap();

        assert!(file.append(["one\ntwo"]).is_err());

        file.append(["three"]).unwrap();
        assert_eq!(LineFile::open(&path).unwrap().1, ["three"]);
    }
}
