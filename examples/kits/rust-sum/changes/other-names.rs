//! Prints the sum of all primes below a fixed number.

/// Primes are looked for below this number.
const BELOW: u64 = 1_000_000;

/// Whether `candidate` is a prime, by trial division.
fn prime(candidate: u64) -> bool {
    if candidate < 2 {
        return false;
    }
    for small in [2, 3, 5] {
        if candidate % small == 0 {
            return candidate == small;
        }
    }
    // Every odd number from 7 on is tried, up to its root.
    let mut divisor = 7;
    while divisor * divisor <= candidate {
        if candidate % divisor == 0 {
            return false;
        }
        divisor += 2;
    }
    true
}

fn main() {
    let mut total = 0;
    for n in 0..BELOW {
        if prime(n) {
            total += n;
        }
    }
    println!("{total}");
}
