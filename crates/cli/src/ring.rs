//! `watchbell ring`.
//!
//! - [`join`]: to be a member, and to run a program when it is its turn
//! - [`watch`]: to follow a ring; `circle` draws it

mod circle;
mod join;
mod watch;

use client::ring::{Member, Ring, Subscription, SubscriptionSpec, SubscriptionState};
use client::{Client, ClientError, RingFilter};
use serde_json::json;

use crate::args::ring::{
    RingCreateArgs, RingDeleteArgs, RingLeaveArgs, RingListArgs, RingRemoveArgs, RingServersArgs,
    RingShowArgs, RingSkipArgs, RingVerb,
};
use crate::exit::Ending;
use crate::table::{self, grouped};
use crate::trigger::{print, print_list};
use crate::value::escape;

/// Members that are shown with a ring; how to see more is told.
const MEMBERS_SHOWN_MAX: usize = 50;

pub(crate) async fn ring(verb: RingVerb) -> Result<(), Ending> {
    match verb {
        RingVerb::Create(typed) => create(typed).await,
        RingVerb::Apply(typed) => crate::apply::ring::apply(typed).await,
        RingVerb::List(typed) => list(typed).await,
        RingVerb::Show(typed) => show(&typed).await,
        RingVerb::Join(typed) => join::join(&typed).await,
        RingVerb::Leave(typed) => leave(&typed).await,
        RingVerb::Remove(typed) => remove(&typed).await,
        RingVerb::Watch(typed) => watch::watch(&typed).await,
        RingVerb::Skip(typed) => skip(&typed).await,
        RingVerb::Delete(typed) => delete(&typed).await,
    }
}

impl RingServersArgs {
    /// A client of each server.
    fn clients(&self) -> Result<Vec<Client>, Ending> {
        self.server.iter().map(|server| self.credentials.client(server)).collect()
    }
}

async fn create(typed: RingCreateArgs) -> Result<(), Ending> {
    let (client, spec) = (typed.server.client()?, typed.turns.spec());
    // Only if there is none: what somebody else made stays as it is.
    match &typed.subscription {
        Some(name) => {
            let made = client.set_subscription(&typed.name, name, &spec, Some(0)).await?;
            print(typed.server.output, &made, || subscription_text(&made))
        }
        None => {
            let made = client.set_ring(&typed.name, &spec, Some(0)).await?;
            print(typed.server.output, &made, || {
                let name = escape(&made.name);
                format!(
                    "{name} is made. Join it: watchbell ring join {name} --as NAME -- PROGRAM\n"
                )
            })
        }
    }
}

