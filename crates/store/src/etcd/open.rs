//! Opening: the first member that answers says whether this etcd can be relied on, and if not, why.

use engine::limits::{STORE_ANSWER_MAX, STORE_CONNECT_MAX};
use etcd_client::{
    Channel, Client, Compare, CompareOp, Error, GetOptions, ResponseHeader, StatusResponse, Txn,
    TxnOp,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::compaction::{EtcdStatus, alarm_of};
use super::epoch::AnswerOrigin;
use super::failure::{EtcdFailure, deepest};
use super::full::what_to_type;
use super::member::EtcdMembers;
use super::option::EtcdOptions;
use super::request::origin;
use super::space::Space;
use crate::{Address, EngineFault, OpenError, StoreHost};

/// The oldest version that has what we need.
const VERSION_MIN: (u32, u32) = (3, 4);

/// What is wrong with a member, and the sentence that says so.
type OpenFault = (EngineFault, String);

/// How far the greeting of a member got. Of several faults, that of the member that got furthest is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GreetingStage {
    Nothing,
    /// It is there, but has no leader or is silent.
    Presence,
    /// It named a fault that a person can mend.
    Fault,
}

/// What the first member that answered said.
pub(super) struct Greeting {
    pub(super) members: EtcdMembers,
    pub(super) origin: AnswerOrigin,
    pub(super) state: EtcdStatus,
}

/// Greets one member after the other, until one answers.
pub(super) async fn greet(at: &Address, setting: &EtcdOptions) -> Result<Greeting, OpenError> {
    let wrong = |(fault, why)| OpenError::Engine { store: at.to_string(), fault, why };
    let space = Space::new(setting.prefix.clone());
    let members =
        EtcdMembers::new(at, setting.tls.as_ref()).map_err(|why| wrong((EngineFault::Tls, why)))?;
    let mut most: Option<(GreetingStage, OpenFault)> = None;
    for member in 0..members.len() {
        let encrypted = setting.tls.is_some();
        let visit = MemberGreeting { at, members: &members, space: &space, member, encrypted };
        let (told, why) = match visit.knock().await {
            Err(why) => (GreetingStage::Nothing, why),
            Ok(()) => match visit.greet().await {
                Ok((client, origin, mut state)) => {
                    members.prefer(member, client);
                    state.quota_bytes = state.quota_bytes.or(setting.quota);
                    return Ok(Greeting { members, origin, state });
                }
                Err(why) if why.0 == EngineFault::Unreachable => (GreetingStage::Presence, why),
                Err(why) => (GreetingStage::Fault, why),
            },
        };
        if most.as_ref().is_none_or(|(most, _)| told > *most) {
            most = Some((told, why));
        }
    }
    Err(wrong(most.expect("a URL names a host").1))
}

/// The greeting of one member.
struct MemberGreeting<'a> {
    at: &'a Address,
    members: &'a EtcdMembers,
    space: &'a Space,
    member: usize,
    encrypted: bool,
}

