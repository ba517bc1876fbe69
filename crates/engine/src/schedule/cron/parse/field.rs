//! Reading one field of a pattern.
//!
//! A field is a list of items. Most items are spans: some values, one after the other, by a step. Spans go
//! around the end of their field, so `22-2` are five hours and `FRI-MON` four days. The items that depend on
//! the month (`L`, `15W`, `FRI#2`) and the years go to [`Rare`].

use super::super::Rare;
use super::{CronError, CronResult, Dialect, Field, brief};

/// What a field matches, and how it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldSet {
    /// Bit n is the value n; weekdays are counted from Sunday = 0 in all dialects. Years have none.
    pub(super) bits: u64,
    pub(super) form: FieldForm,
    /// It has a `*`, a range or a step.
    pub(super) interval: bool,
}

/// How a field was written as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldForm {
    /// `*`, or `+*`, which asks for nothing more.
    Star,
    /// A `?` alone.
    Question,
    /// A list of items.
    List,
    /// A list of items after a `+`.
    PlusList,
}

impl FieldForm {
    /// Whether it matches everything by its form, not by its values.
    pub(super) fn is_wild(self) -> bool {
        matches!(self, Self::Star | Self::Question)
    }
}

impl FieldSet {
    pub(super) fn single(value: u16) -> Self {
        Self { bits: 1 << value, form: FieldForm::List, interval: false }
    }

    fn add(&mut self, span: ValueSpan, field: Field) {
        let (first, len) = values(field, Dialect::Open);
        let end = first + len;
        let around = |value: u16| if value < end { value } else { value - len };
        let mut value = around(span.first);
        let mut ahead = 0;
        while ahead <= span.reach {
            self.bits |= 1 << value;
            value = around(value + span.step);
            ahead += span.step;
        }
    }
}

/// `first` and every `step`-th value after it, up to the one `reach` ahead.
#[derive(Debug, Clone, Copy)]
struct ValueSpan {
    first: u16,
    reach: u16,
    step: u16,
}

impl ValueSpan {
    fn single(value: u16) -> Self {
        Self { first: value, reach: 0, step: 1 }
    }
}

/// One item of a list.
#[derive(Debug, Clone, Copy)]
enum Item {
    Values(ValueSpan),
    /// Something that went to [`Rare`].
    Rare,
}

