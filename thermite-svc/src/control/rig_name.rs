//! A rig's name as control keeps and says it, and the subjects that are control's.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thermite_core::wire::ProcessName;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

use crate::bus::subjects::RigName;

impl RigName {
    /// All subjects of one runner process: what its supervisor may use, and nothing else (rule E7).
    pub fn all_of(&self, process: &ProcessName) -> String {
        format!("rig.{self}.runner.{process}.>")
    }

    /// All subjects of the rig: what its core may use.
    pub fn all(&self) -> String {
        format!("rig.{self}.>")
    }

    /// Where the core says what its rig looks like.
    pub fn report(&self) -> String {
        format!("rig.{self}.report")
    }

    /// Where control gives settings.
    pub fn settings(&self) -> String {
        format!("rig.{self}.settings")
    }
}

impl Serialize for RigName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RigName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RigName, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl PartialSchema for RigName {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
        text.pattern(Some("^[a-z0-9-]{2,64}$")).examples(["lab"]).into()
    }
}

impl ToSchema for RigName {}
