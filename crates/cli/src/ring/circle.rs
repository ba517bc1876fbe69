//! A ring, drawn: its members around a circle in the order of their turns, and who has the turn.

use std::f64::consts::TAU;

/// Members that are drawn around a circle; of more, those around the turn are listed.
const DRAWN_MAX: usize = 24;

/// Names that are listed of a ring that is too large to be drawn.
const LISTED: usize = 21;

/// A name is not shown longer than this.
const NAME_CHARS: usize = 16;

/// How wide a circle is at most.
const WIDTH_MAX: usize = 76;

/// From its middle to its side at least, where there is room: an instant fits into it.
const ACROSS_MIN: usize = 22;

/// What is drawn before a name: of those who have the turn, and of the others.
const TURN: char = '●';
const OTHER: char = '○';

/// The lines of a picture that is so wide. `members` ascend; `turn` has the turn, and `words` stand in the middle.
pub(super) fn draw(
    members: &[String],
    turn: &[String],
    words: &[String],
    width: usize,
) -> Vec<String> {
    if members.len() > DRAWN_MAX {
        return list(members, turn, words);
    }
    let width = width.clamp(40, WIDTH_MAX);
    let radius = (members.len() / 2).clamp(3, 9);
    let (rows, middle) = (2 * radius + 1, width / 2);
    let mut canvas = vec![vec![' '; width]; rows];
    let across = middle.saturating_sub(NAME_CHARS / 2 + 2).min((radius * 4).max(ACROSS_MIN));
    for (place, name) in members.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "there are few")]
        let angle = TAU * place as f64 / members.len() as f64;
        let shown = shown(name, turn);
        let row = at(radius, -angle.cos(), radius);
        let centre = at(middle, angle.sin(), across);
        let begin = centre.saturating_sub(shown.chars().count() / 2);
        write(&mut canvas[row], begin, &shown);
    }
    let begin = radius.saturating_sub(words.len() / 2);
    for (line, text) in canvas[begin..].iter_mut().zip(words) {
        let room = (2 * across).saturating_sub(NAME_CHARS + 2);
        let text: String = text.chars().take(room).collect();
        write(line, middle.saturating_sub(text.chars().count() / 2), &text);
    }
    canvas.into_iter().map(|line| String::from_iter(line).trim_end().to_owned()).collect()
}

/// So far from the middle, in one direction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "it is on the canvas"
)]
fn at(middle: usize, share: f64, radius: usize) -> usize {
    (middle as f64 + share * radius as f64).round().max(0.0) as usize
}

fn write(line: &mut [char], begin: usize, text: &str) {
    for (place, char) in line.iter_mut().skip(begin).zip(text.chars()) {
        *place = char;
    }
}

fn shown(name: &str, turn: &[String]) -> String {
    let sign = if turn.iter().any(|one| one == name) { TURN } else { OTHER };
    let name = crate::value::escape(name);
    if name.chars().count() <= NAME_CHARS {
        return format!("{sign} {name}");
    }
    let name: String = name.chars().take(NAME_CHARS - 1).collect();
    format!("{sign} {name}…")
}

/// Those around the turn, one below the other.
fn list(members: &[String], turn: &[String], words: &[String]) -> Vec<String> {
    let last = turn.last().and_then(|last| members.iter().position(|one| one == last));
    let begin = last.unwrap_or(0) + members.len() - LISTED / 2;
    let around = (0..LISTED).map(|step| &members[(begin + step) % members.len()]);
    let names = around.map(|name| format!("  {}", shown(name, turn)));
    let more = format!("  … of {} members", members.len());
    words.iter().map(|text| format!("  {text}")).chain(names).chain([more]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("w{number:02}")).collect()
    }

    #[test]
    fn members_stand_around_the_circle_and_the_turn_is_filled() {
        let lines = draw(&names(4), &["w02".to_owned()], &["turn 7".to_owned()], 60);
        let expected = [
            "                            ○ w01",
            "",
            "",
            "        ○ w04              turn 7               ● w02",
            "",
            "",
            "                            ○ w03",
        ];
        assert_eq!(lines, expected, "\n{}", lines.join("\n"));
    }

    #[test]
    fn each_member_of_a_small_ring_is_seen_and_of_a_large_one_those_around_the_turn() {
        for count in 0..=DRAWN_MAX {
            let text = draw(&names(count), &[], &[], 76).join("\n");
            for name in names(count) {
                assert!(text.contains(&format!("○ {name}")), "{name} of {count}:\n{text}");
            }
        }
        let text = draw(&names(1_000), &["w500".to_owned()], &[], 76).join("\n");
        assert!(text.contains("● w500") && text.contains("○ w490") && text.contains("○ w510"));
        assert!(!text.contains("w489") && text.contains("of 1000 members"), "{text}");
    }

    #[test]
    fn a_long_name_is_cut_and_a_wild_one_escaped() {
        let text = draw(&["x".repeat(100)], &[], &[], 40).join("\n");
        assert!(text.contains(&format!("○ {}…", "x".repeat(15))), "{text}");
    }
}
