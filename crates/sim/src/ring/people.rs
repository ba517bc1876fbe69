//! Who has to do with a ring: its members, those who listen, and somebody who deletes a subscription now and then.

use std::time::Duration;

use engine::ring::SubscriptionDraft;
use engine::ring::member::Visit;
use store::ring::{Cursors, Expected, Put, RingError, RingEventKind, Rings};

use super::{RingCluster, no_longer, ring};
use crate::clock::MS;
use crate::dice::Dice;

/// How long anybody waits for a server.
const ANSWER: Duration = Duration::from_millis(2_500);

/// The second subscription.
const STRICT: &str = "strict";

/// Everybody begins.
pub fn begin(all: &RingCluster) {
    let world = &all.lease.world;
    let dice = || all.lease.dice().fork();
    let (cluster, own) = (all.clone(), dice());
    world.spawn(|_| async move { owner(cluster, own).await });
    for number in 0..all.setting.members {
        let name =
            ["bert", "dora", "fred", "hans", "kurt", "maja"][usize::try_from(number).expect("six")];
        let (cluster, own) = (all.clone(), dice());
        world.spawn(|_| async move { member(cluster, name, own).await });
    }
    for name in ["main", STRICT, "main"] {
        let (cluster, own) = (all.clone(), dice());
        world.spawn(|_| async move { listener(cluster, name, own).await });
    }
}

fn draft(every: &str, count: u64, accept: Option<&str>) -> SubscriptionDraft {
    let json =
        serde_json::json!({ "schedule": { "every": every }, "count": count, "accept": accept });
    serde_json::from_value(json).expect("a draft")
}

async fn rest(all: &RingCluster, dice: &mut Dice, least_ms: u64, most_ms: u64) {
    let length = dice.between(least_ms, most_ms) * MS;
    all.lease.world.sleep(length).await;
}

fn any(all: &RingCluster, dice: &mut Dice) -> Option<Rings> {
    let last = all.lease.len() as u64 - 1;
    all.server(usize::try_from(dice.between(0, last)).expect("an index"))
}

/// Makes the ring, and its second subscription again and again.
async fn owner(all: RingCluster, mut dice: Dice) {
    let world = all.lease.world.clone();
    let [every, strict] = all.setting.every;
    let main = draft(every, all.setting.count, None);
    loop {
        rest(&all, &mut dice, 50, 200).await;
        let Some(rings) = any(&all, &mut dice) else { continue };
        let made = no_longer(&world, ANSWER, rings.create(&ring(), &main)).await;
        if matches!(made, Some(Ok(()) | Err(RingError::RingExists(_)))) {
            break;
        }
    }
    let id = ring().subscription(STRICT).expect("a good name");
    loop {
        let Some(rings) = any(&all, &mut dice) else { continue };
        let strict = draft(strict, 1, Some("1s"));
        let put = no_longer(&world, ANSWER, rings.put(&id, &strict, Expected::Nothing)).await;
        if matches!(put, Some(Ok(Put::Created))) {
            rest(&all, &mut dice, 8_000, 25_000).await;
            if all.is_calm() {
                return;
            }
            let gone = rings.delete_subscription(&id, Expected::Anything);
            no_longer(&world, ANSWER, gone).await;
        } else if matches!(put, Some(Err(RingError::Changed))) {
            // It was made by a commit whose answer was lost.
            let gone = rings.delete_subscription(&id, Expected::Anything);
            no_longer(&world, ANSWER, gone).await;
        }
        rest(&all, &mut dice, 100, 1_500).await;
    }
}

/// What becomes of a member that is heard.
enum Said {
    Heard(Visit),
    Over,
    Nothing,
}

async fn say(
    all: &RingCluster,
    rings: &Rings,
    name: &str,
    visit: Option<Visit>,
    dice: &mut Dice,
) -> Said {
    rest(all, dice, 1, 20).await;
    let heard = no_longer(&all.lease.world, ANSWER, rings.hear(&ring(), name, visit)).await;
    match heard {
        Some(Ok(heard)) => Said::Heard(heard.visit),
        Some(Err(RingError::Superseded { .. } | RingError::VisitOver { .. })) => Said::Over,
        _ => Said::Nothing,
    }
}

