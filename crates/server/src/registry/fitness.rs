//! Services that fail their clients' checks: that comes and goes with further declarations, and is no change of the service.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use tunnel::{ServiceDecl, ServiceId};

use super::Held;

/// The services as they are when all is well, and which of them are not.
pub(super) fn apart(declared: &[ServiceDecl]) -> (Vec<ServiceDecl>, HashSet<ServiceId>) {
    let down = declared.iter().filter(|service| service.down);
    let down = down.map(|service| service.id).collect();
    let wanted = declared.iter().map(|service| ServiceDecl {
        down: false,
        ..service.clone()
    });
    (wanted.collect(), down)
}

impl Held {
    pub(super) fn tell_fitness(&self, down: &HashSet<ServiceId>) {
        let id = &self.session.account.id;
        for service in &self.services {
            let is = down.contains(&service.declared.id);
            if service.down.swap(is, Relaxed) != is {
                let name = service.declared.name.as_str();
                match is {
                    true => {
                        tracing::warn!(id, service = name, "a service fails its client's checks")
                    }
                    false => tracing::info!(id, service = name, "a service is fit again"),
                }
            }
        }
    }
}
