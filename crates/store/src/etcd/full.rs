//! What a person types when the database of an etcd has reached its quota.

use std::fmt::Write;

use crate::Address;

/// The commands that make room, as one line for a shell.
pub(super) fn what_to_type(at: &Address, revision: i64) -> String {
    let scheme = if at.scheme == "etcds" { "https" } else { "http" };
    let mut hosts = String::new();
    for host in &at.hosts {
        let comma = if hosts.is_empty() { "" } else { "," };
        let _ = write!(hosts, "{comma}{scheme}://{host}");
    }
    let credentials = match (scheme, &at.user) {
        ("http", None) => "",
        _ => " (with --user and --cacert where they are needed)",
    };
    format!(
        "type this{credentials}, or raise --quota-backend-bytes: \
         export ETCDCTL_API=3 ETCDCTL_ENDPOINTS={hosts}; \
         etcdctl compact {revision}; etcdctl defrag; etcdctl alarm disarm"
    )
}
