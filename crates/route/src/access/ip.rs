//! Sets of addresses and the rules made of them.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::request::plain_ip;

/// A set of networks, looked up in logarithmic time. IPv4 is the same as IPv4 mapped into IPv6.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpSet {
    /// Sorted, without overlaps.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl IpSet {
    /// The set of these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => match (net.prefix_len(), net.network().to_ipv4_mapped()) {
                    (96.., Some(first)) => {
                        let hosts = u32::MAX
                            .checked_shr(u32::from(net.prefix_len()) - 96)
                            .unwrap_or(0);
                        v4.push((first.to_bits(), first.to_bits() | hosts));
                    }
                    _ => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
                },
            }
        }
        Self {
            v4: merged(v4),
            v6: merged(v6),
        }
    }

    /// The address is in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match plain_ip(ip) {
            IpAddr::V4(ip) => within(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => within(&self.v6, ip.to_bits()),
        }
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

impl FromIterator<IpNet> for IpSet {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        Self::new(networks)
    }
}

fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    ranges.sort();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, before)) if first <= *before => *before = last.max(*before),
            _ => merged.push((first, last)),
        }
    }
    merged.into()
}

fn within<T: Ord + Copy>(ranges: &[(T, T)], ip: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= ip);
    after > 0 && ip <= ranges[after - 1].1
}

/// Which visitors may pass: all but those in `deny`; where `allow` names some, only those. `deny` wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRules {
    /// Who may pass; empty = all.
    pub allow: IpSet,
    /// Who may not.
    pub deny: IpSet,
}

impl IpRules {
    /// The visitor may pass.
    pub fn permits(&self, ip: IpAddr) -> bool {
        !self.deny.contains(ip) && (self.allow.is_empty() || self.allow.contains(ip))
    }
}
