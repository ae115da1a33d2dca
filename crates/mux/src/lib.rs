//! Streams over one byte transport: framing, credit, fair scheduling. Sans-IO.
