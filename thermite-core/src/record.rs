//! The verdict record: everything needed to recompute a verdict bit for bit (rule D9).

use serde::{Deserialize, Serialize};

/// One stage's record: fixed before its first block, filled block by block, closed with a hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictRecord {
    /// The version of this layout.
    pub schema: u32,
}

/// 64-bit integers as text, so that no JSON reader rounds them.
pub mod u64_text_option {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the number as text, or null.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// Reads the number from text, or null.
    ///
    /// # Errors
    /// Where the text is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// Four 64-bit integers as text.
pub mod u64_text_array {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the numbers as text.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(value: &[u64; 4], serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|ns| ns.to_string()).serialize(serializer)
    }

    /// Reads the numbers from text.
    ///
    /// # Errors
    /// Where a text is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; 4], D::Error> {
        let text = <[String; 4]>::deserialize(deserializer)?;
        let mut ns = [0; 4];
        for (ns, text) in ns.iter_mut().zip(text) {
            *ns = text.parse().map_err(serde::de::Error::custom)?;
        }
        Ok(ns)
    }
}
