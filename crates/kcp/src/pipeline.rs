//! A session end without I/O: seal ⇄ FEC ⇄ ARQ.
//!
//! Outwards, [`Pipeline::poll_transmit`] writes one datagram at a time into the caller's buffer: the ARQ puts segments where
//! the body goes, FEC and seal complete it in place. Inwards, [`Pipeline::handle_datagram`] opens in place and feeds ARQ
//! and FEC. Call order as for [`Arq`]: input or deadline, then `poll_transmit` until it gives nothing, then
//! [`Pipeline::poll_timeout`]. Sockets, clocks and random bytes are the caller's.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{
    Config, ConfigError, Counters, InputError, SendError, Shards, Time,
    arq::{self, Arq, Command, Conv, Origin, Sn},
    fec::{self, Agreement, Decoder, Encoder, Kind},
    seal::{Nonces, Seal},
};

/// Out-of-band messages held in each direction; more are dropped, as the network may do as well.
const OOB_QUEUE: usize = 64;
const CONV: usize = 4;

/// One end of a session.
#[derive(Debug)]
pub struct Pipeline {
    arq: Arq,
    seal: Arc<Seal>,
    nonces: Nonces,
    encoder: Option<Encoder>,
    agreement: Agreement,
    /// Made when the first FEC packet comes.
    decoder: Option<Decoder>,
    oob_out: VecDeque<Vec<u8>>,
    oob_in: VecDeque<Vec<u8>>,
    mtu: usize,
}

impl Pipeline {
    /// A new end. The peer must use the same `conv` and seal; its FEC parameters may differ. `seed` must be random and
    /// used once: packet nonces come from it.
    pub fn new(
        conv: Conv,
        config: Config,
        seal: Arc<Seal>,
        seed: [u8; 32],
    ) -> Result<Self, ConfigError> {
        let room = room(&config, &seal)?;
        Ok(Self {
            nonces: Nonces::new(seed),
            encoder: config.fec.map(Encoder::new),
            agreement: Agreement::new(config.fec_agrees),
            decoder: None,
            oob_out: VecDeque::new(),
            oob_in: VecDeque::new(),
            mtu: config.mtu,
            arq: Arq::new(conv, config, room),
            seal,
        })
    }

    /// Takes other options. FEC stays as it is: its packets are numbered through the session.
    pub fn reconfigure(&mut self, config: Config) -> Result<(), ConfigError> {
        let config = Config {
            fec: self.encoder.as_ref().map(Encoder::shards),
            ..config
        };
        let room = room(&config, &self.seal)?;
        self.mtu = config.mtu;
        self.arq.reconfigure(config, room);
        Ok(())
    }

    /// The options in use.
    pub fn config(&self) -> &Config {
        self.arq.config()
    }

    /// Takes a datagram from the network, and opens it in place.
    pub fn handle_datagram(&mut self, now: Time, datagram: &mut [u8]) -> Result<(), InputError> {
        let seal = Arc::clone(&self.seal);
        match seal.open(datagram) {
            Ok(body) => self.handle_opened(now, body),
            Err(error) => {
                let counters = &mut self.arq.counters;
                let counter = if error == InputError::Unsealed {
                    &mut counters.in_csum_errors
                } else {
                    &mut counters.in_errs
                };
                *counter += 1;
                Err(error)
            }
        }
    }

    /// Takes a datagram's body, which the caller has opened: one socket may serve many sessions.
    pub fn handle_opened(&mut self, now: Time, body: &[u8]) -> Result<(), InputError> {
        let counters = &mut self.arq.counters;
        counters.in_pkts += 1;
        counters.in_bytes += body.len() as u64;
        match Kind::of(body) {
            None => self.handle_segments(now, body, Origin::Wire),
            Some(Kind::OutOfBand) => self.handle_oob(body),
            Some(Kind::Data) => {
                let Some(payload) = fec::payload(&body[fec::HEADER..]) else {
                    counters.in_errs += 1;
                    return Err(InputError::FecSize);
                };
                // What is not of this session must not get into a group.
                self.handle_segments(now, payload, Origin::Wire)?;
                self.handle_fec(now, body);
                Ok(())
            }
            Some(Kind::Parity) => {
                self.handle_fec(now, body);
                Ok(())
            }
        }
    }

    fn handle_segments(
        &mut self,
        now: Time,
        segments: &[u8],
        origin: Origin,
    ) -> Result<(), InputError> {
        let result = self.arq.handle_input(now, segments, origin);
        self.arq.counters.kcp_in_errors += u64::from(result.is_err());
        result
    }

