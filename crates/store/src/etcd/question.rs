//! Questions as data, so that one may be asked again elsewhere; and what all answers have.

use etcd_client::{
    Client, CompactionResponse, Error, GetOptions, GetResponse, ResponseHeader, Txn, TxnResponse,
};

use super::MESSAGE_BYTES_MAX;
use super::era::Origin;

/// What becomes of a question that was sent and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is asked again elsewhere.
    Read,
    /// Nobody knows.
    Write,
}

/// Something to ask a member.
pub(super) trait Question: Clone + Send + Sync {
    type Answer: Send;
    const KIND: Kind;

    /// Sends it once.
    fn send(self, client: &Client) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// Where an answer comes from.
    fn origin(answer: &Self::Answer) -> Option<Origin>;
}

/// A range of keys. Linearizable.
#[derive(Clone)]
pub(super) struct Look(pub(super) Vec<u8>, pub(super) GetOptions);

/// A transaction.
#[derive(Clone)]
pub(super) struct Transaction(pub(super) Txn);

/// Compaction of what is older than a revision.
#[derive(Clone)]
pub(super) struct Compact(pub(super) i64);

impl Question for Look {
    type Answer = GetResponse;
    const KIND: Kind = Kind::Read;

    async fn send(self, client: &Client) -> Result<GetResponse, Error> {
        let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        kv.get(self.0, Some(self.1)).await
    }

    fn origin(answer: &GetResponse) -> Option<Origin> {
        answer.header().map(origin)
    }
}

impl Question for Transaction {
    type Answer = TxnResponse;
    const KIND: Kind = Kind::Write;

    async fn send(self, client: &Client) -> Result<TxnResponse, Error> {
        client.kv_client().txn(self.0).await
    }

    fn origin(answer: &TxnResponse) -> Option<Origin> {
        answer.header().map(origin)
    }
}

impl Question for Compact {
    type Answer = CompactionResponse;
    const KIND: Kind = Kind::Write;

    async fn send(self, client: &Client) -> Result<CompactionResponse, Error> {
        client.kv_client().compact(self.0, None).await
    }

    fn origin(answer: &CompactionResponse) -> Option<Origin> {
        answer.header().map(origin)
    }
}

/// What a header says of where an answer comes from.
pub(super) fn origin(header: &ResponseHeader) -> Origin {
    Origin { cluster: header.cluster_id(), revision: header.revision() }
}
