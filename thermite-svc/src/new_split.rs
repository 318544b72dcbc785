//! A split as it is asked for over HTTP: a [`SplitAsk`], with nothing beside it that would be passed over.

use serde::{Deserialize, Deserializer, Serialize};
use thermite_core::split::SplitAsk;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The body of `PUT /v1/split`, and `gpus` of a rig's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Words")]
pub struct NewSplit(pub SplitAsk);

/// What it may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    split: Kind,
    judge: Option<Vec<String>>,
    agents: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Default,
    Shared,
    Cards,
}

impl TryFrom<Words> for NewSplit {
    type Error = &'static str;

    fn try_from(words: Words) -> Result<NewSplit, &'static str> {
        let Words { split, judge, agents } = words;
        let ask = match (split, judge, agents) {
            (Kind::Default, None, None) => SplitAsk::Default,
            (Kind::Shared, None, None) => SplitAsk::Shared,
            (Kind::Cards, Some(judge), Some(agents)) => SplitAsk::Cards { judge, agents },
            (Kind::Cards, None, _) => return Err("`cards` needs `judge`, a list of UUIDs"),
            (Kind::Cards, Some(_), None) => return Err("`cards` needs `agents`, a list of UUIDs"),
            (Kind::Default | Kind::Shared, _, _) => return Err("`judge` and `agents` go with `cards` alone"),
        };
        Ok(NewSplit(ask))
    }
}

/// For a field that may be left out.
pub(crate) fn if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SplitAsk>, D::Error> {
    Ok(Option::<NewSplit>::deserialize(deserializer)?.map(|NewSplit(ask)| ask))
}

impl PartialSchema for NewSplit {
    /// The core's description, each kind closed: what is not in it is refused.
    fn schema() -> RefOr<Schema> {
        let mut schema = SplitAsk::schema();
        if let RefOr::T(Schema::OneOf(kinds)) = &mut schema {
            for kind in &mut kinds.items {
                if let RefOr::T(Schema::Object(object)) = kind {
                    object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
                }
            }
        }
        schema
    }
}

impl ToSchema for NewSplit {}
