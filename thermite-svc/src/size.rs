//! Sizes as people write them: `20GiB`, `500 MB`, `1048576`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A text that is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a size, such as 20GiB, 500MB or 1048576")]
pub struct NoSize;

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for Size {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Size, NoSize> {
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NoSize)?;
        let number: u64 = number.parse().map_err(|_| NoSize)?;
        number.checked_mul(*factor).map(Size).ok_or(NoSize)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = match self.0 {
            0..1_024 => return write!(f, "{} bytes", self.0),
            1_024..1_048_576 => ("KiB", 1_u64 << 10),
            1_048_576..1_073_741_824 => ("MiB", 1 << 20),
            _ => ("GiB", 1 << 30),
        };
        write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("20GiB", 20 << 30), ("500 MB", 500_000_000), ("1048576", 1 << 20), ("64kib", 64 << 10)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "GiB", "20 gigs", "-1", "1.5GiB", "99999999999TiB"] {
            assert_eq!(text.parse::<Size>(), Err(NoSize), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_their_largest_unit() {
        let shown = [0, 1_023, 1_536, 5 << 20, 20 << 30].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "20.0 GiB"]);
    }
}
