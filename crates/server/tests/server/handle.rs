//! A dispatcher with a scripted resolver and a clock that can be moved, and what comes out of it.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::lease::Reading;
use engine::limits::WEBHOOK_TIMEOUT_MAX;
use engine::outcome::{NotSent, Outcome};
use engine::webhook::{Method, Webhook};
use server::webhook::{Call, Config, Dispatcher, FinishedCall, Resolver};
use store::Pending;
use store::machine::{Machine, System};
use tokio::sync::mpsc;

/// The wall clock stands here: 2027-01-15T08:00:00Z.
pub(crate) const WALL_SECOND: u64 = 1_800_000_000;

/// A machine whose monotonic clock can be moved forward, and whose wall clock stands.
#[derive(Default)]
pub(crate) struct Moved {
    by_ms: AtomicU64,
}

impl Moved {
    pub(crate) fn forward(&self, length: Duration) {
        let ms = u64::try_from(length.as_millis()).expect("tests are short");
        self.by_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Machine for Moved {
    fn reading(&self) -> Reading {
        let by = Duration::from_millis(self.by_ms.load(Ordering::Relaxed));
        let Reading { boot, raw } = System.reading();
        Reading { boot: boot + by, raw: raw + by }
    }

    fn wall_us(&self) -> u64 {
        WALL_SECOND * 1_000_000
    }

    fn random(&self) -> u64 {
        System.random()
    }

    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        System.sleep(length)
    }
}

/// Names with the answers that they give, one after the other; the last one stays.
#[derive(Default)]
pub(crate) struct Script {
    names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) asked: AtomicUsize,
}

impl Script {
    pub(crate) fn set(&self, name: &str, answers: &[&[&str]]) {
        let read = |answer: &&[&str]| {
            answer.iter().map(|address| address.parse().expect("an address")).collect()
        };
        let answers = answers.iter().map(read).collect();
        self.names.lock().unwrap().insert(name.to_owned(), answers);
    }
}

impl Resolver for Script {
    fn resolve(&self, name: &str) -> Pending<'static, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut names = self.names.lock().unwrap();
        let answer = names
            .get_mut(name)
            .map(|answers| if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() });
        let answer = answer.ok_or_else(|| io::Error::other("there is no such name"));
        Box::pin(async move { answer })
    }
}

/// A dispatcher and its surroundings.
pub(crate) struct NodeHandle {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) machine: Arc<Moved>,
    pub(crate) script: Arc<Script>,
    /// Whether the node may act.
    pub(crate) may_act: Arc<AtomicBool>,
    results: mpsc::UnboundedReceiver<FinishedCall>,
    keys: u64,
}

impl NodeHandle {
    /// One that may call this machine.
    pub(crate) fn local() -> Self {
        Self::with(|config| config.allow = vec!["127.0.0.0/8".parse().unwrap()])
    }

    /// One that may call public addresses only, but for what `change` does to it.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (machine, script) = (Arc::<Moved>::default(), Arc::<Script>::default());
        let may_act = Arc::new(AtomicBool::new(true));
        let permit = Arc::clone(&may_act);
        let mut config = Config::new(Arc::new(move || permit.load(Ordering::Relaxed)));
        config.resolver = Arc::clone(&script) as Arc<dyn Resolver>;
        change(&mut config);
        let (told, results) = mpsc::unbounded_channel();
        let on = Arc::clone(&machine) as Arc<dyn Machine>;
        let dispatcher = Dispatcher::start(&config, &on, &told).expect("it starts");
        Self { dispatcher, machine, script, may_act, results, keys: 0 }
    }

    /// Sends a call; its key comes back.
    pub(crate) fn send(&mut self, webhook: Webhook) -> u64 {
        self.send_by(webhook, None)
    }

    /// Sends a call that does not leave after an instant.
    pub(crate) fn send_by(&mut self, webhook: Webhook, leave_by: Option<Instant>) -> u64 {
        self.keys += 1;
        self.dispatcher.send(Call {
            key: self.keys,
            project: ProjectId::DEFAULT,
            run: format!("run_{}", self.keys).into(),
            attempt: 3,
            scheduled: Instant::from_second(1_799_999_999),
            leave_by,
            token: 77,
            form: webhook.form,
            path: webhook.path,
            body: webhook.body.map(|body| body.into_string().into()),
        });
        self.keys
    }

    /// The next end of a call.
    pub(crate) async fn next(&mut self) -> FinishedCall {
        let next = tokio::time::timeout(Duration::from_secs(30), self.results.recv()).await;
        next.expect("a call ends within 30 s").expect("the dispatcher runs")
    }

    /// Sends a call and waits for its end.
    pub(crate) async fn call(&mut self, webhook: Webhook) -> FinishedCall {
        let key = self.send(webhook);
        let finished = self.next().await;
        assert_eq!(finished.key, key);
        finished
    }

    /// Stops, and gives whatever had not been taken yet.
    pub(crate) fn stop(mut self) -> Vec<FinishedCall> {
        self.dispatcher.stop();
        let mut rest = Vec::new();
        while let Ok(finished) = self.results.try_recv() {
            rest.push(finished);
        }
        rest
    }
}

/// A GET that may take as long as any.
pub(crate) fn get(url: &str) -> Webhook {
    Webhook::new(url, Method::Get, vec![], None, None, WEBHOOK_TIMEOUT_MAX).expect("a good one")
}

/// A GET that may take no longer than this, also less than a person may ask for.
pub(crate) fn hasty(url: &str, timeout_ms: u32) -> Webhook {
    let mut webhook = get(url);
    Arc::make_mut(&mut webhook.form).timeout_ms = timeout_ms;
    webhook
}

/// The status of an answer.
#[track_caller]
pub(crate) fn status(finished: &FinishedCall) -> u16 {
    match finished.outcome {
        Outcome::Answered { status, .. } => status,
        Outcome::NotSent { .. } | Outcome::Lost { .. } => panic!("{finished:?}"),
    }
}

#[track_caller]
pub(crate) fn check_not_sent(finished: &FinishedCall, expected: NotSent, said: &str) {
    assert_eq!(finished.outcome, Outcome::NotSent { why: expected }, "{finished:?}");
    let sentence = finished.error.as_deref().expect("there is a sentence");
    assert!(sentence.contains(said), "{sentence}");
}
