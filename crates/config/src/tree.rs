//! The raw configuration: a tree of texts with places, the same for YAML and flags. It knows no option and no type; a value
//! stays as it was written (`0123`, `yes`, `1e5`) until an option says what it must be.

use crate::source::Place;

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
    /// The text holds the value of an environment variable: it is not repeated in messages.
    pub(crate) interpolated: bool,
}

#[derive(Clone)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`: as if the key were not there.
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) place: Place,
}

impl Node {
    pub(crate) fn text(place: Place, text: impl Into<String>) -> Self {
        Self {
            place,
            value: Value::Text(text.into()),
            interpolated: false,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// What one writes to say that one does not want an option.
    pub(crate) fn is_off(&self) -> bool {
        matches!(&self.value, Value::Text(text) if matches!(text.as_str(), "" | "false" | "0"))
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Text(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(k, _)| k.text == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }
}