pub(super) struct FieldReader<'a> {
    text: &'a str,
    /// The text up to the end of the field.
    bytes: &'a [u8],
    at: usize,
    field: Field,
    dialect: Dialect,
    name: &'a str,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(
        text: &'a str,
        (start, end): (usize, usize),
        field: Field,
        dialect: Dialect,
        name: &'a str,
    ) -> Self {
        Self { text, bytes: &text.as_bytes()[..end], at: start, field, dialect, name }
    }

    /// Reads the whole field.
    pub(super) fn read(mut self, rare: &mut Rare) -> CronResult<FieldSet> {
        let may_have_plus = self.field == Field::Weekday && self.dialect == Dialect::Open;
        let has_plus = may_have_plus && self.take(b'+');
        let form = match &self.bytes[self.at..] {
            b"*" => FieldForm::Star,
            b"?" => FieldForm::Question,
            _ if has_plus => FieldForm::PlusList,
            _ => FieldForm::List,
        };
        let mut set = FieldSet { bits: 0, form, interval: false };
        loop {
            let start = self.at;
            let item = self.item(form, rare)?;
            if !matches!(self.peek(), END | b',') {
                return Err(self.trailing(start, item));
            }
            match item {
                Item::Values(span) if self.field == Field::Year => {
                    rare.years.push((span.first, span.first + span.reach, span.step));
                }
                Item::Values(span) => {
                    set.add(span, self.field);
                    set.interval |= goes_by_interval(&self.bytes[start..self.at]);
                }
                Item::Rare => {}
            }
            if !self.take(b',') {
                break;
            }
        }
        if self.field == Field::Year {
            // Quartz has bounds, but by `*` it means any year.
            if form == FieldForm::Star {
                rare.years.clear();
            }
            put_in_order(&mut rare.years);
        }
        Ok(set)
    }

    fn item(&mut self, form: FieldForm, rare: &mut Rare) -> CronResult<Item> {
        let values = match (self.peek(), self.field) {
            (b'*', _) => self.all()?,
            (b'?', Field::Day | Field::Weekday) => self.question(form)?,
            (b'H', field) if field != Field::Year => self.hashed()?,
            (b'L', Field::Day) => return self.last_day(rare),
            (b'L', Field::Weekday) => self.lone_last()?,
            (END | b',' | b'0'..=b'9' | b'A'..=b'Z', _) => {
                let value = self.value()?;
                match (self.peek(), self.field) {
                    (b'W', Field::Day) => {
                        self.at += 1;
                        rare.nearest |= 1 << value;
                        return Ok(Item::Rare);
                    }
                    (b'L' | b'#', Field::Weekday) => return self.which_weekday(value % 7, rare),
                    (b'-', _) => self.range(value)?,
                    (b'/', _) => self.from(value)?,
                    _ => ValueSpan::single(value),
                }
            }
            _ => return Err(self.unexpected()),
        };
        Ok(Item::Values(values))
    }

    /// Reads `*` or `*/2`.
    fn all(&mut self) -> CronResult<ValueSpan> {
        self.at += 1;
        let (first, len) = self.values();
        Ok(ValueSpan { first, reach: len - 1, step: self.step(len)? })
    }

    /// `?` is another `*`; in Quartz it is a field of its own.
    fn question(&mut self, form: FieldForm) -> CronResult<ValueSpan> {
        if self.dialect == Dialect::Quartz && form != FieldForm::Question {
            return Err(self.error(
                self.at,
                "`?` is not alone",
                "in quartz `?` stands alone in its field",
            ));
        }
        self.all()
    }

    /// `5/15`: from 5 to the end of the field.
    fn from(&mut self, value: u16) -> CronResult<ValueSpan> {
        let (first, len) = self.values();
        let last = first + len - 1;
        // A weekday 7 is the Sunday with which the week begins.
        let value = if value > last { value - len } else { value };
        Ok(ValueSpan { first: value, reach: last - value, step: self.step(len)? })
    }

    /// `9-17`, `22-2`, `0-30/10`.
    fn range(&mut self, first: u16) -> CronResult<ValueSpan> {
        self.at += 1;
        let last_at = self.at;
        let last = self.value()?;
        if self.field == Field::Year && last < first {
            let wrong = format!("the range {first}-{last} goes backwards");
            return Err(self.error(
                last_at,
                wrong,
                "years do not go around: write the earlier one first",
            ));
        }
        let (_, len) = self.values();
        Ok(ValueSpan { first, reach: self.reach(first, last), step: self.step(len)? })
    }

    /// How far it is from one value forward to another.
    fn reach(&self, first: u16, last: u16) -> u16 {
        let (_, len) = self.values();
        if first <= last { last - first } else { last + len - first }
    }

    /// `H`, `H/15`, `H(0-29)`, `H(0-29)/10`: where others write a value, the trigger's name chooses one.
    fn hashed(&mut self) -> CronResult<ValueSpan> {
        if self.dialect == Dialect::Quartz {
            return Err(self.unexpected());
        }
        self.at += 1;
        let (start, len) = self.values();
        let (first, len) = match (self.peek(), self.field) {
            (b'(', _) => self.hashed_range()?,
            // Days that every month has.
            (_, Field::Day) => (start, 28),
            _ => (start, len),
        };
        let hash = hash(self.field, self.name);
        let below = |bound: u16| {
            u16::try_from(hash % u64::from(bound)).expect("a remainder is smaller than its divisor")
        };
        if self.peek() != b'/' {
            return Ok(ValueSpan::single(first + below(len)));
        }
        let step = self.step(len)?;
        let offset = below(step);
        Ok(ValueSpan { first: first + offset, reach: len - 1 - offset, step })
    }

    /// The first value and the number of values of `(0-29)`.
    fn hashed_range(&mut self) -> CronResult<(u16, u16)> {
        const ALLOWED: &str = "a range in brackets is allowed, as in `H(0-5)`";
        self.at += 1;
        let first = self.value()?;
        if !self.take(b'-') {
            return Err(self.error(self.at, "a `-` is missing", ALLOWED));
        }
        let last = self.value()?;
        if !self.take(b')') {
            return Err(self.error(self.at, "a `)` is missing", ALLOWED));
        }
        let (_, len) = self.values();
        Ok((first, (self.reach(first, last) + 1).min(len)))
    }

    /// `L`, `L-3`, `LW` as a day of the month.
    fn last_day(&mut self, rare: &mut Rare) -> CronResult<Item> {
        self.at += 1;
        match self.peek() {
            b'W' => {
                self.at += 1;
                rare.last_workday = true;
            }
            b'-' => {
                self.at += 1;
                let before = self.number("a number", (1, 30), "1 to 30 are allowed after `L-`")?;
                rare.from_end |= 1 << before;
            }
            _ => rare.from_end |= 1,
        }
        Ok(Item::Rare)
    }

    /// `L` alone as a day of the week, about which the dialects disagree.
    fn lone_last(&mut self) -> CronResult<ValueSpan> {
        match self.dialect {
            Dialect::Open => {
                let allowed = "write `SAT` for Saturdays, or `5L` for the last Friday of the month";
                Err(self.error(self.at, "`L` alone is not a day of the week", allowed))
            }
            Dialect::Quartz => {
                self.at += 1;
                Ok(ValueSpan::single(6))
            }
        }
    }

    /// `5L`, `FRI#2`, `FRI#L`: one of the month's Fridays.
    fn which_weekday(&mut self, weekday: u16, rare: &mut Rare) -> CronResult<Item> {
        let has_number = self.take(b'#');
        if (!has_number || self.dialect == Dialect::Open) && self.take(b'L') {
            rare.last |= 1 << weekday;
            return Ok(Item::Rare);
        }
        let allowed = match self.dialect {
            Dialect::Open => "1 to 5 and `L` are allowed after `#`",
            Dialect::Quartz => "1 to 5 are allowed after `#`",
        };
        let nth = self.number("a number", (1, 5), allowed)?;
        rare.nth[usize::from(weekday)] |= 1 << nth;
        Ok(Item::Rare)
    }

    /// The step after a `/`, or 1.
    fn step(&mut self, max: u16) -> CronResult<u16> {
        if !self.take(b'/') {
            return Ok(1);
        }
        self.number("a step", (1, max), &format_args!("steps of 1 to {max} are allowed"))
    }

    /// A value of the field, as a number or a name.
    fn value(&mut self) -> CronResult<u16> {
        if self.peek().is_ascii_alphabetic() {
            return self.named();
        }
        let bounds = bounds(self.field, self.dialect);
        let number = self.number("a value", bounds, &Allowed(self.field, self.dialect))?;
        match (self.field, self.dialect) {
            (Field::Weekday, Dialect::Quartz) => Ok(number - 1),
            _ => Ok(number),
        }
    }

    fn named(&mut self) -> CronResult<u16> {
        let (names, first): (&[[u8; 3]], u16) = match self.field {
            Field::Month => (&MONTHS, 1),
            Field::Weekday => (&WEEKDAYS, 0),
            Field::Second | Field::Minute | Field::Hour | Field::Day | Field::Year => {
                return Err(self.unexpected());
            }
        };
        let rest = &self.bytes[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        // In `FRIL` the name is followed by a letter that is not part of it.
        let is_last =
            self.field == Field::Weekday && len == 4 && rest[3].eq_ignore_ascii_case(&b'L');
        let word = if is_last { &rest[..3] } else { &rest[..len] };
        for (name, value) in names.iter().zip(first..) {
            if word.eq_ignore_ascii_case(name) {
                self.at += 3;
                return Ok(value);
            }
        }
        let wrong =
            format!("`{}` is not a {}", brief(&self.text[self.at..self.at + len]), self.field);
        Err(self.error(self.at, wrong, Allowed(self.field, self.dialect).to_string()))
    }

    fn number(
        &mut self,
        what: &str,
        (min, max): (u16, u16),
        allowed: &(impl ToString + ?Sized),
    ) -> CronResult<u16> {
        let start = self.at;
        let mut number = 0_u32;
        while let digit @ b'0'..=b'9' = self.peek() {
            number = number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            self.at += 1;
        }
        if start == self.at {
            let wrong = match self.peek() {
                END | b',' => format!("{what} is missing"),
                _ => format!("`{}` is not allowed here", self.shown()),
            };
            return Err(self.error(start, wrong, allowed.to_string()));
        }
        match u16::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                let digits = brief(&self.text[start..self.at]);
                let size = if number < u32::from(min) { "small" } else { "large" };
                Err(self.error(start, format!("{digits} is too {size}"), allowed.to_string()))
            }
        }
    }

    fn values(&self) -> (u16, u16) {
        values(self.field, self.dialect)
    }

    /// The next byte of the field, letters in upper case.
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).map_or(END, u8::to_ascii_uppercase)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.at < self.bytes.len() && self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// The next character, as errors show it.
    fn shown(&self) -> String {
        let next = self.text[self.at..].chars().next();
        next.map_or(String::new(), |next| next.escape_debug().to_string())
    }

    /// The error of a character with which no item begins.
    #[cold]
    fn unexpected(&self) -> CronError {
        let shown = self.shown();
        let is_day = matches!(self.field, Field::Day | Field::Weekday);
        let (wrong, allowed) = match (self.peek(), self.dialect) {
            (b'+' | b'H', Dialect::Quartz) => {
                (format!("`{shown}` is not known in quartz"), self.vocabulary())
            }
            (b'+', Dialect::Open) => {
                let allowed = "it may only be the first character of day of week";
                (format!("`{shown}` is not allowed here"), allowed.to_owned())
            }
            (b'?', _) if !is_day => {
                let allowed = "only day of month and day of week take it";
                (format!("`{shown}` is not allowed here"), allowed.to_owned())
            }
            _ => (format!("`{shown}` is not allowed here"), self.vocabulary()),
        };
        self.error(self.at, wrong, allowed)
    }

    /// The error of a character that follows an item and does not belong to it.
    #[cold]
    fn trailing(&self, start: usize, item: Item) -> CronError {
        let text = &self.text[start..self.at];
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
        let may_have_step = !text.contains('/') && !text.eq_ignore_ascii_case("L");
        let allowed = match item {
            Item::Values(_) if is_number || is_name => {
                "a `-`, a `/`, a `,` or the end of the field is"
            }
            Item::Values(_) if may_have_step => "a `/`, a `,` or the end of the field is",
            Item::Values(_) | Item::Rare => "a `,` or the end of the field is",
        };
        let wrong = format!("`{}` is not allowed after `{}`", self.shown(), brief(text));
        self.error(self.at, wrong, allowed)
    }

    /// Everything that may stand in the field.
    fn vocabulary(&self) -> String {
        let signs = match (self.field, self.dialect) {
            (Field::Year, _)
            | (Field::Second | Field::Minute | Field::Hour | Field::Month, Dialect::Quartz) => {
                "`*` `,` `-` `/`"
            }
            (Field::Second | Field::Minute | Field::Hour | Field::Month, Dialect::Open) => {
                "`*` `,` `-` `/` `H`"
            }
            (Field::Day, Dialect::Open) => "`*` `?` `,` `-` `/` `L` `W` `H`",
            (Field::Day, Dialect::Quartz) => "`*` `?` `,` `-` `/` `L` `W`",
            (Field::Weekday, Dialect::Open) => "`*` `?` `,` `-` `/` `L` `#` `H` and a `+` in front",
            (Field::Weekday, Dialect::Quartz) => "`*` `?` `,` `-` `/` `L` `#`",
        };
        format!("{} with {signs} are allowed", range_of(self.field, self.dialect))
    }

    #[cold]
    fn error(&self, at: usize, wrong: impl Into<String>, allowed: impl Into<String>) -> CronError {
        CronError::new(self.text, at, Some(self.field), wrong, allowed)
    }
}

