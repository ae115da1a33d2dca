//! Reed-Solomon coefficients without matrix inversion.
//!
//! The code is a Vandermonde matrix `V[r][c] = r^c` times the inverse of its top square: packet `x` of a group holds, for
//! each byte position, the value at point `x` of the polynomial (degree below `d`) that takes the data bytes at points
//! `0..d`. So any packet is a sum of any `d` others with Lagrange's basis values as weights, for encoding and for recovery
//! alike: `w_i = Π_{j≠i} (target − x_j) / (x_i − x_j)`, and subtraction is XOR. A weight costs O(d), where inverting a matrix costs O(d³):
//! nothing needs to be cached, and a peer that makes us switch codes cannot make that costly.

use super::gf;

/// A set of points that determines the polynomial.
#[derive(Debug)]
pub(super) struct Points {
    points: Vec<u8>,
    /// Logarithm of `Π_{j≠i} (x_i − x_j)`.
    denominators: Vec<u32>,
}

impl Points {
    /// `points` are distinct.
    pub(super) fn new(points: Vec<u8>) -> Self {
        let denominators = points
            .iter()
            .map(|&point| {
                points
                    .iter()
                    .filter(|&&other| other != point)
                    .map(|&other| gf::log(point ^ other))
                    .sum()
            })
            .collect();
        Self {
            points,
            denominators,
        }
    }

    /// The points `0..data`: a group's data packets.
    pub(super) fn data(data: usize) -> Self {
        Self::new((0..data).map(|point| point as u8).collect())
    }

    /// The logarithm of `Π (target − x_j)`, which all weights of `target` share. `target` is none of the points.
    pub(super) fn numerator(&self, target: u8) -> u32 {
        self.points
            .iter()
            .map(|&point| gf::log(target ^ point))
            .sum()
    }

    /// The weight of point number `index` in the value at `target`, whose numerator is given.
    pub(super) fn weight(&self, target: u8, numerator: u32, index: usize) -> u8 {
        let subtract = self.denominators[index] + gf::log(target ^ self.points[index]);
        // 256 logarithms below 255 each stay far below this multiple of the group order.
        gf::exp(numerator + 255 * 1024 - subtract)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_constant_add_up_to_one() {
        for data in [1, 2, 10, 255] {
            let points = Points::data(data);
            let numerator = points.numerator(255);
            let sum = (0..data).fold(0, |sum, index| sum ^ points.weight(255, numerator, index));
            assert_eq!(sum, 1, "{data}");
        }
    }

    #[test]
    fn parity_follows_from_the_polynomial() {
        // With two data packets the polynomial is a line through (0, a) and (1, b): its value at 2 is a ⊕ 2(a ⊕ b).
        let points = Points::data(2);
        let numerator = points.numerator(2);
        let (a, b) = (0x53, 0xca);
        let parity =
            gf::mul(points.weight(2, numerator, 0), a) ^ gf::mul(points.weight(2, numerator, 1), b);
        assert_eq!(parity, a ^ gf::mul(2, a ^ b));
    }
}
