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

use super::era::Origin;
use super::failure::{Failure, deepest};
use super::full::what_to_type;
use super::keeper::{State, alarm_of};
use super::question::origin;
use super::seat::Seats;
use super::setting::Setting;
use super::space::Space;
use crate::{Address, Fault, Host, OpenError};

/// The oldest version that has what we need.
const VERSION_MIN: (u32, u32) = (3, 4);

/// What is wrong, and in which words.
type Wrong = (Fault, String);

/// How much a member told before something was wrong. What the one says that told most is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nothing,
    /// It is there, and has no leader, or is silent.
    Presence,
    /// What a person can do something about.
    Fault,
}

/// What the first member that answered said.
pub(super) struct Greeting {
    pub(super) seats: Seats,
    pub(super) origin: Origin,
    pub(super) state: State,
}

/// Greets one member after the other.
pub(super) async fn greet(at: &Address, setting: &Setting) -> Result<Greeting, OpenError> {
    let wrong = |(fault, why)| OpenError::Engine { store: at.to_string(), fault, why };
    let space = Space::new(setting.prefix.clone());
    let seats = Seats::new(at, setting.tls.as_ref()).map_err(|why| wrong((Fault::Tls, why)))?;
    let mut most: Option<(Told, Wrong)> = None;
    for seat in 0..seats.len() {
        let encrypted = setting.tls.is_some();
        let visit = Visit { at, seats: &seats, space: &space, seat, encrypted };
        let (told, why) = match visit.knock().await {
            Err(why) => (Told::Nothing, why),
            Ok(()) => match visit.greet().await {
                Ok((client, origin, mut state)) => {
                    seats.prefer(seat, client);
                    state.quota_bytes = state.quota_bytes.or(setting.quota);
                    return Ok(Greeting { seats, origin, state });
                }
                Err(why) if why.0 == Fault::Unreachable => (Told::Presence, why),
                Err(why) => (Told::Fault, why),
            },
        };
        if most.as_ref().is_none_or(|(most, _)| told > *most) {
            most = Some((told, why));
        }
    }
    Err(wrong(most.expect("a URL names a host").1))
}

/// One member that is greeted.
struct Visit<'a> {
    at: &'a Address,
    seats: &'a Seats,
    space: &'a Space,
    seat: usize,
    encrypted: bool,
}

impl Visit<'_> {
    async fn greet(&self) -> Result<(Client, Origin, State), Wrong> {
        let channel = match timeout(STORE_CONNECT_MAX, self.endpoint().connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return Err((self.connect_fault(), self.said(&deepest(&why)))),
            Err(_) => return Err((self.connect_fault(), self.said("it does not answer"))),
        };
        let mut state = State::default();
        if let Some(status) = self.status(channel.clone()).await? {
            judge_version(status.version()).map_err(|why| (Fault::TooOld, why))?;
            state.note(&status);
            if let Some(alarm) = alarm_of(&status) {
                return Err(self.alarm(&alarm, status.header().map(ResponseHeader::revision)));
            }
            if status.leader() == 0 {
                return Err(self.no_quorum());
            }
        }
        let client = match timeout(STORE_ANSWER_MAX, self.seats.enter(channel)).await {
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

    /// Whether anybody listens there.
    async fn knock(&self) -> Result<(), Wrong> {
        let Host { name, port } = self.host();
        match timeout(STORE_CONNECT_MAX, TcpStream::connect((name.as_str(), *port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => Err((Fault::Unreachable, self.said(&why.to_string()))),
            Err(_) => Err((Fault::Unreachable, self.said("it does not answer"))),
        }
    }

    /// What the member says of itself, unless it wants to know first who asks.
    async fn status(
        &self,
        channel: tonic::transport::Channel,
    ) -> Result<Option<StatusResponse>, Wrong> {
        let ask = async {
            let client = Client::from_channel(Channel::Tonic(channel), None).await?;
            client.maintenance_client().status().await
        };
        match timeout(STORE_ANSWER_MAX, ask).await {
            Ok(Ok(status)) => Ok(Some(status)),
            Ok(Err(why)) => match Failure::of(&why) {
                Failure::Refused(_) | Failure::Token(_) => Ok(None),
                _ if self.encrypted => Err((Fault::Tls, self.said(&reason(&why)))),
                _ if self.speaks_tls().await => Err((
                    Fault::Tls,
                    self.said("it speaks TLS, and the URL does not: write etcds://"),
                )),
                _ => Err((Fault::Unreachable, self.said(&reason(&why)))),
            },
            Err(_) => Err((Fault::Unreachable, self.said("it does not answer"))),
        }
    }

    /// A transaction that never does anything: it needs a leader and a majority, the right to read all of our
    /// keys and to write, and room to do so.
    async fn probe(&self, client: &Client) -> Result<Origin, Error> {
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
        let Host { name, .. } = self.host();
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

    /// What an answer to the first questions means.
    fn refused(&self, why: &Error) -> Wrong {
        if let Failure::Full = Failure::of(why) {
            return self.alarm("NOSPACE", None);
        }
        let Error::GRpcStatus(status) = why else {
            return (Fault::Unreachable, self.said(&reason(why)));
        };
        let said = status.message();
        match status.code() {
            _ if said.contains("authentication is not enabled") => {
                let why = "the URL has a user, and this etcd has authentication turned off: \
                           leave the user out, or turn it on";
                (Fault::Password, self.said(why))
            }
            _ if said.contains("user name is empty") => {
                (Fault::Password, self.said("it wants a user and a password"))
            }
            Code::PermissionDenied => {
                let prefix = self.space.prefix();
                let why = format!("{said}: this user needs readwrite on the prefix {prefix}");
                (Fault::Password, self.said(&why))
            }
            Code::InvalidArgument | Code::Unauthenticated => (Fault::Password, self.said(said)),
            _ => match Failure::of(why) {
                Failure::Elsewhere(_) | Failure::Unknown(_) if said.starts_with("etcdserver:") => {
                    self.no_quorum()
                }
                _ => (Fault::Unreachable, self.said(&reason(why))),
            },
        }
    }

    fn alarm(&self, alarm: &str, revision: Option<i64>) -> Wrong {
        let what = match alarm {
            "NOSPACE" => what_to_type(self.at, revision),
            _ => "the members do not agree on what they hold: restore the broken one".to_owned(),
        };
        (Fault::ReadOnly, format!("it raised its alarm {alarm}: {what}"))
    }

    fn no_quorum(&self) -> Wrong {
        let why = "it has no leader, since fewer than half of its members are up or see each other";
        (Fault::Unreachable, self.said(why))
    }

    fn connect_fault(&self) -> Fault {
        if self.encrypted { Fault::Tls } else { Fault::Unreachable }
    }

    fn said(&self, why: &str) -> String {
        format!("{}: {why}", self.host())
    }

    fn host(&self) -> &Host {
        self.seats.host(self.seat)
    }

    fn endpoint(&self) -> &Endpoint {
        self.seats.endpoint(self.seat)
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