/// Stands for the end of the field. A field cannot contain it: it would have been cut there.
const END: u8 = b' ';

const MONTHS: [[u8; 3]; 12] = [
    *b"JAN", *b"FEB", *b"MAR", *b"APR", *b"MAY", *b"JUN", *b"JUL", *b"AUG", *b"SEP", *b"OCT",
    *b"NOV", *b"DEC",
];

/// Every year that patterns look at, as [`Rare`] would keep them.
const ALL_YEARS: (u16, u16, u16) = (1, 9_999, 1);

const WEEKDAYS: [[u8; 3]; 7] = [*b"SUN", *b"MON", *b"TUE", *b"WED", *b"THU", *b"FRI", *b"SAT"];

/// The first value of a field and how many there are, as they are kept.
fn values(field: Field, dialect: Dialect) -> (u16, u16) {
    match field {
        Field::Second | Field::Minute => (0, 60),
        Field::Hour => (0, 24),
        Field::Day => (1, 31),
        Field::Month => (1, 12),
        Field::Weekday => (0, 7),
        Field::Year => match dialect {
            Dialect::Open => (1, 9_999),
            Dialect::Quartz => (1_970, 130),
        },
    }
}

/// The smallest and the largest number of a field, as they are written.
fn bounds(field: Field, dialect: Dialect) -> (u16, u16) {
    match (field, dialect) {
        (Field::Weekday, Dialect::Open) => (0, 7),
        (Field::Weekday, Dialect::Quartz) => (1, 7),
        _ => {
            let (first, len) = values(field, dialect);
            (first, first + len - 1)
        }
    }
}

