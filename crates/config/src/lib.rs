//! YAML and flags, raw to checked to an immutable configuration.
