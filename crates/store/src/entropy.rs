//! The only file that draws randomness from the operating system.

/// A random number, for ids and nonces.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel gives a few random bytes once it has booted");
    assert_eq!(filled, bytes.len(), "reads of up to 256 bytes are never cut short");
    u64::from_le_bytes(bytes)
}