/// The values of a field, in words.
fn range_of(field: Field, dialect: Dialect) -> String {
    let (min, max) = bounds(field, dialect);
    match (field, dialect) {
        (Field::Month, _) => format!("{min} to {max} and JAN to DEC"),
        (Field::Weekday, Dialect::Open) => format!("{min} to {max} and SUN to SAT"),
        (Field::Weekday, Dialect::Quartz) => {
            format!("{min} (Sunday) to {max} (Saturday) and SUN to SAT")
        }
        _ => format!("{min} to {max}"),
    }
}

/// Says which values are allowed, once it is asked.
struct Allowed(Field, Dialect);

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} are allowed", range_of(self.0, self.1))
    }
}

/// A number for a name, another one for each field. It never changes.
fn hash(field: Field, name: &str) -> u64 {
    crate::hash::hash(name, field.name())
}

/// Whether an item of the clock's fields is more than single values. `H(0-29)` is a single one.
fn goes_by_interval(item: &[u8]) -> bool {
    let is_hashed = item.contains(&b'(');
    item.iter().any(|byte| matches!((byte, is_hashed), (b'/', _) | (b'*' | b'-', false)))
}

/// Brings years into their one form: sorted, each range ending with a year that matches, neighbours
/// joined, and none at all if every year matches.
fn put_in_order(years: &mut Vec<(u16, u16, u16)>) {
    for (first, last, step) in years.iter_mut() {
        *last -= (*last - *first) % *step;
        if first == last {
            *step = 1;
        }
    }
    years.sort_unstable();
    years.dedup_by(|next, kept| {
        let joins = next.2 == 1 && kept.2 == 1 && next.0 <= kept.1 + 1;
        if joins {
            kept.1 = kept.1.max(next.1);
        }
        joins || next == kept
    });
    if years.contains(&ALL_YEARS) {
        years.clear();
    }
    years.shrink_to_fit();
}
