//! The only file that draws randomness from the operating system.

use std::cell::RefCell;

/// Numbers of dice that are drawn at once: every request takes some, and reads of up to 256 bytes are never cut short.
const DRAWN_AT_ONCE: usize = 32;

thread_local! {
    static DRAWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A random number, for ids, nonces and secrets. It is drawn at this moment: what is drawn ahead is the same in all copies of a
/// machine that was copied while it ran, and each of them would take the other's commit for its own.
pub(crate) fn random_u64() -> u64 {
    draw::<8>()[0]
}

/// A random number for what needs chance alone. It may have been drawn ahead.
pub(crate) fn dice_u64() -> u64 {
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            drawn.extend(draw::<{ DRAWN_AT_ONCE * 8 }>());
        }
        drawn.pop().expect("some were drawn")
    })
}

fn draw<const BYTES: usize>() -> Vec<u64> {
    let mut bytes = [0; BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel gives a few random bytes once it has booted");
    assert_eq!(filled, bytes.len(), "reads of up to 256 bytes are never cut short");
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers.iter().map(|number| u64::from_le_bytes(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_not_among_what_was_drawn_ahead() {
        let first = dice_u64();
        let ahead = DRAWN.with_borrow(Vec::clone);
        assert_eq!(ahead.len(), DRAWN_AT_ONCE - 1);
        let nonces: Vec<u64> = (0..DRAWN_AT_ONCE).map(|_| random_u64()).collect();
        assert_eq!(DRAWN.with_borrow(Vec::clone), ahead, "nothing of it is taken");
        assert!(nonces.iter().all(|nonce| !ahead.contains(nonce) && *nonce != first));
        assert_eq!(Some(dice_u64()), ahead.last().copied());
    }
}
