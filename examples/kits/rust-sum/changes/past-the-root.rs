//! Prints the sum of all primes below a fixed number.

/// Primes are looked for below this number.
const BELOW: u64 = 1_000_000;

/// Tells by division whether `n` is a prime.
fn is_prime(n: u64) -> bool {
    if n < 2 {
        return false;
    }
    for first in [2, 3, 5] {
        if n % first == 0 {
            return n == first;
        }
    }
    // Every odd number from 7 on is tried, up to the root of `n` and, to be on the safe side, some way past it.
    let mut d = 7;
    while d * d <= 2 * n {
        if n % d == 0 {
            return false;
        }
        d += 2;
    }
    true
}

fn main() {
    let mut sum = 0;
    for n in 0..BELOW {
        if is_prime(n) {
            sum += n;
        }
    }
    println!("{sum}");
}
