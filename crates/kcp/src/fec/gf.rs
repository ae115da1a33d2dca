//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), generator 2.

const POLYNOMIAL: u16 = 0x11d;

/// Powers of the generator, twice over so that the sum of two logarithms needs no reduction.
const EXP: [u8; 512] = {
    let mut table = [0; 512];
    let (mut value, mut i) = (1_u16, 0);
    while i < 512 {
        table[i] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        i += 1;
    }
    table
};

/// Logarithms; that of zero does not exist.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// The logarithm of a value that is not zero, 0 to 254.
pub(super) const fn log(value: u8) -> u32 {
    LOG[value as usize] as u32
}

/// The generator to the power `exponent`.
pub(super) const fn exp(exponent: u32) -> u8 {
    EXP[(exponent % 255) as usize]
}

pub(super) const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        0
    } else {
        EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
    }
}

/// Products of every coefficient with the sixteen low nibbles, then with the sixteen high nibbles.
pub(super) static NIBBLES: [[u8; 32]; 256] = {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = mul(c as u8, n as u8);
            table[c][16 + n] = mul(c as u8, (n << 4) as u8);
            n += 1;
        }
        c += 1;
    }
    table
};

/// [`affine`] of every coefficient.
pub(super) static AFFINE: [u64; 256] = {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        table[c] = affine(c as u8);
        c += 1;
    }
    table
};

/// The 8×8 bit matrix of the multiplication by `coefficient`, as the GFNI affine instruction takes it: byte `7 − i` is
/// the row that gives bit `i` of the product.
const fn affine(coefficient: u8) -> u64 {
    let mut rows = [0_u8; 8];
    let mut bit = 0;
    while bit < 8 {
        let product = mul(coefficient, 1 << bit);
        let mut i = 0;
        while i < 8 {
            rows[7 - i] |= ((product >> i) & 1) << bit;
            i += 1;
        }
        bit += 1;
    }
    u64::from_le_bytes(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mul_by_shifts(a: u8, b: u8) -> u8 {
        let (mut a, mut product) = (u16::from(a), 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= POLYNOMIAL;
            }
        }
        product as u8
    }

    #[test]
    fn products_agree_with_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = mul_by_shifts(a, b);
                assert_eq!(mul(a, b), product);
                let nibbles = &NIBBLES[usize::from(a)];
                assert_eq!(
                    nibbles[usize::from(b & 15)] ^ nibbles[16 + usize::from(b >> 4)],
                    product
                );
            }
        }
    }
}
