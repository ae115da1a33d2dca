//! End-to-end tests of the gt binary against real programs.
