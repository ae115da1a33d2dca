//! The JSON schema (draft 2020-12) of configuration files, made from the option tables, for editors.

use serde_json::{Map, Value, json};

use crate::options::{CLIENT, Kind, Opt, PROXY_FILE, SERVER, Status, Table};

/// The schema of server, client and proxy files.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    let server = reference(&SERVER, &mut definitions);
    let client = reference(&CLIENT, &mut definitions);
    let proxy = reference(&PROXY_FILE, &mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gt configuration",
        "anyOf": [server, client, proxy],
        "$defs": definitions,
    })
}

/// A reference to the schema of a table, which is put into `definitions` when it is not there.
fn reference(table: &'static Table, definitions: &mut Map<String, Value>) -> Value {
    let name = table.name.replace(' ', "-");
    if !definitions.contains_key(&name) {
        // Before its options, which may refer to it.
        definitions.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        let mut patterns = Map::new();
        for option in table.options {
            let value = describe(option, definitions);
            match option.name.strip_suffix('*') {
                Some(stem) => patterns.insert(format!("^{stem}"), value),
                None => properties.insert(option.name.into(), value),
            };
        }
        let mut schema = json!({
            "type": ["object", "null"],
            "properties": properties,
            "additionalProperties": false,
        });
        if !patterns.is_empty() {
            schema["patternProperties"] = patterns.into();
        }
        definitions.insert(name.clone(), schema);
    }
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn describe(option: &Opt, definitions: &mut Map<String, Value>) -> Value {
    let one = match option.status {
        Status::Built => kind(option.kind, definitions),
        Status::Ignored => json!({}),
    };
    // What a variable holds is not known here, so `${NAME}` fits everywhere; and so does nothing at all.
    let mut forms = vec![
        one.clone(),
        json!({ "type": "string", "pattern": r"\$\{" }),
        json!({ "type": "null" }),
    ];
    if option.list {
        forms.push(json!({ "type": "array", "items": { "anyOf": forms.clone() } }));
    }
    let mut schema = if option.status == Status::Built {
        json!({ "anyOf": forms })
    } else {
        one
    };
    let status = match option.status {
        Status::Built => "",
        Status::Ignored => " Not in this build: ignored.",
    };
    schema["description"] = format!("{}{status}", option.help).into();
    if !option.default.is_empty() {
        schema["default"] = option.default.into();
    }
    schema
}

fn kind(kind: Kind, definitions: &mut Map<String, Value>) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match kind {
        Kind::Bool => json!({ "enum": [true, false, "true", "false", "yes", "no", "on", "off"] }),
        Kind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Duration { zero, .. } => {
            let units = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$";
            if zero {
                json!({ "anyOf": [text(units), { "const": 0 }, { "const": "0" }] })
            } else {
                text(units)
            }
        }
        Kind::Speed | Kind::Size => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            text(r"^[0-9]+ ?([kKmMgGtT][iI]?)?[bB]?(/s)?$"),
        ]}),
        Kind::Listen { .. } => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": 65535 },
            text(r"^$|^[0-9]{1,5}$|^[0-9a-fA-F.:\[\]%]*:[0-9]{1,5}$"),
        ]}),
        Kind::Port => json!({ "type": "integer", "minimum": 0, "maximum": 65535 }),
        Kind::PortRange => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65535 },
            text("^[0-9]{1,5} *(- *[0-9]{1,5})?$"),
        ]}),
        Kind::Secret => json!({ "anyOf": [
            { "type": ["string", "number"] },
            { "type": "object", "properties": { "file": { "type": "string" } }, "required": ["file"], "additionalProperties": false },
        ]}),
        Kind::Remote => text("^(tcp|tls|ws|wss|quic|kcp|auto)://"),
        Kind::Local => text("^((http|https|tcp|udp)://|unix:|builtin:(demo|status)$)"),
        Kind::Url => text("^https?://"),
        // A word such as 1.2 is a number to YAML.
        Kind::Choice(words) => {
            let numbers = words.iter().filter_map(|word| word.parse::<f64>().ok());
            let all: Vec<Value> = words
                .iter()
                .map(|word| json!(word))
                .chain(numbers.map(|n| json!(n)))
                .collect();
            json!({ "enum": all })
        }
        Kind::Section(table) => reference(table, definitions),
        Kind::Named(table) => {
            let value = reference(table, definitions);
            json!({ "type": "object", "additionalProperties": value })
        }
        Kind::NamedOrPath(table) => {
            let value = reference(table, definitions);
            json!({ "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": value }] })
        }
        // Ids, names and versions may look like numbers.
        Kind::Id | Kind::HostPrefix | Kind::HostName | Kind::HeaderName | Kind::Text => {
            json!({ "type": ["string", "number", "boolean"] })
        }
        Kind::Short(table) => {
            let value = reference(table, definitions);
            json!({ "anyOf": [{ "type": ["string", "number"] }, value] })
        }
        Kind::Fields => json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
        Kind::Secrets => json!({ "type": "object" }),
        Kind::Form(_) => json!({ "type": ["string", "number"] }),
        Kind::Path | Kind::Regex | Kind::Network => json!({ "type": "string" }),
        Kind::Any => json!({}),
    }
}
