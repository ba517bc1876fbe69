//! Sends requests to other servers, with headers that say that they were passed on.

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, ORIGIN, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderName, HeaderValue, Request, Uri};
use bytes::Bytes;
use client::Carrier;
use store::session::NodeId;

use super::super::middleware::{REQUEST_ID, RequestId};
use super::Elsewhere;
use super::buffered::BufferedRequest;
use crate::handle::NodeHandle;

/// Which server has passed a request on. One that says so is passed on no further.
const FORWARDED: HeaderName = HeaderName::from_static("watchbell-forwarded");

/// For which session it was meant, for the log.
const FORWARDED_TO: HeaderName = HeaderName::from_static("watchbell-forwarded-to");

/// What is about one connection, and not about the request.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
];

/// Sends requests to other servers, by their URLs.
#[derive(Debug)]
pub(in crate::api) struct Forwarder {
    carrier: Carrier,
    handle: NodeHandle,
}

/// What a request that was passed on says of that. Anybody can say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::api) struct Hop {
    /// The name of the server that says it has passed it on.
    pub(in crate::api) from: NodeId,
    /// The session that it was meant for.
    to: Option<String>,
}

impl Hop {
    /// What these headers say. A server that cannot be called what they say has passed nothing on, but it goes no
    /// further either.
    pub(in crate::api) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let from = NodeId::new(text(FORWARDED)?);
        let from = from.unwrap_or_else(|_| NodeId::new("unknown").expect("it is a name"));
        let to = text(FORWARDED_TO).map(|to| to.chars().take(100).collect());
        Some(Self { from, to })
    }
}

impl Forwarder {
    pub(in crate::api) fn new(carrier: Carrier, handle: NodeHandle) -> Self {
        Self { carrier, handle }
    }

    pub(super) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// The request as it goes to the server that has its shard, if that one says where it is.
    pub(super) fn request(
        &self,
        original: &BufferedRequest,
        there: &Elsewhere,
    ) -> Option<Request<Bytes>> {
        let path = original.head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(original.body());
        *request.method_mut() = original.head.method.clone();
        *request.uri_mut() = uri(there.url.as_deref()?, path)?;
        let mut headers = end_to_end(&original.head.headers);
        for own in [HOST, EXPECT, ORIGIN] {
            headers.remove(own);
        }
        self.sign(&mut headers, &there.node);
        if let Some(RequestId(id)) = original.head.extensions.get() {
            headers.extend(HeaderValue::from_str(id).ok().map(|id| (REQUEST_ID, id)));
        }
        *request.headers_mut() = headers;
        Some(request)
    }

    pub(super) fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Says who passes it on, and to whom.
    pub(super) fn sign(&self, headers: &mut HeaderMap, to: &NodeId) {
        let view = self.handle.peers().view();
        let value = |text: &str| HeaderValue::from_str(text).expect("names are printable");
        headers.insert(FORWARDED, value(view.me.node().as_str()));
        if let Some(server) = view.named(to.as_str()) {
            headers.insert(FORWARDED_TO, value(server.session.key().as_str()));
        }
    }

    /// Writes into the log why a request that was passed on is not answered here.
    pub(super) fn log_misdirected(&self, hop: &Hop, there: &Elsewhere) {
        let me = self.handle.peers().view().me.clone();
        let (from, to, owner) = (&hop.from, hop.to.as_deref().unwrap_or_default(), &there.node);
        let meant = store::session::SessionKey::try_from(to.to_owned()).ok();
        match meant {
            _ if from == me.node() => tracing::warn!(
                %owner, "a request that this server passed on came back to it: is the --url of that server right?"
            ),
            Some(meant) if meant == me => tracing::info!(
                %from, %owner, "a request came for a shard that is not here any more"
            ),
            Some(meant) if meant.node() == me.node() => tracing::info!(
                %from, %owner, meant = to, "a request came that was meant for this server before it was started anew"
            ),
            Some(_) => tracing::warn!(
                %from, %owner, meant = to, "a request came that was meant for another server: is the --url of that server right?"
            ),
            None => tracing::info!(%from, %owner, "a request came for a shard that is not here"),
        }
    }
}

/// What is at this path of a server.
pub(super) fn uri(url: &str, path: &str) -> Option<Uri> {
    format!("{}{path}", url.trim_end_matches('/')).parse().ok()
}

/// The headers but for those about one connection.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<&str> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let is_kept = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name)
            && !named.iter().any(|own| name.as_str().eq_ignore_ascii_case(own))
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn what_is_about_one_connection_stays_with_it() {
        let given = headers(&[
            ("authorization", "Bearer x"),
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("if-match", "\"3\""),
            ("idempotency-key", "k"),
        ]);
        let kept = end_to_end(&given);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "idempotency-key", "if-match"]);
    }

    #[test]
    fn a_header_that_names_no_server_ends_the_way_all_the_same() {
        assert_eq!(Hop::of(&headers(&[])), None);
        let hop = Hop::of(&headers(&[("watchbell-forwarded", "no name at all")])).unwrap();
        assert_eq!(hop.from.as_str(), "unknown");
        let hop = Hop::of(&headers(&[("watchbell-forwarded", "a")])).unwrap();
        assert_eq!((hop.from.as_str(), hop.to), ("a", None));
    }

    #[test]
    fn a_path_is_put_behind_any_url_of_a_server() {
        for url in ["http://b:1", "http://b:1/"] {
            assert_eq!(uri(url, "/v1/x?y=1").unwrap(), "http://b:1/v1/x?y=1", "{url}");
        }
        assert_eq!(uri("not a url", "/"), None);
    }
}