async fn list(typed: RingListArgs) -> Result<(), Ending> {
    let filter = RingFilter {
        prefix: typed.prefix,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.rings(&filter).await?;
    let none = "There are no such rings. Make one: watchbell ring create --help";
    let header = ["name", "members", "turns", "last", "next"];
    print_list(typed.server.output, &page, Some(none), header, |ring| {
        let main = ring.subscriptions.iter().find(|one| one.name == client::ring::MAIN);
        let of_main = |text: &dyn Fn(&Subscription) -> String| main.map_or_else(dash, text);
        let more = ring.subscriptions.len().saturating_sub(1);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        [
            escape(&ring.name),
            grouped(ring.members),
            of_main(&|main| format!("{}{more}", when(&main.spec))),
            of_main(&|main| main.position.as_deref().map_or_else(dash, escape)),
            of_main(&|main| main.next.map_or_else(|| state(main), |next| next.to_string())),
        ]
    })
}

fn dash() -> String {
    "-".to_owned()
}

async fn show(typed: &RingShowArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let ring = client.ring(&typed.name).await?;
    let filter = RingFilter { limit: Some(MEMBERS_SHOWN_MAX), ..RingFilter::default() };
    let members = client.ring_members(&typed.name, &filter).await?.items;
    let told = json!({ "ring": ring, "members": members });
    print(typed.server.output, &told, || show_text(&ring, &members))
}

async fn leave(typed: &RingLeaveArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    client.leave_ring(&typed.name, &typed.member, Some(typed.visit)).await?;
    gone(typed.server.output, &typed.name, &typed.member)
}

async fn remove(typed: &RingRemoveArgs) -> Result<(), Ending> {
    let nothing = "nobody was taken out";
    let (ring, member) = (escape(&typed.name), escape(&typed.member));
    typed.consent.ask(&format!("Take {member} out of {ring}?"), nothing)?;
    typed.server.client()?.leave_ring(&typed.name, &typed.member, None).await?;
    gone(typed.server.output, &typed.name, &typed.member)
}

fn gone(output: crate::args::OutputFormat, ring: &str, member: &str) -> Result<(), Ending> {
    print(output, &json!({ "ring": ring, "gone": member }), || {
        format!("{} is in {} no more.\n", escape(member), escape(ring))
    })
}

async fn skip(typed: &RingSkipArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let there = client.skip_member(&typed.name, &typed.subscription).await?;
    print(typed.server.output, &there, || {
        let passed = there.position.as_deref().map_or_else(|| "nobody".to_owned(), escape);
        format!("{passed} is passed over; next: {}\n", names(&there.next_members))
    })
}

async fn delete(typed: &RingDeleteArgs) -> Result<(), Ending> {
    let nothing = "nothing was deleted";
    typed.consent.check(nothing)?;
    let (client, name) = (typed.server.client()?, escape(&typed.name));
    let what = match &typed.subscription {
        Some(subscription) => format!("the subscription {} of {name}", escape(subscription)),
        None => {
            let ring = client.ring(&typed.name).await?;
            format!("the ring {name}, which has {}", members_text(ring.members))
        }
    };
    typed.consent.ask(&format!("Delete {what}?"), nothing)?;
    let deleted: Result<(), ClientError> = match &typed.subscription {
        Some(subscription) => client.delete_subscription(&typed.name, subscription).await,
        None => client.delete_ring(&typed.name).await,
    };
    deleted?;
    let told = json!({ "deleted": typed.name, "subscription": typed.subscription });
    print(typed.server.output, &told, || match &typed.subscription {
        Some(subscription) => format!("{} of {name} is deleted.\n", escape(subscription)),
        None => format!("{name} is deleted.\n"),
    })
}

fn members_text(count: u64) -> String {
    match count {
        0 => "no members".to_owned(),
        1 => "one member".to_owned(),
        count => format!("{} members", grouped(count)),
    }
}

/// When turns come, in a few words.
fn when(spec: &SubscriptionSpec) -> String {
    let schedule = spec.schedule.iter();
    let times = schedule.flat_map(|schedule| {
        let every = schedule.every.iter().map(|every| format!("every {}", escape(every)));
        every.chain(schedule.cron.iter().map(|cron| escape(cron)))
    });
    let when = times.collect::<Vec<_>>().join("; ");
    match spec.count {
        Some(count) if count > 1 => format!("{when}, {count} at a time"),
        Some(_) | None => when,
    }
}

fn state(subscription: &Subscription) -> String {
    match subscription.state {
        SubscriptionState::Turning => "-".to_owned(),
        SubscriptionState::Resting => "when somebody joins".to_owned(),
    }
}

fn names(names: &[String]) -> String {
    if names.is_empty() {
        return "nobody".to_owned();
    }
    names.iter().map(|name| escape(name)).collect::<Vec<_>>().join(", ")
}

fn show_text(ring: &Ring, members: &[Member]) -> String {
    let mut text = format!("{}, {}\n", escape(&ring.name), members_text(ring.members));
    for subscription in &ring.subscriptions {
        text.push('\n');
        text.push_str(&subscription_text(subscription));
    }
    if members.is_empty() {
        return text;
    }
    let header = ["member", "since", "by"].map(str::to_owned).to_vec();
    let rows = members.iter().map(|member| {
        let own = if member.own_session { ", itself" } else { "" };
        vec![escape(&member.name), member.since.to_string(), format!("{}{own}", escape(&member.by))]
    });
    text.push('\n');
    text.push_str(&table::rows([header].into_iter().chain(rows).collect(), 3));
    let rest = ring.members.saturating_sub(members.len() as u64);
    if rest > 0 {
        let more = grouped(rest);
        text.push_str(&format!("and {more} more: GET /v1/rings/{}/members\n", escape(&ring.name)));
    }
    text
}

/// A subscription, as lines.
fn subscription_text(subscription: &Subscription) -> String {
    let Subscription { spec, .. } = subscription;
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("subscription", escape(&subscription.name));
    row("turns", when(spec));
    let given = |text: &Option<String>| text.as_deref().map(escape);
    let schedule = spec.schedule.clone().unwrap_or_default();
    let quiet = schedule.quiet.iter().map(|window| {
        let days = window.days.join(",");
        let days = if days.is_empty() { days } else { format!("{days} ") };
        format!("{days}{}-{}", window.from, window.to)
    });
    let list = |texts: Vec<String>| Some(escape(&texts.join("; "))).filter(|text| !text.is_empty());
    let catch_up = spec.catch_up.and_then(|policy| serde_json::to_value(policy).ok());
    let splay =
        spec.splay_percent.map(|percent| format!("{percent} % of the time to the next turn"));
    for (name, value) in [
        ("phase", given(&schedule.phase)),
        ("zone", given(&schedule.tz)),
        ("excluded", list(schedule.exclude.clone())),
        ("quiet", list(quiet.collect())),
        ("splay", splay),
        ("catch up", catch_up.and_then(|policy| policy.as_str().map(str::to_owned))),
        ("accept within", given(&spec.accept)),
    ] {
        if let Some(value) = value {
            row(name, value);
        }
    }
    let last = subscription.position.as_deref().map_or_else(|| "nobody yet".to_owned(), escape);
    row("last", last);
    let next = subscription.next.map_or_else(|| state(subscription), |next| next.to_string());
    row("next", format!("{}: {}", next, names(&subscription.next_members)));
    if subscription.waiting > 0 {
        row("not accepted", format!("{} parts", grouped(subscription.waiting)));
    }
    row("place", format!("{}.{}", subscription.generation, subscription.number));
    if let Some(writer) = &subscription.writer {
        row("decided by", escape(writer));
    }
    row("revision", subscription.revision.to_string());
    table::finish(table, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        let at = |text: &str| text.parse().unwrap();
        let subscription = Subscription {
            ring: "checks".to_owned(),
            name: "main".to_owned(),
            generation: 1,
            revision: 3,
            spec: SubscriptionSpec::every("5s").count(2).accept("30s"),
            state: SubscriptionState::Turning,
            number: 17,
            position: Some("web-2".to_owned()),
            decided: at("2026-11-19T12:00:00Z"),
            next: Some(at("2026-11-19T12:00:05Z")),
            next_members: vec!["web-3".to_owned(), "web-1".to_owned()],
            waiting: 1,
            writer: Some("watchbell-1".to_owned()),
        };
        Ring { name: "checks".to_owned(), members: 60, subscriptions: vec![subscription] }
    }

    #[test]
    fn a_ring_is_shown_with_what_comes_next_and_who_is_in_it() {
        let member = |name: &str, own_session| Member {
            name: name.to_owned(),
            visit: 2,
            by: "watchbell-1".to_owned(),
            own_session,
            since: "2026-11-19T11:00:00Z".parse().unwrap(),
        };
        let text = show_text(&ring(), &[member("web-1", false), member("web-2", true)]);
        for line in [
            "checks, 60 members",
            "subscription   main",
            "turns          every 5s, 2 at a time",
            "accept within  30s",
            "last           web-2",
            "next           2026-11-19T12:00:05Z: web-3, web-1",
            "not accepted   1 parts",
            "place          1.17",
            "web-2   2026-11-19T11:00:00Z  watchbell-1, itself",
            "and 58 more: GET /v1/rings/checks/members",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} is not in\n{text}");
        }
    }
}
