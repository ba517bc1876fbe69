//! Signatures, by which a receiver tells our webhooks from anybody else's: those of Standard Webhooks.
//!
//! What is signed is the id, the second and the body, so none of them can be changed on the way, and an old request
//! is not taken for a new one. While a secret is being replaced, both sign, and a receiver needs to know only one of
//! them. See docs/webhooks.md.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::id::ProjectId;
use engine::instant::Instant;
use ring::hmac;

/// What the webhooks of a project are signed with at the moment of asking, if with anything.
pub type Signing = Arc<dyn Fn(ProjectId) -> Option<Arc<Signer>> + Send + Sync>;

/// What every signature begins with: the version of the scheme.
const VERSION: &str = "v1,";

/// The secrets of a project, ready to sign with.
pub struct Signer {
    /// The newest first, each with the instant from which on it signs no more.
    keys: Vec<(hmac::Key, Option<Instant>)>,
}

impl Signer {
    /// Prepares secrets, each with the instant from which on it signs no more.
    pub fn new(secrets: impl IntoIterator<Item = (Vec<u8>, Option<Instant>)>) -> Self {
        let prepared = |(bytes, until): (Vec<u8>, _)| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
            (key, until)
        };
        Self { keys: secrets.into_iter().map(prepared).collect() }
    }

    /// The signatures of a request that leaves now, with a space between them. None, if no secret is good any more.
    pub(super) fn sign(&self, id: &str, now: Instant, body: &[u8]) -> Option<String> {
        let mut signatures = String::new();
        let begin = format!("{id}.{}.", now.second());
        for (key, _) in self.keys.iter().filter(|(_, until)| until.is_none_or(|until| now < until))
        {
            let mut context = hmac::Context::with_key(key);
            context.update(begin.as_bytes());
            context.update(body);
            if !signatures.is_empty() {
                signatures.push(' ');
            }
            signatures.push_str(VERSION);
            STANDARD.encode_string(context.sign(), &mut signatures);
        }
        (!signatures.is_empty()).then_some(signatures)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Signer({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret() -> Vec<u8> {
        STANDARD.decode(SECRET).unwrap()
    }

    fn second(second: i64) -> Instant {
        Instant(second * 1_000)
    }

    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        let signer = Signer::new([(secret(), None)]);
        let at = Instant(1_614_265_330_999);
        assert_eq!(signer.sign(ID, at, BODY).as_deref(), Some(SIGNATURE));
    }

    #[test]
    fn both_secrets_sign_until_the_older_one_is_over() {
        let end = second(1_614_265_331);
        let signer = Signer::new([(vec![7; 32], None), (secret(), Some(end))]);
        let both = signer.sign(ID, second(1_614_265_330), BODY).unwrap();
        let (newer, older) = both.split_once(' ').unwrap();
        assert!(newer.starts_with("v1,") && older == SIGNATURE, "{both}");
        let one = signer.sign(ID, end, BODY).unwrap();
        assert!(!one.contains(' '), "{one}");
    }

    #[test]
    fn what_has_no_good_secret_is_not_signed() {
        assert_eq!(Signer::new([]).sign(ID, second(1), BODY), None);
        let over = Signer::new([(secret(), Some(second(1)))]);
        assert_eq!(over.sign(ID, second(1), BODY), None);
        assert_eq!(format!("{over:?}"), "Signer(1)");
    }
}
