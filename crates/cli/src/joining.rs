//! How whoever campaigns gets at its store, and a session in it.
//!
//! A store that cannot be reached is waited for, since it may be started after us; whatever else is wrong at the start is for a
//! person to mend, and ends it. Later nothing does.

use std::sync::Arc;
use std::time::Duration;

use store::claim::Claim;
use store::machine::{Machine, System};
use store::session::{NodeInfo, Session, SessionDriver, SessionError, bury_local};
use store::{CommitError, EngineFault, OpenError, Refusal, Store, StoreUrl, open_or_create};
use tokio::time::sleep;

use crate::exit::Ending;

/// How long after a store could not be reached it is tried again, and how often that is told.
const AWAY_PAUSE: Duration = Duration::from_millis(500);
const AWAY_TOLD_EVERY: u32 = 60;

/// What is needed to campaign.
pub(crate) struct Joining<'a> {
    pub(crate) url: &'a StoreUrl,
    pub(crate) claim: &'a Claim,
    pub(crate) node: &'a NodeInfo,
    /// How long a store that cannot be reached is waited for; for ever, if it is not said.
    pub(crate) wait: Option<Duration>,
    /// Who is told what is in the way.
    pub(crate) trouble: &'a (dyn Fn(&str) + Sync),
}

impl Joining<'_> {
    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<Store, Ending> {
        let begun = System.reading();
        let mut tries = 0;
        loop {
            let why = match open_or_create(self.url).await {
                Ok(store) => {
                    bury_local(&store).await.map_err(|why| Ending::failed(why.to_string()))?;
                    self.check_project(&store)?;
                    return Ok(store);
                }
                Err(why) => why,
            };
            let is_away = matches!(&why, OpenError::Engine { fault: EngineFault::Unreachable, .. });
            let waited = System.reading().least_since(begun);
            if !is_away || self.wait.is_some_and(|most| waited >= most) {
                (self.trouble)(&why.to_string());
                return Err(why.into());
            }
            if tries % AWAY_TOLD_EVERY == 0 {
                (self.trouble)(&format!("{why}; it is waited for"));
            }
            tries += 1;
            sleep(AWAY_PAUSE).await;
        }
    }

    /// Through a server one takes part in the elections of one's own project alone.
    fn check_project(&self, store: &Store) -> Result<(), Ending> {
        let Some(project) = store.guest() else { return Ok(()) };
        if self.claim.key().as_str().starts_with(&format!("election/{project}/")) {
            return Ok(());
        }
        let why = format!("this key is for the project {project}: give --project {project}");
        (self.trouble)(&why);
        Err(Ending::wrong_input(why))
    }

    /// Opens a session, however long that takes. Only at the start it may be refused.
    pub(crate) async fn session(
        &self,
        store: &Store,
        former: Option<&Session>,
    ) -> Result<(Session, SessionDriver), Ending> {
        let is_first = former.is_none();
        let machine: Arc<dyn Machine> = Arc::new(System);
        let mut told = None;
        loop {
            let why = match Session::open_after(former, store, &machine, self.node).await {
                Ok(opened) => return Ok(opened),
                Err(why) => why,
            };
            let sentence = why.to_string();
            if told.as_ref() != Some(&sentence) {
                (self.trouble)(&sentence);
                told = Some(sentence.clone());
            }
            match why {
                SessionError::AlreadyLive { .. } if is_first => {
                    return Err(Ending::unreachable(sentence));
                }
                SessionError::Corrupt(_) if is_first => return Err(Ending::damaged(sentence)),
                // What the store will not take today it will not take tomorrow, unless it is out of room.
                SessionError::Refused(why) if is_first && !matches!(why, Refusal::Full { .. }) => {
                    return Err(CommitError::Refused(why).into());
                }
                SessionError::AlreadyLive { .. }
                | SessionError::Corrupt(_)
                | SessionError::Unavailable(_)
                | SessionError::Refused(_) => sleep(AWAY_PAUSE).await,
            }
        }
    }
}
