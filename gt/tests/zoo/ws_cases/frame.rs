//! Frames as a visitor sends them, and where its choices come from.

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) end: bool,
    /// RSV1 to RSV3.
    pub(super) bits: u8,
    pub(super) opcode: u8,
    /// `Some(None)`: any. `None`: not masked, which a visitor must not do.
    pub(super) mask: Option<Option<[u8; 4]>>,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(opcode: u8, payload: &[u8]) -> Frame {
    Frame {
        end: true,
        bits: 0,
        opcode,
        mask: Some(None),
        payload: payload.to_vec(),
    }
}

pub(super) fn text(payload: &[u8]) -> Frame {
    frame(1, payload)
}

pub(super) fn close(code: u16) -> Frame {
    frame(8, &code.to_be_bytes())
}

impl Frame {
    pub(super) fn bytes(&self, random: &mut Random) -> Vec<u8> {
        let masked = if self.mask.is_some() { 128 } else { 0 };
        let mut out = vec![u8::from(self.end) << 7 | self.bits << 4 | self.opcode];
        match self.payload.len() {
            short @ 0..126 => out.push(masked | short as u8),
            middle @ 126..65_536 => {
                out.push(masked | 126);
                out.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                out.push(masked | 127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        let Some(mask) = self.mask else {
            out.extend_from_slice(&self.payload);
            return out;
        };
        let mask = mask.unwrap_or_else(|| (random.next() as u32).to_be_bytes());
        out.extend_from_slice(&mask);
        out.extend(
            self.payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        out
    }
}

/// xorshift64*.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
