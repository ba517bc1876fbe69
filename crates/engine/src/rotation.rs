//! Who is next: one rotation for the turns of rings and for `pick: next` of queues.
//!
//! Names are in lexical order, and the position is the *name* that was served last: not its index, which would serve somebody
//! twice or pass over somebody at every join before it. So whoever joins has the place of its name, whoever is gone is
//! passed over, and between two turns of one name everybody else who was there all the time has exactly one.

/// The next `count` names after `position`, around the ring as often as it takes. The last of them is the next position; where
/// nobody is there to be served there are none, and the position stays.
///
/// `names` ascend, each once. An empty `position` begins with the first.
pub fn rotate<'a, N: AsRef<str>>(
    names: &'a [N],
    position: &str,
    count: usize,
) -> impl Iterator<Item = &'a N> + use<'a, N> {
    debug_assert!(names.is_sorted_by(|a, b| a.as_ref() < b.as_ref()), "names ascend, each once");
    let (before, after) = names.split_at(names.partition_point(|name| name.as_ref() <= position));
    let around = after.iter().chain(before).cycle();
    around.take(if names.is_empty() { 0 } else { count })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::rotate;

    /// Everybody in a queue: whoever was served goes to its end, as at a counter where all stand in the order of their names.
    fn counter(names: &[&'static str], position: &str, count: usize) -> Vec<&'static str> {
        let mut line: Vec<_> = names.to_vec();
        line.sort_by_key(|name| (*name <= position, *name));
        let mut served = Vec::new();
        while served.len() < count && !line.is_empty() {
            let next = line.remove(0);
            served.push(next);
            line.push(next);
        }
        served
    }

    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn rings() -> impl Iterator<Item = Vec<&'static str>> {
        (0..1_u32 << NAMES.len()).map(|members| {
            (0..NAMES.len()).filter(|n| members & 1 << n != 0).map(|n| NAMES[n]).collect()
        })
    }

    #[test]
    fn each_turn_of_each_small_ring_is_that_of_a_counter() {
        for ring in rings() {
            for position in ["", "a", "b", "bb", "c", "d", "e", "f"] {
                for count in 0..=12 {
                    let turn: Vec<_> = rotate(&ring, position, count).copied().collect();
                    assert_eq!(turn, counter(&ring, position, count), "{ring:?} {position:?}");
                }
            }
        }
    }

    #[test]
    fn over_any_turns_of_a_ring_that_stays_members_differ_by_one() {
        for ring in rings().filter(|ring| !ring.is_empty()) {
            for count in 1..=7 {
                let (mut served, mut position) = (BTreeMap::<_, i32>::new(), "");
                for _ in 0..20 {
                    for name in rotate(&ring, position, count) {
                        *served.entry(*name).or_default() += 1;
                        position = name;
                    }
                    let least = ring.iter().map(|name| served.get(name).unwrap_or(&0)).min();
                    assert!(served.values().max() <= least.map(|n| n + 1).as_ref(), "{served:?}");
                }
            }
        }
    }

    /// Whatever else joins and leaves: of two that stay, each is served once between two turns of the other.
    #[test]
    fn who_stays_is_served_once_between_two_turns_of_another_that_stays() {
        let with_c = || rings().filter(|ring| ring.contains(&"c"));
        for (first, second) in
            with_c().flat_map(|first| with_c().map(move |second| (first.clone(), second)))
        {
            let (mut position, mut between) = ("c", Vec::new());
            for ring in [&first, &second].into_iter().cycle() {
                position = rotate(ring, position, 1).next().expect("c is there");
                if position == "c" {
                    break;
                }
                between.push(position);
            }
            for name in NAMES.iter().filter(|name| **name != "c") {
                let stays = first.contains(name) && second.contains(name);
                let times = between.iter().filter(|other| *other == name).count();
                assert!(
                    if stays { times == 1 } else { times <= 1 },
                    "{first:?} {second:?} {between:?}"
                );
            }
        }
    }
}
