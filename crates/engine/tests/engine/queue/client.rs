//! Clients: they submit, cancel, pause and redrive, and ask again until they are answered.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::world::{Event, Message, Reply, Said, Sender, World};

#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Runs that were acknowledged, by the key under which they were submitted.
    pub(super) acknowledged: BTreeMap<u64, u64>,
    /// Runs of which somebody was told that they will end.
    pub(super) cancelled: BTreeSet<u64>,
    questions: Vec<Question>,
    is_pausing: bool,
    pauses: u64,
}

#[derive(Debug)]
struct Question {
    said: Rc<Said>,
    is_answered: bool,
}

impl World {
    pub(super) fn client(&mut self) {
        if self.is_chaos_over() {
            return;
        }
        let what = self.chance.below(100);
        if what < 80 {
            let key = self.clients.questions.len() as u64;
            self.question(Said::Submit(key));
        } else if what < 95 {
            let runs: Vec<u64> = self.clients.acknowledged.values().copied().collect();
            if !runs.is_empty() {
                let run = self.chance.one_of(&runs);
                self.question(Said::Cancel(run));
            }
        } else if !self.clients.is_pausing {
            self.clients.is_pausing = true;
            self.clients.pauses += 1;
            self.question(Said::Pause(self.clients.pauses * 2 - 1));
        }
        if self.has_redrives && self.chance.happens(300) {
            let dead: Vec<u64> = self.store.dead().collect();
            if !dead.is_empty() {
                let run = self.chance.one_of(&dead);
                self.question(Said::Redrive(run));
            }
        }
        let wait = self.chance.between(200, if self.has_cuts { 4_000 } else { 2_000 });
        self.after(wait, Event::Client);
    }

    pub(super) fn resume(&mut self) {
        self.store.is_paused = false;
        self.question(Said::Pause(self.clients.pauses * 2));
    }

    fn question(&mut self, said: Said) {
        self.clients.questions.push(Question { said: Rc::new(said), is_answered: false });
        self.ask(self.clients.questions.len() - 1);
    }

    /// Asks any server, unless there was an answer.
    pub(super) fn ask(&mut self, number: usize) {
        let question = &self.clients.questions[number];
        if question.is_answered {
            return;
        }
        let message = Message { said: Rc::clone(&question.said), sender: Sender::Client(number) };
        let server = self.chance.index(self.servers.len());
        if !self.is_lost(50) {
            let delay = self.net_delay();
            self.after(delay, Event::Posted(server, message));
        }
        self.after(1_500, Event::AsksAgain(number));
    }

    pub(super) fn answered(&mut self, number: usize, reply: &Reply) {
        let question = &mut self.clients.questions[number];
        let is_first = !question.is_answered;
        question.is_answered |= !matches!(reply, Reply::No);
        match (&*question.said, reply) {
            (Said::Submit(key), Reply::Run(run)) => {
                let first = *self.clients.acknowledged.entry(*key).or_insert(*run);
                let is_other = self.store.origin(first) != self.store.origin(*run);
                self.store.bad("one key, two runs", is_other);
            }
            (Said::Cancel(run), Reply::Done(true)) if is_first => {
                self.clients.cancelled.insert(*run);
            }
            (Said::Pause(to), Reply::Done(_)) if is_first => {
                if to % 2 == 0 {
                    self.clients.is_pausing = false;
                } else {
                    self.store.is_paused = true;
                    let wait = self.chance.between(500, 3_000);
                    self.after(wait, Event::Resume);
                }
            }
            _ => {}
        }
    }
}
