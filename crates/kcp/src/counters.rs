//! Counters under the names that kcp-go's statistics have.
//!
//! Each pipeline counts for itself, without atomics; a shell sums them. What only a shell can know (connections, socket
//! errors) is counted by the shell in a `Counters` of its own.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal,)+) => {
        /// What happened, in numbers. Names and meanings are those of kcp-go's `Snmp`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl Counters {
            /// All counters by kcp-go's names, in its order.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)+].into_iter()
            }

            /// Adds what `other` counted, but not how full its queues and groups are: for a session that is gone.
            pub fn add_totals(&mut self, other: &Self) {
                self.add(&Self {
                    fec_shard_set: 0,
                    fec_shard_min: 0,
                    ring_buffer_snd_queue: 0,
                    ring_buffer_rcv_queue: 0,
                    ring_buffer_snd_buffer: 0,
                    ..other.clone()
                });
            }

            /// Adds the counters of `other`; for sums over sessions.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }
        }
    };
}

counters! {
    /// Bytes that the application gave.
    bytes_sent = "BytesSent",
    /// Bytes that the application took.
    bytes_received = "BytesReceived",
    /// Most sessions open at a time.
    max_conn = "MaxConn",
    /// Sessions opened from here.
    active_opens = "ActiveOpens",
    /// Sessions accepted.
    passive_opens = "PassiveOpens",
    /// Sessions open now.
    curr_estab = "CurrEstab",
    /// Datagrams that the socket failed to give, or with a broken FEC header.
    in_errs = "InErrs",
    /// Datagrams whose checksum or tag does not match.
    in_csum_errors = "InCsumErrors",
    /// Datagrams with a broken KCP segment.
    kcp_in_errors = "KCPInErrors",
    /// Datagrams taken in, after opening.
    in_pkts = "InPkts",
    /// Datagrams made.
    out_pkts = "OutPkts",
    /// KCP segments taken in.
    in_segs = "InSegs",
    /// KCP segments made.
    out_segs = "OutSegs",
    /// Bytes of datagrams taken in, after opening.
    in_bytes = "InBytes",
    /// Bytes of datagrams made, sealed.
    out_bytes = "OutBytes",
    /// Segments sent again: the sum of the next three.
    retrans_segs = "RetransSegs",
    /// Segments sent again because later ones had arrived.
    fast_retrans_segs = "FastRetransSegs",
    /// Segments sent again because a later one had arrived and nothing else was to send.
    early_retrans_segs = "EarlyRetransSegs",
    /// Segments sent again because they timed out.
    lost_segs = "LostSegs",
    /// Segments that came more than once.
    repeat_segs = "RepeatSegs",
    /// FEC groups of which all data packets came.
    fec_full_shard_set = "FECFullShards",
    /// Parity packets taken in.
    fec_parity_shards = "FECParityShards",
    /// Recovered packets that make no sense.
    fec_errs = "FECErrs",
    /// Packets recovered.
    fec_recovered = "FECRecovered",
    /// FEC groups in memory.
    fec_shard_set = "FECShardSet",
    /// The number of the newest FEC group.
    fec_shard_min = "FECShardMin",
    /// Segments that wait to be sent first.
    ring_buffer_snd_queue = "RingBufferSndQueue",
    /// Segments that wait to be read.
    ring_buffer_rcv_queue = "RingBufferRcvQueue",
    /// Segments in flight.
    ring_buffer_snd_buffer = "RingBufferSndBuffer",
    /// Out-of-band packets taken in.
    oob_packets = "OOBPackets",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_the_names() {
        let mut sum = Counters {
            in_pkts: 1,
            ..Counters::default()
        };
        sum.add(&Counters {
            in_pkts: 2,
            ..Counters::default()
        });
        assert!(sum.fields().any(|field| field == ("InPkts", 3)));
        assert_eq!(sum.fields().count(), 30);
    }
}
