//! The only file that draws randomness from the operating system.

use std::cell::RefCell;

/// Numbers that are drawn at once: every request takes some, and reads of up to 256 bytes are never cut short.
const DRAWN_AT_ONCE: usize = 32;

thread_local! {
    static DRAWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A random number, for ids and nonces.
pub(crate) fn random_u64() -> u64 {
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            drawn.extend(draw());
        }
        drawn.pop().expect("some were drawn")
    })
}

fn draw() -> [u64; DRAWN_AT_ONCE] {
    let mut bytes = [0; DRAWN_AT_ONCE * 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel gives a few random bytes once it has booted");
    assert_eq!(filled, bytes.len(), "reads of up to 256 bytes are never cut short");
    let (numbers, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(numbers[at]))
}
