//! JSON in which no name stands twice: the usual parser would keep the last and lose a condition without a word.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, schema::Schema},
};

/// A filter as it is sent in, not checked yet.
#[derive(Clone, Debug)]
pub struct Written(pub Value);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WrittenVisitor).map(Written)
    }
}

impl PartialSchema for Written {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .description(Some("Paths into the event and the conditions on what is there; all of them must hold."))
            .examples([json!({"data.amount": {"gte": 100}, "data.country": ["DE", "FR"], "data.test": false})])
            .into()
    }
}

impl ToSchema for Written {
    fn name() -> Cow<'static, str> {
        "Filter".into()
    }
}

struct WrittenVisitor;

impl<'de> Visitor<'de> for WrittenVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter such as {\"data.amount\": {\"gte\": 100}}")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Written(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!(
                    "{name:?} stands twice in one object: write its conditions together, such as {{\"gte\": 1, \"lt\": 9}}"
                )));
            }
            let Written(value) = fields.next_value()?;
            values.insert(name, value);
        }
        Ok(values.into())
    }
}
