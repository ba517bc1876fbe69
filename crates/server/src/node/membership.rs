//! What the assigner sees: which servers there are, how far their clocks are apart, and who may be given shards.

use std::collections::BTreeMap;

use engine::assignment::{is_apart, median};
use engine::id::ShardId;
use engine::limits::UNABLE_SHARDS_MAX;
use store::ownership::Ownership;
use store::session::{Roster, Session, SessionKey, SessionRecord};

use crate::peers::{ROLES, SCHEDULE, Server, View};

/// What matters here of a session: its key, whether it is joining or draining, and the shards that it cannot run.
pub(super) type Gist = (SessionKey, bool, bool, Vec<u16>);

/// Who has which shard.
pub(super) type Owners = BTreeMap<ShardId, Ownership>;

/// The cluster as this look shows it.
pub(super) fn view(
    session: &Session,
    (shards, is_draining): (u16, bool),
    roster: &Roster,
    owners: &Owners,
) -> View {
    let is_server = |roles: &[String]| roles.iter().any(|role| ROLES.contains(&role.as_str()));
    // The record of this node says a moment later that it has joined.
    let me = session.key();
    let mine = roster.record(me).filter(|record| record.joining).map(|record| (me, record));
    let live: Vec<_> = roster
        .live()
        .chain(mine)
        .filter(|(key, record)| key.guest().is_none() && is_server(&record.roles))
        .collect();
    let ahead: Vec<i64> =
        live.iter().map(|(key, _)| roster.ahead_ms(key).unwrap_or_default()).collect();
    // By the clocks of those who fire.
    let fires = |record: &SessionRecord| record.roles.iter().any(|role| role == SCHEDULE);
    let firing = live.iter().zip(&ahead).filter(|((_, record), _)| fires(record));
    let median = median(&firing.map(|(_, ahead)| *ahead).collect::<Vec<_>>());
    let servers = live.iter().zip(&ahead).map(|((key, record), ahead)| Server {
        session: (*key).clone(),
        url: record.url.clone(),
        roles: record.roles.clone(),
        version: record.version.clone(),
        // This node knows that it drains before its record says so.
        is_draining: if *key == me { is_draining } else { record.draining },
        ahead_ms: ahead - median,
        is_apart: is_apart(*ahead, median),
        is_timed: roster.ahead_ms(key).is_some(),
        unable: record.unable.iter().copied().map(ShardId).collect(),
    });
    let owner = |shard| owners.get(&ShardId(shard)).and_then(|owner| owner.session.clone());
    View {
        me: session.key().clone(),
        servers: servers.collect(),
        owners: (0..shards).map(owner).collect(),
    }
}

/// The servers that may be given shards. One that is unable to run more shards than its session can name is given none,
/// unless all are like that.
pub(super) fn takers(view: &View) -> Vec<&Server> {
    let takers = || view.servers.iter().filter(|server| server.takes_shards());
    let able = takers().filter(|server| server.unable.len() < UNABLE_SHARDS_MAX);
    let able: Vec<&Server> = able.collect();
    if able.is_empty() { takers().collect() } else { able }
}

/// What matters here of every session.
pub(super) fn gist(roster: &Roster) -> Vec<Gist> {
    let records = roster.keys().filter_map(|key| Some((key, roster.record(key)?)));
    let gist = |(key, record): (&SessionKey, &SessionRecord)| {
        (key.clone(), record.joining, record.draining, record.unable.clone())
    };
    records.map(gist).collect()
}

#[cfg(test)]
mod tests {
    use store::session::NodeId;

    use super::*;

    #[test]
    fn who_cannot_run_more_than_it_can_tell_is_given_none_unless_all_are_like_that() {
        let session = |name| SessionKey::new(&NodeId::new(name).unwrap(), 1);
        let mut view = View::alone(session("a"), 1);
        view.servers.extend(View::alone(session("b"), 1).servers);
        let ids = |view: &View| -> Vec<String> {
            takers(view).iter().map(|server| server.node().to_string()).collect()
        };
        let many: Vec<ShardId> = (0..).map(ShardId).take(UNABLE_SHARDS_MAX).collect();
        view.servers[0].unable = many[1..].to_vec();
        assert_eq!(ids(&view), ["a", "b"]);
        view.servers[0].unable = many.clone();
        assert_eq!(ids(&view), ["b"]);
        view.servers[1].unable = many;
        assert_eq!(ids(&view), ["a", "b"]);
    }
}
