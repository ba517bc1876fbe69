//! `watchbell server`: a server for others, who need a key.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use client::Client;
use engine::limits::KEY_FILE_BYTES_MAX;
use engine::notice::webhook_to;
use engine::webhook::Webhook;
use server::access::Trail;
use server::access::audit::AuditRecord;
use server::access::key::KeyText;
use server::access::record::{KeyRecord, KeyScope};
use server::api::{ApiSecurity, ServerTls};
use server::handle::NodeHandle;
use server::node::{HistoryPace, NodeConfig};
use server::peers::ROLES;
use store::{StoreUrl, open_or_create};

use crate::args::serve::ServeArgs;
use crate::exit::{Ending, say};
use crate::serve::{ServePlan, TTL, serve};

/// Who makes the first key.
const ITSELF: &str = "watchbell";

/// Runs until it is told to stop by SIGTERM or SIGINT.
pub(crate) async fn server(typed: &ServeArgs) -> Result<(), Ending> {
    let tls = match (&typed.tls_cert, &typed.tls_key) {
        (Some(cert), Some(key)) => {
            Some(ServerTls::open(cert, key).map_err(|why| Ending::wrong_input(why.to_string()))?)
        }
        (None, None) => None,
        // They may come from different layers of settings, so the parser cannot see to it.
        (Some(_), None) => {
            return Err(Ending::wrong_input(
                "--tls-cert needs the key of that certificate: give --tls-key",
            ));
        }
        (None, Some(_)) => {
            return Err(Ending::wrong_input(
                "--tls-key needs the certificate of that key: give --tls-cert",
            ));
        }
    };
    if !typed.listen.ip().is_loopback() && tls.is_none() && !typed.insecure {
        return Err(Ending::wrong_input(format!(
            "--listen: {} can be reached from elsewhere, and keys would cross the network for everybody to read: give \
             --tls-cert and --tls-key, or say --insecure if something in front of this server encrypts",
            typed.listen.ip()
        )));
    }
    if let Some(url) = &typed.url {
        let known = Client::builder(url).build();
        known.map_err(|why| Ending::wrong_input(format!("--url: {why}")))?;
    }
    let url = StoreUrl::parse(&typed.store)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let security = security(typed, tls)?;
    let notify = typed.notify_url.as_deref().map(webhook_to).transpose();
    let notify = notify.map_err(|why| Ending::wrong_input(format!("--notify-url: {why}")))?;
    let plan = ServePlan {
        listen: typed.listen,
        webhook_ca: typed.webhook_ca.as_deref(),
        store: open_or_create(&url),
        config: |at| config(typed, at, scheme, notify),
        security,
    };
    serve(
        plan,
        async |at, handle| {
            let is_new = first_key(handle, &typed.admin_key_file).await?;
            tell(at, scheme, typed, is_new);
            Ok(())
        },
        async || {},
    )
    .await
}

/// How people are let in, and other servers asked.
fn security(typed: &ServeArgs, tls: Option<ServerTls>) -> Result<ApiSecurity, Ending> {
    let mut security = ApiSecurity::locked();
    if let Some(tls) = tls {
        security = security.encrypted(tls);
    }
    let Some(path) = &typed.peer_ca else { return Ok(security) };
    security.trusting_peers(path).map_err(|why| Ending::wrong_input(format!("--peer-ca: {why}")))
}

fn config(typed: &ServeArgs, at: SocketAddr, scheme: &str, notify: Option<Webhook>) -> NodeConfig {
    if typed.url.is_none() && at.ip().is_unspecified() {
        tracing::warn!(
            "nobody can tell from {at} where this server is reached: other servers need --url"
        );
    }
    NodeConfig {
        id: typed.node.clone().unwrap_or_else(host_name),
        url: Some(typed.url.clone().unwrap_or_else(|| format!("{scheme}://{at}"))),
        roles: roles(typed),
        ttl: TTL,
        webhook_allow: typed.webhook_allow.clone(),
        webhook_ca: typed.webhook_ca.clone(),
        notify,
        history: HistoryPace::default(),
        shards: typed.shards,
    }
}

