//! Why a stream was reset: the number on the multiplexer's reset frame.

use crate::open_enum::open_enum;

open_enum! {
    /// Why a stream was reset.
    ResetReason(u16) {
        /// The one who opened it does not want it any more.
        Cancelled = 1, "cancelled";
        /// The local service refused the connection.
        Refused = 2, "the service refused the connection";
        /// The local service's address cannot be reached.
        Unreachable = 3, "the service cannot be reached";
        /// The local service did not answer in time.
        DialTimeout = 4, "the service did not answer in time";
        /// TLS with the local service failed.
        DialTls = 5, "TLS with the service failed";
        /// The session has no such service.
        NoService = 6, "no such service";
        /// The link broke.
        LinkLost = 7, "the link was lost";
        /// Nothing was sent for too long.
        IdleTimeout = 8, "idle for too long";
        /// The stream's peer broke a protocol.
        Protocol = 9, "protocol error";
        /// No room for another stream.
        Overloaded = 10, "overloaded";
        /// The service does not admit this visitor.
        Denied = 11, "denied";
        /// This side is about to stop.
        ShuttingDown = 12, "shutting down";
        /// The visitor or the service reset its connection; carry it on as a reset.
        Reset = 13, "the connection was reset";
    }
}
