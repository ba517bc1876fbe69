//! From a name to addresses.
//!
//! The system's resolver blocks, for up to half a minute when a name server is down. So it runs on threads of
//! its own, of which there are a few; one name takes one thread at most, because those who want the same name
//! wait for the same answer. An answer is used again for a few seconds, also a bad one: a fleet of calls to one
//! host asks once.
//!
//! The guard judges what comes out of here, at each connection.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use engine::limits::NAME_AGE_MAX;
use store::Pending;
use store::machine::Machine;
use tokio::sync::Mutex;

/// Look-ups at once, per sender. Each takes a thread.
pub(super) const THREADS_MAX: usize = 32;

/// Looks names up. The real one is [`SystemResolver`]; tests have scripts.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of a name, best first. Runs inside of a tokio runtime.
    fn resolve(&self, name: &str) -> Pending<'static, io::Result<Vec<IpAddr>>>;
}

/// What this machine's programs use: its hosts file, its name servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> Pending<'static, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let looked_up = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs()?;
                io::Result::Ok(found.map(|address| address.ip()).collect())
            });
            looked_up.await.map_err(io::Error::other)?
        })
    }
}

/// The addresses of one name, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Name {
    known: Mutex<Option<KnownAddresses>>,
}

#[derive(Debug, Clone)]
struct KnownAddresses {
    found: Result<Arc<[IpAddr]>, String>,
    good_until: Duration,
}

impl Name {
    /// Its addresses, or a sentence that says why there are none.
    pub(super) async fn addresses(
        &self,
        name: &str,
        resolver: &dyn Resolver,
        machine: &dyn Machine,
    ) -> Result<Arc<[IpAddr]>, String> {
        let mut known = self.known.lock().await;
        if let Some(answer) = &*known
            && machine.reading().raw < answer.good_until
        {
            return answer.found.clone();
        }
        let found = match resolver.resolve(name).await {
            Ok(found) if found.is_empty() => Err(format!("the name {name} has no address")),
            Ok(found) => Ok(found.into()),
            Err(why) => Err(format!("the name {name} was not found: {why}")),
        };
        let good_until = machine.reading().raw + NAME_AGE_MAX;
        *known = Some(KnownAddresses { found: found.clone(), good_until });
        found
    }
}
