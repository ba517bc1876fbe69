//! Requests to etcd as data, so that one may be sent again to another member; and where an answer comes from.

use etcd_client::{
    Client, CompactionResponse, Error, GetOptions, GetResponse, ResponseHeader, Txn, TxnResponse,
};

use super::MESSAGE_BYTES_MAX;
use super::epoch::AnswerOrigin;

/// What becomes of a request that was sent and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// It is sent again, to another member.
    Read,
    /// Its outcome is unknown.
    Write,
}

/// A request that a member answers.
pub(super) trait EtcdRequest: Clone + Send + Sync {
    type Answer: Send;
    const KIND: RequestKind;

    /// Sends the request once.
    fn send(self, client: &Client) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// Where an answer comes from.
    fn origin(answer: &Self::Answer) -> Option<AnswerOrigin>;
}

/// A linearizable read of a range of keys.
#[derive(Clone)]
pub(super) struct RangeRead(pub(super) Vec<u8>, pub(super) GetOptions);

/// A transaction that compares and writes.
#[derive(Clone)]
pub(super) struct Transaction(pub(super) Txn);

/// Compaction of what is older than a revision.
#[derive(Clone)]
pub(super) struct Compaction(pub(super) i64);

impl EtcdRequest for RangeRead {
    type Answer = GetResponse;
    const KIND: RequestKind = RequestKind::Read;

    async fn send(self, client: &Client) -> Result<GetResponse, Error> {
        let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        kv.get(self.0, Some(self.1)).await
    }

    fn origin(answer: &GetResponse) -> Option<AnswerOrigin> {
        answer.header().map(origin)
    }
}

impl EtcdRequest for Transaction {
    type Answer = TxnResponse;
    const KIND: RequestKind = RequestKind::Write;

    async fn send(self, client: &Client) -> Result<TxnResponse, Error> {
        client.kv_client().txn(self.0).await
    }

    fn origin(answer: &TxnResponse) -> Option<AnswerOrigin> {
        answer.header().map(origin)
    }
}

impl EtcdRequest for Compaction {
    type Answer = CompactionResponse;
    const KIND: RequestKind = RequestKind::Write;

    async fn send(self, client: &Client) -> Result<CompactionResponse, Error> {
        client.kv_client().compact(self.0, None).await
    }

    fn origin(answer: &CompactionResponse) -> Option<AnswerOrigin> {
        answer.header().map(origin)
    }
}

/// What a header says of where an answer comes from.
pub(super) fn origin(header: &ResponseHeader) -> AnswerOrigin {
    AnswerOrigin { cluster: header.cluster_id(), revision: header.revision() }
}
