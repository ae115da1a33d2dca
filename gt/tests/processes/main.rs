//! gt as users run it: under a supervisor. Reload, restart, stop, and what happens when a process dies, each while visitors come and
//! go; no visitor may notice.

mod dying;
mod folder;
mod kcp;
mod load;
mod reload;
mod restart;
mod rig;
mod stopping;
mod systemd;
