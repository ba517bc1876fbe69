//! An instance, as its ticks show it.

use std::time::Duration;

use super::course::{Course, Mark, Place};
use super::moment::{Hull, Moment};
use crate::limits::STINTS_MAX;
use crate::report::Who;
use crate::tick::Tick;

/// One start of a program.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Its number among all that were ever heard.
    pub(crate) serial: u64,
    pub(crate) node: String,
    pub(crate) name: String,
    /// The start of its machine, if it tells the time.
    pub(crate) boot: Option<String>,
    /// From its first to its last act.
    pub(crate) hull: Hull,
    /// The same for each token under which it acted: one, unless something is odd.
    pub(crate) stints: Vec<Stint>,
    /// Tokens under which it acted before these.
    pub(crate) tokens_forgotten: u64,
    pub(crate) course: Course,
}

/// What an instance did under one token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stint {
    pub(crate) token: u64,
    pub(crate) hull: Hull,
}

impl Instance {
    pub(crate) fn new(serial: u64, tick: &Tick, moment: Moment) -> Self {
        let hull = Hull::new(moment, moment);
        Self {
            serial,
            node: tick.node.clone(),
            name: tick.instance.clone(),
            boot: tick.made.as_ref().map(|made| made.boot.clone()),
            hull,
            stints: vec![Stint { token: tick.token, hull }],
            tokens_forgotten: 0,
            course: Course::new(Mark { sequence: tick.sequence, moment }),
        }
    }

    /// Whether this tick is of this instance. The same name at another machine, or after its restart, is another one.
    pub(crate) fn made(&self, tick: &Tick) -> bool {
        let boot = tick.made.as_ref().map(|made| &made.boot);
        self.name == tick.instance && self.node == tick.node && self.boot.as_ref() == boot
    }

    /// Takes one more tick.
    pub(crate) fn hear(&mut self, tick: &Tick, moment: Moment, gap: Duration) -> Place {
        let (place, moment) = self.course.hear(Mark { sequence: tick.sequence, moment }, gap);
        if place == Place::Repeated {
            return place;
        }
        self.hull.include(moment);
        let known = self.stints.iter_mut().find(|stint| stint.token == tick.token);
        if let Some(stint) = known {
            stint.hull.include(moment);
            return place;
        }
        if self.stints.len() == STINTS_MAX {
            self.stints.remove(0);
            self.tokens_forgotten += 1;
        }
        self.stints.push(Stint { token: tick.token, hull: Hull::new(moment, moment) });
        place
    }

    /// Who it is, under this token.
    pub(crate) fn who_under(&self, token: u64) -> Who {
        Who { node: self.node.clone(), instance: self.name.clone(), token }
    }

    /// Who it is, under the token that it came to last.
    pub(crate) fn who(&self) -> Who {
        self.who_under(self.stints.last().map_or(0, |stint| stint.token))
    }

    pub(crate) fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }
}