    fn handle_fec(&mut self, now: Time, packet: &[u8]) {
        let shards = self.encoder.as_ref().map_or(Shards::GUESS, Encoder::shards);
        let mut decoder = self.decoder.take().unwrap_or_else(|| Decoder::new(shards));
        decoder.handle(packet, &mut self.arq.counters);
        while let Some(payload) = decoder.pop() {
            // Counted where it fails; there is nobody to tell.
            let _ = self.handle_segments(now, &payload, Origin::Recovered);
        }
        if let Some(encoder) = &mut self.encoder
            && let Some(shards) = self
                .agreement
                .learn(packet, decoder.known(), encoder.shards())
        {
            *encoder = Encoder::after_announcing(shards);
        }
        self.decoder = Some(decoder);
    }

    fn handle_oob(&mut self, packet: &[u8]) -> Result<(), InputError> {
        let Some((conv, message)) = fec::payload(&packet[fec::HEADER..])
            .and_then(|payload| payload.split_first_chunk::<CONV>())
        else {
            self.arq.counters.in_errs += 1;
            return Err(InputError::FecSize);
        };
        if u32::from_le_bytes(*conv) != self.arq.conv().0 {
            return Err(InputError::Conversation);
        }
        self.arq.counters.oob_packets += 1;
        if self.oob_in.len() < OOB_QUEUE {
            self.oob_in.push_back(message.to_vec());
        }
        Ok(())
    }

    /// Writes the next datagram into `out`, which must hold the configuration's MTU, and gives its length.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let length = self.poll_unsealed(now, out)?;
        self.seal_batch(out.get_mut(..length)?, length);
        Some(length)
    }

    /// As [`Self::poll_transmit`], but leaves the datagram to [`Self::seal_batch`], which is faster for several at a time.
    /// It must not be sent before.
    pub fn poll_unsealed(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let head = self.seal.head_len();
        let out = out.get_mut(..self.mtu)?;
        let length = match self.poll_parity(&mut out[head..]) {
            Some(length) => length,
            None => match self.poll_oob(&mut out[head..]) {
                Some(length) => length,
                None => self.poll_arq(now, &mut out[head..])?,
            },
        };
        let length = head + length + self.seal.tail_len();
        let counters = &mut self.arq.counters;
        counters.out_pkts += 1;
        counters.out_bytes += length as u64;
        (length <= out.len()).then_some(length)
    }

    /// Seals datagrams of [`Self::poll_unsealed`] that lie one behind the other, each of `size` bytes, the last one
    /// possibly shorter. In any order and grouping, but each once.
    pub fn seal_batch(&mut self, datagrams: &mut [u8], size: usize) {
        self.seal.seal_batch(datagrams, size, &mut self.nonces);
    }

    fn poll_parity(&mut self, out: &mut [u8]) -> Option<usize> {
        let encoder = self.encoder.as_mut()?;
        let length = encoder.parity_len()?;
        encoder.parity(out.get_mut(..length)?);
        Some(length)
    }

    fn poll_oob(&mut self, out: &mut [u8]) -> Option<usize> {
        let message = self.oob_out.pop_front()?;
        let length = fec::DATA_HEADER + CONV + message.len();
        let packet = out.get_mut(..length)?;
        packet[fec::DATA_HEADER..fec::DATA_HEADER + CONV]
            .copy_from_slice(&self.arq.conv().0.to_le_bytes());
        packet[fec::DATA_HEADER + CONV..].copy_from_slice(&message);
        fec::write_data_header(packet, fec::OOB_NUMBER, Kind::OutOfBand);
        Some(length)
    }

    fn poll_arq(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let Some(encoder) = &mut self.encoder else {
            return self.arq.poll_transmit(now, out).map(|made| made.length);
        };
        let made = self.arq.poll_transmit(now, &mut out[fec::DATA_HEADER..])?;
        let length = fec::DATA_HEADER + made.length;
        if self.agreement.announces(made.has_data) {
            fec::write_data_header(&mut out[..length], 0, Kind::Data);
            Some(length)
        } else if made.has_data {
            encoder.seal(now, &mut out[..length]);
            Some(length)
        } else {
            // Acknowledgements repeat themselves; without a FEC header they cost less and take no place of a group.
            out.copy_within(fec::DATA_HEADER..fec::DATA_HEADER + made.length, 0);
            Some(made.length)
        }
    }

    /// When [`Self::handle_timeout`] wants to be called, once `poll_transmit` gave nothing more. `None`: never.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        self.arq.poll_timeout()
    }

    /// Acts on the deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.arq.handle_timeout(now);
    }

    /// See [`Arq::answer_now`].
    pub fn answer_now(&mut self, now: Time) {
        self.arq.answer_now(now);
    }

    /// See [`Arq::write`].
    pub fn write(&mut self, now: Time, data: &[u8]) -> Result<usize, SendError> {
        self.arq.write(now, data)
    }

    /// See [`Arq::write_message`].
    pub fn write_message(&mut self, now: Time, data: &[u8]) -> Result<(), SendError> {
        self.arq.write_message(now, data)
    }

    /// See [`Arq::read`].
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        self.arq.read(out)
    }

    /// See [`Arq::read_message`].
    pub fn read_message(&mut self, out: &mut Vec<u8>) -> Result<Option<usize>, SendError> {
        self.arq.read_message(out)
    }

    /// See [`Arq::readable`].
    pub fn readable(&self) -> usize {
        self.arq.readable()
    }

    /// See [`Arq::is_writable`].
    pub fn is_writable(&self) -> bool {
        self.arq.is_writable()
    }

    /// See [`Arq::has_room`].
    pub fn has_room(&self) -> bool {
        self.arq.has_room()
    }

    /// See [`Arq::has_window_news`].
    pub fn has_window_news(&self) -> bool {
        self.arq.has_window_news()
    }

    /// See [`Arq::is_flushed`].
    pub fn is_flushed(&self) -> bool {
        self.arq.is_flushed()
    }

    /// See [`Arq::is_dead`].
    pub fn is_dead(&self) -> bool {
        self.arq.is_dead()
    }

    /// The conversation's number.
    pub fn conv(&self) -> Conv {
        self.arq.conv()
    }

    /// The retransmission timeout.
    pub fn rto(&self) -> Duration {
        self.arq.rto()
    }

    /// The smoothed round-trip time, once one was measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.arq.srtt()
    }

    /// The mean deviation of the round-trip time.
    pub fn rtt_variation(&self) -> Duration {
        self.arq.rtt_variation()
    }

    /// Segments written and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.arq.unacknowledged()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.arq.counters()
    }

    /// The largest out-of-band message in bytes; 0 without FEC.
    pub fn oob_max(&self) -> usize {
        if self.encoder.is_some() {
            self.arq.mtu() - CONV
        } else {
            0
        }
    }

    /// Queues a message that goes beside the stream: at once, once, unordered, lost with its datagram. Old kcp-go
    /// versions (5.6.1) do not know it.
    pub fn send_oob(&mut self, message: &[u8]) -> Result<(), SendError> {
        if self.encoder.is_none() {
            return Err(SendError::NeedsFec);
        }
        if message.len() > self.oob_max() {
            return Err(SendError::Size);
        }
        if self.oob_out.len() >= OOB_QUEUE {
            return Err(SendError::Full);
        }
        self.oob_out.push_back(message.to_vec());
        Ok(())
    }

    /// The next out-of-band message that came.
    pub fn recv_oob(&mut self) -> Option<Vec<u8>> {
        self.oob_in.pop_front()
    }

    /// Whether [`Self::recv_oob`] has something.
    pub fn has_oob(&self) -> bool {
        !self.oob_in.is_empty()
    }

    /// Gives back memory that only a busy session needs. To be called when nothing has happened for a while.
    pub fn trim(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.trim();
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.trim();
        }
    }
}