impl MemberGreeting<'_> {
    async fn greet(&self) -> Result<(Client, AnswerOrigin, EtcdStatus), OpenFault> {
        let channel = match timeout(STORE_CONNECT_MAX, self.endpoint().connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return Err((self.connect_fault(), self.said(&deepest(&why)))),
            Err(_) => return Err((self.connect_fault(), self.said("it does not answer"))),
        };
        let mut state = EtcdStatus::default();
        if let Some(status) = self.status(channel.clone()).await? {
            judge_version(status.version()).map_err(|why| (EngineFault::TooOld, why))?;
            state.note(&status);
            if let Some(alarm) = alarm_of(&status) {
                return Err(self.alarm(&alarm, status.header().map(ResponseHeader::revision)));
            }
            if status.leader() == 0 {
                return Err(self.no_quorum());
            }
        }
        let client = match timeout(STORE_ANSWER_MAX, self.members.enter(channel)).await {
            Ok(Ok(client)) => client,
            Ok(Err(why)) => return Err(self.refused(&why)),
            Err(_) => return Err(self.no_quorum()),
        };
        let origin = match timeout(STORE_ANSWER_MAX, self.probe(&client)).await {
            Ok(Ok(origin)) => origin,
            Ok(Err(why)) => return Err(self.refused(&why)),
            Err(_) => return Err(self.no_quorum()),
        };
        let members = timeout(STORE_ANSWER_MAX, client.cluster_client().member_list()).await;
        let Ok(members) = members else { return Err(self.no_quorum()) };
        let members = members.map_err(|why| self.refused(&why))?;
        state.voters = members.members().iter().filter(|member| !member.is_learner()).count();
        Ok((client, origin, state))
    }

    /// Checks that something listens at the member's port.
    async fn knock(&self) -> Result<(), OpenFault> {
        let StoreHost { name, port } = self.host();
        match timeout(STORE_CONNECT_MAX, TcpStream::connect((name.as_str(), *port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => Err((EngineFault::Unreachable, self.said(&why.to_string()))),
            Err(_) => Err((EngineFault::Unreachable, self.said("it does not answer"))),
        }
    }

    /// What the member says of itself, unless it wants to know first who asks.
    async fn status(
        &self,
        channel: tonic::transport::Channel,
    ) -> Result<Option<StatusResponse>, OpenFault> {
        let ask = async {
            let client = Client::from_channel(Channel::Tonic(channel), None).await?;
            client.maintenance_client().status().await
        };
        match timeout(STORE_ANSWER_MAX, ask).await {
            Ok(Ok(status)) => Ok(Some(status)),
            Ok(Err(why)) => match EtcdFailure::of(&why) {
                EtcdFailure::Refused(_) | EtcdFailure::Token(_) => Ok(None),
                _ if self.encrypted => Err((EngineFault::Tls, self.said(&reason(&why)))),
                _ if self.speaks_tls().await => Err((
                    EngineFault::Tls,
                    self.said("it speaks TLS, and the URL does not: write etcds://"),
                )),
                _ => Err((EngineFault::Unreachable, self.said(&reason(&why)))),
            },
            Err(_) => Err((EngineFault::Unreachable, self.said("it does not answer"))),
        }
    }

    /// A transaction that never does anything: it needs a leader and a majority, the right to read all of our
    /// keys and to write, and room to do so.
    async fn probe(&self, client: &Client) -> Result<AnswerOrigin, Error> {
        let tick = self.space.tick();
        let everything = GetOptions::new().with_range(self.space.end()).with_count_only();
        let never = Compare::mod_revision(tick.clone(), CompareOp::Equal, i64::MAX);
        let probe = Txn::new()
            .when([never])
            .and_then([TxnOp::put(tick, "", None)])
            .or_else([TxnOp::get(self.space.prefix(), Some(everything))]);
        let answer = client.kv_client().txn(probe).await?;
        let header = answer.header().ok_or_else(|| Error::Internal("no header".to_owned()))?;
        Ok(origin(header))
    }

    /// Whether the member takes a handshake of TLS: a certificate that we do not trust is one too.
    async fn speaks_tls(&self) -> bool {
        let StoreHost { name, .. } = self.host();
        let tls = ClientTlsConfig::new().domain_name(name.clone());
        let endpoint = Endpoint::from_shared(format!("https://{}", self.host()))
            .and_then(|endpoint| endpoint.tls_config(tls));
        let Ok(endpoint) = endpoint else { return false };
        match timeout(STORE_CONNECT_MAX, endpoint.connect()).await {
            Ok(Ok(_)) => true,
            Ok(Err(why)) => deepest(&why).contains("certificate"),
            Err(_) => false,
        }
    }

    /// What an error means, as the answer to one of the first requests.
    fn refused(&self, why: &Error) -> OpenFault {
        if let EtcdFailure::Full = EtcdFailure::of(why) {
            return self.alarm("NOSPACE", None);
        }
        let Error::GRpcStatus(status) = why else {
            return (EngineFault::Unreachable, self.said(&reason(why)));
        };
        let said = status.message();
        match status.code() {
            _ if said.contains("authentication is not enabled") => {
                let why = "the URL has a user, and this etcd has authentication turned off: \
                           leave the user out, or turn it on";
                (EngineFault::Password, self.said(why))
            }
            _ if said.contains("user name is empty") => {
                (EngineFault::Password, self.said("it wants a user and a password"))
            }
            Code::PermissionDenied => {
                let prefix = self.space.prefix();
                let why = format!("{said}: this user needs readwrite on the prefix {prefix}");
                (EngineFault::Password, self.said(&why))
            }
            Code::InvalidArgument | Code::Unauthenticated => {
                (EngineFault::Password, self.said(said))
            }
            _ => match EtcdFailure::of(why) {
                EtcdFailure::Elsewhere(_) | EtcdFailure::Unknown(_)
                    if said.starts_with("etcdserver:") =>
                {
                    self.no_quorum()
                }
                _ => (EngineFault::Unreachable, self.said(&reason(why))),
            },
        }
    }

    fn alarm(&self, alarm: &str, revision: Option<i64>) -> OpenFault {
        let what = match alarm {
            "NOSPACE" => what_to_type(self.at, revision),
            _ => "the members do not agree on what they hold: restore the broken one".to_owned(),
        };
        (EngineFault::ReadOnly, format!("it raised its alarm {alarm}: {what}"))
    }

    fn no_quorum(&self) -> OpenFault {
        let why = "it has no leader, since fewer than half of its members are up or see each other";
        (EngineFault::Unreachable, self.said(why))
    }

    fn connect_fault(&self) -> EngineFault {
        if self.encrypted { EngineFault::Tls } else { EngineFault::Unreachable }
    }

    fn said(&self, why: &str) -> String {
        format!("{}: {why}", self.host())
    }

    fn host(&self) -> &StoreHost {
        self.members.host(self.member)
    }

    fn endpoint(&self) -> &Endpoint {
        self.members.endpoint(self.member)
    }
}

fn reason(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => deepest(status),
        Error::TransportError(why) => deepest(why),
        other => other.to_string(),
    }
}

/// Whether this version has what we need; or why not.
fn judge_version(version: &str) -> Result<(), String> {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Err(format!("its version is {version:?}, which is none"));
    };
    let (least_major, least_minor) = VERSION_MIN;
    if (major, minor) < VERSION_MIN {
        return Err(format!("it is etcd {version}, and {least_major}.{least_minor} is needed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_3_4_are_too_old() {
        for good in ["3.4.0", "3.4.23", "3.5.0-rc.1", "3.10.1", "4.0.0"] {
            assert_eq!(judge_version(good), Ok(()));
        }
        for bad in ["3.3.27", "2.3.8", "0.5.0"] {
            assert!(judge_version(bad).unwrap_err().contains("3.4 is needed"), "{bad}");
        }
        assert!(judge_version("latest").unwrap_err().contains("latest"));
    }
}
