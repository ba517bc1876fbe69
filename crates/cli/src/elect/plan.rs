//! From what was typed, or from the variables of the Redis scheduler, to what is meant.

use std::net::SocketAddr;
use std::time::Duration;

use engine::lease::Ttl;
use engine::trigger::check_name;
use store::StoreUrl;
use store::claim::Claim;
use store::election::claim_of;
use store::machine::{Machine, System};
use store::session::{NodeId, NodeInfo};

use super::ancestor::{self, Ancestor, AncestorError};
use super::hook::Hooks;
use super::voice::{ElectMoment, LogDialect, Voice};
use crate::args::OutputFormat;
use crate::args::elect::ElectArgs;
use crate::exit::Ending;
use crate::serve::TTL;
use crate::server::host_name;

/// What a session says that its node does.
const ROLE: &str = "candidate";

/// What the arguments of `watchbell elect` mean.
pub(super) struct CandidatePlan {
    pub(super) url: StoreUrl,
    pub(super) claim: Claim,
    pub(super) node: NodeInfo,
    pub(super) interval: Option<Duration>,
    /// Where metrics are served: at the first of these where it can be; nowhere, if there is none.
    pub(super) metrics: Vec<SocketAddr>,
    /// How long a store that cannot be reached is waited for.
    pub(super) wait: Option<Duration>,
    pub(super) hooks: Hooks,
    pub(super) output: OutputFormat,
    pub(super) dialect: LogDialect,
}

impl CandidatePlan {
    pub(super) fn of(typed: &ElectArgs) -> Result<Self, Ending> {
        if typed.is_ancestor() { Self::of_ancestor(typed) } else { Self::of_typed(typed) }
    }

    fn of_typed(typed: &ElectArgs) -> Result<Self, Ending> {
        let Some(name) = &typed.name else {
            // Whoever has the Redis scheduler's variables may have one of ours as well.
            let hint = match typed.ancestor.host.as_deref() {
                None | Some("") => "",
                Some(_) => "; REDIS_HOST counts only without --store and WATCHBELL_STORE",
            };
            return Err(Ending::wrong_input(format!(
                "what to lead is missing: watchbell elect NAME --store URL{hint}"
            )));
        };
        let Some(url) = &typed.store else {
            return Err(Ending::wrong_input(
                "where candidates meet is missing: give --store URL, or WATCHBELL_STORE",
            ));
        };
        let url = typed.pass.store(url)?;
        let drawn = || format!("{:.50}-{:08x}", host_name(), System.random() >> 32);
        let node = typed.node.clone().unwrap_or_else(drawn);
        let plan = Self::new(typed, name, url, &node, (TTL, LogDialect::Ours))?;
        Ok(Self {
            interval: typed.check_interval,
            metrics: typed.metrics.into_iter().collect(),
            ..plan
        })
    }

    /// What is wrong is also told in the words that people search for.
    fn of_ancestor(typed: &ElectArgs) -> Result<Self, Ending> {
        let node = typed.node.clone().unwrap_or_else(uuid);
        let leader_key = typed.ancestor.leader_key.clone().unwrap_or_default();
        let dialect = LogDialect::Ancestor(leader_key);
        let voice = Voice::new(dialect.clone(), "", &node, typed.output);
        let wrong = |moment, why: String| {
            voice.log(moment, Some(&why));
            Ending::wrong_input(why)
        };
        let ancestor = Ancestor::read(&typed.ancestor).map_err(|why| match why {
            AncestorError::Metrics(why) => wrong(ElectMoment::CannotServe, why),
            AncestorError::Other(why) => wrong(ElectMoment::CannotCreate, why),
        })?;
        let Ancestor { host, election, metrics, .. } = &ancestor;
        let password = ancestor.password.as_ref().map(|_| "***");
        let leader_key = &ancestor.leader_key;
        let (host, port) = (&host.name, host.port);
        tracing::debug!(uuid = node, host, port, password, leader_key, "Creating leader");
        let plan = Self::new(typed, election, ancestor.url(), &node, (ancestor::TTL, dialect))?;
        Ok(Self {
            interval: Some(typed.check_interval.unwrap_or(ancestor::CHECK_INTERVAL)),
            metrics: typed.metrics.map_or(metrics.to_vec(), |at| vec![at]),
            ..plan
        })
    }

    fn new(
        typed: &ElectArgs,
        name: &str,
        url: StoreUrl,
        node: &str,
        (usual_ttl, dialect): (Duration, LogDialect),
    ) -> Result<Self, Ending> {
        for (what, name) in [("NAME", name), ("--project", &typed.project)] {
            check_name(name).map_err(|why| Ending::wrong_input(format!("{what}: {why}")))?;
        }
        let wrong = |why: &dyn std::fmt::Display| Ending::wrong_input(why.to_string());
        let claim = claim_of(&typed.project, name).map_err(|why| wrong(&why))?;
        let candidacies = claim.candidacy().map(str::to_owned).into_iter().collect();
        let ttl = Ttl::new(typed.ttl.unwrap_or(usual_ttl)).map_err(|why| wrong(&why))?;
        let id = NodeId::new(node).map_err(|why| wrong(&why))?;
        if typed.check_interval.is_some_and(|interval| interval > ttl.length()) {
            return Err(Ending::wrong_input(
                "--check-interval is longer than --ttl: look at least once in that time",
            ));
        }
        Ok(Self {
            url,
            claim,
            node: NodeInfo { id, ttl, url: None, roles: vec![ROLE.to_owned()], candidacies },
            interval: None,
            metrics: Vec::new(),
            wait: typed.wait,
            hooks: Hooks {
                on_elected: typed.on_elected.clone(),
                on_lost: typed.on_lost.clone(),
                time_max: typed.hook_timeout,
                election: name.to_owned(),
                node: node.to_owned(),
            },
            output: typed.output,
            dialect,
        })
    }

    /// The name of what is led.
    pub(super) fn election(&self) -> &str {
        &self.hooks.election
    }

    pub(super) fn ttl(&self) -> Ttl {
        self.node.ttl
    }
}

/// A name that nobody else has, as the Redis scheduler drew one.
fn uuid() -> String {
    let (high, low) = (System.random(), System.random());
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_one_of_the_fourth_kind() {
        let (one, other) = (uuid(), uuid());
        assert_ne!(one, other);
        let lens: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(lens, [8, 4, 4, 4, 12], "{one}");
        assert_eq!(&one[14..15], "4", "{one}");
        assert!("89ab".contains(&one[19..20]), "{one}");
        assert!(NodeId::new(one).is_ok());
    }
}