/// The roles that were named, each of them once.
fn roles(typed: &ServeArgs) -> Vec<String> {
    let named = |role: &str| typed.roles.iter().any(|typed| typed == role);
    ROLES.into_iter().filter(|role| named(role)).map(str::to_owned).collect()
}

/// The name of this machine, as far as it can be the name of a node.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let first = name.split('.').next().unwrap_or_default();
    let fits = |char: &char| char.is_ascii_alphanumeric() || *char == '-';
    let name: String = first.chars().filter(fits).take(63).collect();
    if name.is_empty() { "server".to_owned() } else { name }
}

/// Makes sure that somebody can come in: if there is no admin's key, the one in this file becomes one, and if there
/// is no such file, a new one is written there. The file comes first: a key that nobody has would be of no use.
/// Whether a key was made.
async fn first_key(handle: &NodeHandle, path: &Path) -> Result<bool, Ending> {
    let access = handle.access();
    if access.book().keys().any(|key| key.is_admin()) {
        return Ok(false);
    }
    let bad =
        |why: String| Ending::wrong_input(format!("--admin-key-file {}: {why}", path.display()));
    let found = read_key(path).map_err(|why| bad(why.to_string()))?;
    let is_found = found.is_some();
    let text = if let Some(text) = found {
        let other = "there is something else in it than a key: move it away, or give another path";
        KeyText::parse(text.trim()).ok_or_else(|| bad(other.to_owned()))?
    } else {
        let text = KeyText::draw(handle.machine(), handle.now());
        let failed =
            |why| format!("the first key cannot be written there: {why}; give another path");
        write_key(path, &text).map_err(|why| bad(failed(why)))?;
        text
    };
    let audit = AuditRecord {
        at: handle.now(),
        action: "key.create".to_owned(),
        object: text.id().to_string(),
        project: None,
        author: ITSELF.to_owned(),
        key: None,
        address: None,
        via: None,
        request_id: "start".to_owned(),
    };
    let of = |id, tag, created| KeyRecord {
        id,
        name: "first admin".to_owned(),
        project: None,
        scopes: vec![KeyScope::Admin],
        tag,
        created,
        author: ITSELF.to_owned(),
        expires: None,
    };
    let made = access.create_first_key(&text, &Trail::of(audit), of).await;
    let is_made =
        made.map_err(|why| Ending::failed(format!("the first key could not be stored: {why}")))?;
    if !is_made && !is_found {
        // Another server was faster, and this is nobody's key. If it stays, it opens nothing.
        let _ = std::fs::remove_file(path);
    }
    Ok(is_made)
}

/// What is in the file; nothing, if there is none, or nothing was written to it before a crash.
fn read_key(path: &Path) -> io::Result<Option<String>> {
    use io::Read;
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    if !about.is_file() {
        return Err(io::Error::other("it is no file: give the path of one"));
    }
    if about.len() == 0 {
        return Ok(None);
    }
    if about.mode() & 0o077 != 0 {
        say(&format!("{} can be read by others than its owner: chmod 600 it", path.display()));
    }
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// For its owner alone, and safe on the disk before anybody relies on it.
fn write_key(path: &Path, text: &KeyText) -> io::Result<()> {
    let is_empty = std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == 0);
    if is_empty {
        std::fs::remove_file(path)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{}\n", text.reveal()).as_bytes())?;
    file.sync_all()
}

/// Says where it is. Who has closed stdout has had enough of it; the server goes on.
fn tell(at: SocketAddr, scheme: &str, typed: &ServeArgs, is_new: bool) {
    let path = typed.admin_key_file.display();
    let key = if is_new {
        format!(
            "The first admin key is in {path}, for its owner alone. Try:\n\n  \
             watchbell trigger list --server {scheme}://{at} --key-file {path}\n"
        )
    } else {
        "Whoever asks something needs a key.\n".to_owned()
    };
    let text = format!("Watchbell listens on {scheme}://{at}.\n{key}");
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(why) = told {
        say(&format!("listening on {scheme}://{at}, which could not be said on stdout: {why}"));
    }
}
