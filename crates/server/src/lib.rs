//! The data plane of gt server: ingress, routing, egress, forward.
