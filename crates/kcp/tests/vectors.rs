//! Golden vectors made by kcp-go, reedsolomon and Go's ciphers (`testing/interop/kcp/vectors`): no byte may differ.

use std::{collections::HashMap, sync::Arc};

use kcp::{
    Config, Mode, Pipeline, Shards, Time,
    arq::{Conv, Segments},
    fec::{self, Encoder},
    seal::{Cipher, Seal, derive_key},
};

const PASSPHRASE: &[u8] = b"it's a secrect";

/// The generator that the Go side uses: Numerical Recipes, the top byte of each step.
struct Lcg(u32);

impl Lcg {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        std::iter::repeat_with(|| {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 24) as u8
        })
        .take(count)
        .collect()
    }
}

fn hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0);
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal"))
        .collect()
}

fn seal_of(cipher: Cipher) -> Seal {
    Seal::new(cipher, &derive_key(PASSPHRASE)).expect("a key of 32 bytes")
}

#[test]
fn every_cipher_seals_every_length_as_go_does() {
    let text = include_str!("vectors/seal.txt");
    let mut sums = HashMap::new();
    for line in text.lines() {
        let parts: Vec<_> = line.split(' ').collect();
        match parts[..] {
            ["key", key] => assert_eq!(hex(key), derive_key(PASSPHRASE)),
            ["packet", name, packet] => check_packet(name.parse().expect("a cipher"), &hex(packet)),
            ["sums", name, crcs] => {
                sums.insert(name.parse::<Cipher>().expect("a cipher"), hex(crcs));
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(sums.len(), Cipher::ALL.len() - 1, "all but null");
    for (cipher, sums) in sums {
        let seal = seal_of(cipher);
        let mut random = Lcg(1);
        let least = seal.head_len() + seal.tail_len();
        let (sums, rest) = sums.as_chunks::<4>();
        assert!(rest.is_empty());
        assert_eq!(sums.len(), 1500 - least + 1, "{cipher}");
        for (length, sum) in (least..=1500).zip(sums) {
            let mut packet = random.bytes(length);
            let plain = packet.clone();
            let nonce: [u8; 16] = *packet.first_chunk().expect("16 bytes");
            seal.seal(&mut packet, nonce);
            assert_eq!(
                crc32fast::hash(&packet).to_be_bytes(),
                *sum,
                "{cipher}, {length} bytes"
            );
            let body = seal.open(&mut packet).expect("just sealed");
            assert_eq!(
                body,
                &plain[seal.head_len()..length - seal.tail_len()],
                "{cipher}, {length} bytes"
            );
        }
    }
}

/// The packet of 61 bytes, in full: where a cipher goes wrong, the first byte that differs says more than a sum.
fn check_packet(cipher: Cipher, expected: &[u8]) {
    let mut random = Lcg(1);
    random.bytes((20..61).sum());
    let mut packet = random.bytes(61);
    let nonce: [u8; 16] = *packet.first_chunk().expect("16 bytes");
    seal_of(cipher).seal(&mut packet, nonce);
    assert_eq!(packet, expected, "{cipher}");
}

#[test]
fn parity_is_that_of_reedsolomon() {
    let mut random = Lcg(2);
    let mut drawn_parameters = 0;
    let mut checked = 0;
    for line in include_str!("vectors/parity.txt").lines() {
        let parts: Vec<_> = line.split(' ').collect();
        let [data, parity, size]: [usize; 3] =
            std::array::from_fn(|i| parts[i].parse().expect("a number"));
        if checked >= 32 * 16 {
            random.bytes(2);
            drawn_parameters += 1;
        }
        assert_eq!(
            1 + usize::from(random.bytes(1)[0]),
            size,
            "the generators are in step"
        );
        let shards = Shards::new(data, parity).expect("valid");
        let mut encoder = Encoder::new(shards);
        for _ in 0..data {
            // The encoder covers two bytes of size before the payload: take shards with those as they come.
            encoder.seal_raw(&random.bytes(size));
        }
        let mut sum = crc32fast::Hasher::new();
        for _ in 0..parity {
            let mut packet = vec![0; encoder.parity_len().expect("a parity packet")];
            assert!(encoder.parity(&mut packet));
            sum.update(&packet[fec::HEADER..]);
        }
        assert_eq!(
            format!("{:08x}", sum.finalize()),
            parts[3],
            "{data}/{parity}"
        );
        checked += 1;
    }
    assert_eq!((checked, drawn_parameters), (712, 200));
}

struct Transcript {
    cipher: Cipher,
    fec: Option<Shards>,
    datagrams: Vec<Vec<u8>>,
}

fn transcripts(text: &str) -> Vec<Transcript> {
    let mut all: Vec<Transcript> = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(session) = line.strip_prefix("session ") {
            let parts: Vec<_> = session.split(' ').collect();
            let [data, parity]: [usize; 2] =
                std::array::from_fn(|i| parts[1 + i].parse().expect("a number"));
            all.push(Transcript {
                cipher: parts[0].parse().expect("a cipher"),
                fec: Shards::new(data, parity).ok(),
                datagrams: Vec::new(),
            });
        } else {
            all.last_mut()
                .expect("a session first")
                .datagrams
                .push(hex(line));
        }
    }
    all
}

fn all_transcripts() -> Vec<Transcript> {
    let (old, new) = (
        include_str!("vectors/transcript-v5.6.1.txt"),
        include_str!("vectors/transcript-v5.6.72.txt"),
    );
    assert!(old.starts_with("version v5.6.1\n") && new.starts_with("version v5.6.72\n"));
    let all: Vec<_> = [old, new].into_iter().flat_map(transcripts).collect();
    assert_eq!(all.len(), 4 + 5);
    all
}

const CONV: Conv = Conv(0x1122_3344);

fn config(fec: Option<Shards>) -> Config {
    let mode = Mode::new(false, 5000, 0, false);
    Config {
        mode,
        send_window: 1024,
        recv_window: 1024,
        stream: false,
        fec,
        // As kcp-go, which does not ask what its peer can decode.
        fec_agrees: false,
        ..Config::default()
    }
}

fn writes() -> Vec<Vec<u8>> {
    let mut random = Lcg(3);
    (0..24).map(|i| random.bytes(30 + i * 7)).collect()
}

#[test]
fn what_kcp_go_sent_is_understood() {
    for transcript in all_transcripts() {
        let seal = Arc::new(seal_of(transcript.cipher));
        let mut end = Pipeline::new(CONV, config(transcript.fec), seal, [0; 32]).expect("valid");
        for datagram in &transcript.datagrams {
            end.handle_datagram(Time::ZERO, &mut datagram.clone())
                .expect("what kcp-go sends");
        }
        let mut out = vec![0; end.readable()];
        end.read(&mut out);
        assert_eq!(out, writes().concat(), "{}", transcript.cipher);
    }
}

#[test]
fn what_kcp_go_sent_is_recovered_when_a_packet_of_each_group_is_missing() {
    for transcript in all_transcripts()
        .into_iter()
        .filter(|transcript| transcript.fec.is_some())
    {
        let seal = Arc::new(seal_of(transcript.cipher));
        let shards = transcript.fec.expect("filtered");
        let mut end = Pipeline::new(CONV, config(transcript.fec), seal, [0; 32]).expect("valid");
        let whole = transcript.datagrams.len() / shards.total() * shards.total();
        for (i, datagram) in transcript.datagrams.iter().enumerate() {
            if i >= whole || i % shards.total() != shards.data() / 2 {
                end.handle_datagram(Time::ZERO, &mut datagram.clone())
                    .expect("what kcp-go sends");
            }
        }
        assert_eq!(
            end.counters().fec_recovered,
            (whole / shards.total()) as u64
        );
        let mut out = vec![0; end.readable()];
        end.read(&mut out);
        assert_eq!(out, writes().concat(), "{}", transcript.cipher);
    }
}

/// The timestamp of the first segment of an opened datagram.
fn timestamp(body: &[u8], fec: bool) -> u32 {
    let segments = if fec { &body[fec::DATA_HEADER..] } else { body };
    Segments::new(segments)
        .next()
        .expect("a segment")
        .expect("a sound one")
        .0
        .timestamp
}

#[test]
fn the_same_writes_at_the_same_times_make_the_same_datagrams() {
    for transcript in all_transcripts() {
        let seal = seal_of(transcript.cipher);
        // Written unsealed, and sealed with kcp-go's nonces.
        let null = Arc::new(Seal::new(Cipher::Null, &[]).expect("no key"));
        let mut end = Pipeline::new(CONV, config(transcript.fec), null, [0; 32]).expect("valid");
        let mut theirs = transcript.datagrams.iter();
        for data in writes() {
            let mut sent = theirs.next().cloned();
            let now = sent.as_mut().map(|datagram| {
                seal.open(datagram)
                    .map(|body| timestamp(body, transcript.fec.is_some()))
            });
            let now = Time::from_millis(u64::from(
                now.expect("as many as we make").expect("sealed well"),
            ));
            assert_eq!(end.write(now, &data), Ok(data.len()));
            let mut out = [0; 1500];
            let mut expected =
                Some(&transcript.datagrams[transcript.datagrams.len() - theirs.len() - 1]);
            while let Some(length) = end.poll_transmit(now, &mut out) {
                let expected = expected
                    .take()
                    .or_else(|| theirs.next())
                    .expect("as many as we make");
                let mut opened = expected.clone();
                let body = seal.open(&mut opened).expect("sealed well").to_vec();
                assert_eq!(&out[..length], body, "{}", transcript.cipher);
                let mut packet = opened;
                let nonce = std::array::from_fn(|i| packet.get(i).copied().unwrap_or(0));
                packet[seal.head_len()..seal.head_len() + length].copy_from_slice(&out[..length]);
                seal.seal(&mut packet, nonce);
                assert_eq!(&packet, expected, "{}", transcript.cipher);
            }
        }
        assert_eq!(theirs.next(), None);
    }
}

/// Numbers and kinds of the FEC packets that the end has to send.
fn fec_packets(end: &mut Pipeline, now: Time) -> Vec<(u32, fec::Kind)> {
    let mut out = [0; 1500];
    let mut packets = Vec::new();
    while let Some(length) = end.poll_transmit(now, &mut out) {
        if let Some(kind) = fec::Kind::of(&out[..length]) {
            let number = u32::from_le_bytes(*out.first_chunk().expect("4 bytes"));
            packets.push((number, kind));
        }
    }
    packets
}

#[test]
fn parity_waits_for_groups_that_kcp_go_can_decode() {
    let mut checked = 0;
    for transcript in all_transcripts() {
        let Some(shards) = transcript.fec else {
            continue;
        };
        checked += 1;
        let (data, total) = (shards.data() as u32, shards.total() as u32);
        let config = Config {
            fec_agrees: true,
            mode: Mode::FAST3,
            ..config(transcript.fec)
        };
        let null = Arc::new(Seal::new(Cipher::Null, &[]).expect("no key"));
        let mut end = Pipeline::new(CONV, config, null, [0; 32]).expect("valid");
        for i in 0..2 * data {
            assert_eq!(end.write(Time::ZERO, &[i as u8; 50]), Ok(50));
        }
        let sent = fec_packets(&mut end, Time::ZERO);
        assert!(!sent.is_empty());
        assert!(
            sent.iter().all(|packet| *packet == (0, fec::Kind::Data)),
            "{sent:?}"
        );
        let seal = seal_of(transcript.cipher);
        for datagram in &transcript.datagrams {
            let mut datagram = datagram.clone();
            let body = seal.open(&mut datagram).expect("sealed well");
            end.handle_opened(Time::ZERO, body)
                .expect("what kcp-go sends");
        }
        let mut sent = Vec::new();
        for i in 0..2 * data {
            let now = Time::from_millis(u64::from(i));
            assert_eq!(end.write(now, &[i as u8; 1300]), Ok(1300));
            sent.extend(fec_packets(&mut end, now));
        }
        let place = |number| match number % total < data {
            true => fec::Kind::Data,
            false => fec::Kind::Parity,
        };
        let expected: Vec<_> = (total..total + sent.len() as u32)
            .map(|number| (number, place(number)))
            .collect();
        assert_eq!(sent, expected);
        assert!(sent.len() as u32 >= total, "{sent:?}");
    }
    assert!(checked >= 4, "{checked}");
}