/// What an opened datagram says about the session it belongs to; for a socket that serves many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The conversation; parity packets do not tell.
    pub conv: Option<Conv>,
    /// For a datagram whose first segment carries payload: its number.
    pub push: Option<Sn>,
}

impl Peek {
    /// Looks at a datagram's body. `None` for one that is broken.
    pub fn of(body: &[u8]) -> Option<Self> {
        match Kind::of(body) {
            Some(Kind::Parity) => Some(Self {
                conv: None,
                push: None,
            }),
            Some(Kind::OutOfBand) => {
                let conv = fec::payload(&body[fec::HEADER..])?.first_chunk::<CONV>()?;
                Some(Self {
                    conv: Some(Conv(u32::from_le_bytes(*conv))),
                    push: None,
                })
            }
            Some(Kind::Data) => Self::of_segments(fec::payload(&body[fec::HEADER..])?),
            None => Self::of_segments(body),
        }
    }

    fn of_segments(segments: &[u8]) -> Option<Self> {
        let (header, _) = arq::Segments::new(segments).next()?.ok()?;
        Some(Self {
            conv: Some(header.conv),
            push: (header.command == Command::Push).then_some(header.sn),
        })
    }

    /// Whether the datagram can be the first that arrives of a session with this receive window. A late acknowledgement
    /// of a session that is gone must not make a new one.
    pub fn opens(&self, recv_window: u32) -> bool {
        self.push.is_some_and(|sn| sn.0 < recv_window)
    }

    /// Whether the datagram may replace a session of another conversation from the same address: only the very first
    /// segment may.
    pub fn replaces(&self) -> bool {
        self.push == Some(Sn(0))
    }
}

/// The bytes that KCP segments get of each datagram.
fn room(config: &Config, seal: &Seal) -> Result<usize, ConfigError> {
    config.check()?;
    let fec = if config.fec.is_some() {
        fec::DATA_HEADER
    } else {
        0
    };
    config.room(seal.head_len() + seal.tail_len() + fec)
}
