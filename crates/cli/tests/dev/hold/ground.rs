//! Where those meet who hold the same: an engine, or Watchbell servers on one. What befalls it, and what lies between it and
//! each machine: proxies, or a wire to a network of the machine's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use rig::{Random, Road, Way};
use rustix::process::Signal;

use super::super::island::{self, HUB, Island, Lost, STORE};
use super::super::process::WATCHBELL;
use crate::dev::cluster::fleet::Fleet;
use crate::dev::cluster::opened;
use crate::dev::elect::engine::Engine;

const SERVERS: [&str; 2] = ["north", "south"];

pub(super) enum Ground {
    /// Everybody has a road to each of its members.
    Engine(Engine),
    /// Everybody is on an island, and the engine at the hub.
    Islands(Engine),
    /// Everybody has a road to one of them.
    Servers { fleet: Fleet, _engine: Engine },
}

/// Between one machine and where it meets others.
pub(super) enum Link {
    Roads(Vec<Road>),
    Wire(Island),
}

/// What befalls the ground, or one of the parts that it has several of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    Kill(usize),
    Stop(usize),
}

impl Ground {
    /// An engine in a network where nobody else is.
    pub(super) fn islands(engine: impl FnOnce(Ipv4Addr) -> Engine) -> Self {
        island::make_hub();
        Self::Islands(engine(STORE))
    }

    pub(super) async fn servers() -> Self {
        let engine = Engine::redis();
        let store = opened(&engine.url()).await;
        let fleet = Fleet::on(&SERVERS, &engine.url(), &store).await;
        fleet.settled().await;
        Self::Servers { fleet, _engine: engine }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Engine(engine) => engine.name().to_owned(),
            Self::Islands(engine) => format!("islands around {}", engine.name()),
            Self::Servers { .. } => "servers".to_owned(),
        }
    }

    /// Where a witness listens so that all machines reach it: an address without a port.
    pub(super) fn witness_at(&self) -> SocketAddr {
        match self {
            Self::Engine(_) | Self::Servers { .. } => "127.0.0.1:0".parse().unwrap(),
            Self::Islands(_) => (HUB, 0).into(),
        }
    }

    /// What ties the machine of this number to it.
    pub(super) async fn link(&self, number: usize) -> Link {
        let mut roads = Vec::new();
        match self {
            Self::Islands(_) => {
                return Link::Wire(Island::make(u8::try_from(number + 2).unwrap()));
            }
            Self::Engine(engine) => {
                for address in engine.addresses() {
                    roads.push(Road::to(address).await);
                }
            }
            Self::Servers { fleet, .. } => {
                let server = fleet.servers[SERVERS[number % SERVERS.len()]].process.as_ref();
                roads.push(Road::to(server.unwrap().address).await);
            }
        }
        Link::Roads(roads)
    }

    /// A command that becomes a supervisor on the machine at the other end of this. What it is told is to be added.
    pub(super) fn supervisor(&self, link: &Link) -> Command {
        let mut command = match link {
            Link::Roads(_) => Command::new(WATCHBELL),
            Link::Wire(island) => island.enter(WATCHBELL),
        };
        let at: Vec<SocketAddr> = match (self, link) {
            (Self::Islands(engine), _) => {
                engine.addresses().iter().map(|at| (STORE, at.port()).into()).collect()
            }
            (_, Link::Roads(roads)) => roads.iter().map(Road::address).collect(),
            (Self::Engine(_) | Self::Servers { .. }, Link::Wire(_)) => {
                unreachable!("wires go to the hub")
            }
        };
        match self {
            Self::Engine(engine) | Self::Islands(engine) => {
                command.env("WATCHBELL_STORE", engine.url_by(&at));
            }
            Self::Servers { fleet, .. } => {
                let url = format!("http://{}", at[0]);
                command.env("WATCHBELL_STORE", url).env("WATCHBELL_KEY", &fleet.admin);
            }
        }
        command
    }

    /// Something bad happens to it.
    pub(super) fn suffer(&mut self, random: &mut Random) -> Harm {
        let part = random.place(match self {
            Self::Engine(engine) | Self::Islands(engine) => engine.addresses().len(),
            Self::Servers { .. } => SERVERS.len(),
        });
        let harm = if random.below(2) == 0 { Harm::Kill(part) } else { Harm::Stop(part) };
        match (self, harm) {
            (Self::Engine(engine) | Self::Islands(engine), Harm::Kill(part)) => engine.kill(part),
            (Self::Engine(engine) | Self::Islands(engine), Harm::Stop(part)) => engine.pause(part),
            (Self::Servers { fleet, .. }, Harm::Kill(part)) => fleet.kill(SERVERS[part]),
            (Self::Servers { fleet, .. }, Harm::Stop(part)) => {
                fleet.signal(SERVERS[part], Signal::STOP);
            }
        }
        harm
    }

    /// Takes it back.
    pub(super) async fn mend(&mut self, harm: Harm) {
        match (self, harm) {
            (Self::Engine(engine) | Self::Islands(engine), Harm::Kill(_)) => engine.restart(),
            (Self::Engine(engine) | Self::Islands(engine), Harm::Stop(part)) => engine.wake(part),
            (Self::Servers { fleet, .. }, Harm::Kill(part)) => {
                fleet.bring_back(SERVERS[part]).await;
            }
            (Self::Servers { fleet, .. }, Harm::Stop(part)) => {
                fleet.signal(SERVERS[part], Signal::CONT);
            }
        }
    }
}

impl Link {
    /// What of the packets between the machine and where it meets others is lost from now on.
    pub(super) fn lose(&self, lost: Lost) {
        match self {
            Self::Wire(island) => island.lose(lost),
            Self::Roads(roads) => {
                let (there, back) = match lost {
                    Lost::Nothing => (Way::Open, Way::Open),
                    Lost::There => (Way::Closed, Way::Open),
                    Lost::Back => (Way::Open, Way::Closed),
                    Lost::Both => (Way::Closed, Way::Closed),
                };
                for road in roads {
                    road.there(there);
                    road.back(back);
                }
            }
        }
    }
}