async fn member(all: RingCluster, name: &'static str, mut dice: Dice) {
    let (world, ring) = (all.lease.world.clone(), ring());
    let lazy = dice.chance(25);
    loop {
        rest(&all, &mut dice, 100, 3_000).await;
        all.checker.joins(name);
        let (mut visit, mut server, mut cursors) = (None, any(&all, &mut dice), Cursors::new());
        loop {
            let Some(rings) = server.clone() else {
                rest(&all, &mut dice, 100, 500).await;
                server = any(&all, &mut dice);
                continue;
            };
            match say(&all, &rings, name, visit, &mut dice).await {
                Said::Heard(now) => visit = Some(now),
                Said::Over => visit = None,
                Said::Nothing => server = any(&all, &mut dice),
            }
            if let Some(known) = visit.filter(|_| dice.chance(8) && !all.is_calm()) {
                // A message that comes late, and perhaps to another server.
                let (cluster, late, mut own) = (all.clone(), any(&all, &mut dice), dice.fork());
                let ring = ring.clone();
                world.spawn(|_| async move {
                    rest(&cluster, &mut own, 100, 9_000).await;
                    if let Some(rings) = late {
                        let heard = rings.hear(&ring, name, Some(known));
                        no_longer(&cluster.lease.world, ANSWER, heard).await;
                    }
                });
            }
            let attending = rings.attend(&ring, name, cursors.clone(), Duration::from_millis(700));
            let attended = no_longer(&world, Duration::from_millis(900), attending).await;
            if let Some(Ok((parts, next))) = attended {
                cursors = next;
                for part in parts.into_iter().filter(|part| part.accept.is_some() && !lazy) {
                    let id = ring.subscription(&part.subscription).expect("a good name");
                    let accepted =
                        no_longer(&world, ANSWER, rings.accept(&id, part.part, name)).await;
                    if let Some(Ok(_)) = accepted {
                        let generation = part.cursor.generation;
                        all.checker.acts(&world, &part.subscription, generation, part.part, name);
                    }
                }
            } else {
                rest(&all, &mut dice, 300, 700).await;
            }
            let chance = dice.between(0, 99);
            if all.is_calm() && chance < 97 {
                continue;
            }
            match chance {
                0..=2 => {
                    all.checker.dies(&world, name);
                    rest(&all, &mut dice, 2_000, 14_000).await;
                    if all.is_calm() && dice.chance(50) {
                        return;
                    }
                    break;
                }
                3..=6 if visit.is_some() => {
                    leave(&all, name, visit, &mut dice).await;
                    rest(&all, &mut dice, 200, 5_000).await;
                    break;
                }
                7..=16 => server = any(&all, &mut dice),
                _ => {}
            }
        }
    }
}

async fn leave(all: &RingCluster, name: &str, visit: Option<Visit>, dice: &mut Dice) {
    let ring = ring();
    loop {
        if let Some(rings) = any(all, dice) {
            let left = rings.leave(&ring, name, visit);
            if let Some(Ok(_)) = no_longer(&all.lease.world, ANSWER * 3, left).await {
                return all.checker.left(&all.lease.world, name);
            }
        }
        rest(all, dice, 50, 300).await;
    }
}

async fn listener(all: RingCluster, name: &'static str, mut dice: Dice) {
    let world = all.lease.world.clone();
    let id = ring().subscription(name).expect("a good name");
    let (mut from, mut is_behind_gap) = (None, false);
    loop {
        rest(&all, &mut dice, 50, 500).await;
        let Some(rings) = any(&all, &mut dice) else { continue };
        let Some(Ok(mut feed)) = no_longer(&world, ANSWER, rings.follow(&id, from)).await else {
            continue;
        };
        // Whoever hears nothing for a while tries elsewhere.
        while let Some(Some(event)) = no_longer(&world, Duration::from_secs(6), feed.next()).await {
            match &event.kind {
                RingEventKind::Gap { .. } => is_behind_gap = true,
                RingEventKind::Closing | RingEventKind::Error { .. } => break,
                _ => {}
            }
            let last = from.filter(|_| !is_behind_gap);
            all.checker.told(&world, name, last, &event);
            if let Some(cursor) = event.cursor {
                (from, is_behind_gap) = (Some(cursor), false);
            }
            if dice.chance(1) {
                break;
            }
        }
        drop(feed);
    }
}
