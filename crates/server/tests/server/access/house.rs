//! A real node behind a locked door, and a way to ask it anything in any way.

use client::key::{NewKey, Scope};
use client::project::NewProject;
use serde_json::{Value, json};
use server::access::Trail;
use server::access::audit::AuditRecord;
use server::access::record::{KeyRecord, KeyScope};
use server::api::ApiSecurity;
use server::handle::NodeHandle;

use crate::server::node::world::{Running, World};
pub(super) use rig::{Answer, Ask};

/// A Friday.
pub(super) const NOON: &str = "2027-01-15T12:00:00Z";

/// A server with keys.
pub(super) struct House {
    pub(super) world: World,
    pub(super) running: Running,
    /// The text of an admin's key.
    pub(super) admin: String,
}

impl House {
    pub(super) async fn open() -> Self {
        Self::of(World::new()).await
    }

    pub(super) async fn of(world: World) -> Self {
        let running = world.start_behind(NOON, locked()).await;
        let admin = first_admin(&running.handle).await;
        Self { world, running, admin }
    }

    /// Kills the node, and starts another on the same store.
    pub(super) async fn restart(self, wall: &str) -> Self {
        let Self { world, running, admin } = self;
        running.kill();
        let running = world.start_behind(wall, locked()).await;
        Self { world, running, admin }
    }

    /// A request of an admin.
    pub(super) fn ask(&self, method: &str, path: &str) -> Ask {
        Ask::new(self.running.address, method, path).key(&self.admin)
    }

    /// A request of somebody with this key.
    pub(super) fn ask_as(&self, key: &str, method: &str, path: &str) -> Ask {
        Ask::new(self.running.address, method, path).key(key)
    }

    /// Makes a project.
    pub(super) async fn project(&self, name: &str) -> NewProject {
        self.ask("POST", "/v1/projects").body(&json!({ "name": name })).await.is(201).read()
    }

    /// Makes a key for a project, and gives its text.
    pub(super) async fn key(&self, project: &str, scopes: &[Scope]) -> String {
        let body = json!({ "name": "test", "scopes": scopes });
        let ask = self.ask("POST", "/v1/keys").header("watchbell-project", project);
        let made: NewKey = ask.body(&body).await.is(201).read();
        made.secret.expect("a new key is told")
    }

    /// A trigger that calls the receiver every second, as JSON.
    pub(super) fn secondly(&self, name: &str) -> Value {
        let mut spec = self.world.spec(name).cron("* * * * * *");
        spec.catch_up = Some(client::spec::CatchUp::Skip);
        serde_json::to_value(spec).unwrap()
    }

    /// A trigger that is run on demand, as JSON.
    pub(super) fn on_demand(&self, name: &str) -> Value {
        serde_json::to_value(self.world.spec(name)).unwrap()
    }
}

pub(super) fn locked() -> ApiSecurity {
    ApiSecurity::locked()
}

/// Makes the key of the first admin, and gives its text.
pub(in crate::server) async fn first_admin(handle: &NodeHandle) -> String {
    let audit = AuditRecord {
        at: handle.now(),
        action: "key.create".to_owned(),
        object: String::new(),
        project: None,
        author: "test".to_owned(),
        key: None,
        address: None,
        via: None,
        request_id: "start".to_owned(),
    };
    let of = |id, tag, created| KeyRecord {
        id,
        name: "admin".to_owned(),
        project: None,
        scopes: vec![KeyScope::Admin],
        tag,
        created,
        author: "test".to_owned(),
        expires: None,
    };
    let (_, text) = handle.access().create_key(&Trail::of(audit), of).await.unwrap();
    text.reveal().to_owned()
}
