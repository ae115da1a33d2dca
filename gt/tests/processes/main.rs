//! gt as users run it: under a supervisor. Reload, restart, stop, and what happens when a process dies, each while visitors come and
//! go; no visitor may notice.

mod demo;
mod dying;
mod folder;
mod handover;
mod http3;
mod load;
mod pipe;
mod reload;
mod restart;
mod rig;
mod shortage;
mod stopping;
mod systemd;
mod udp;
