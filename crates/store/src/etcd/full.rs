//! What a person types when the database of an etcd has reached its quota.

use std::fmt::Write;

use crate::Address;

/// The present revision, where we do not know it.
const LOOKED_UP: &str = "$(etcdctl endpoint status -w json | \
                         grep -o '\"revision\":[0-9]*' | head -n 1 | cut -d : -f 2)";

/// The commands that make room, as one connection for a shell.
pub(super) fn what_to_type(at: &Address, revision: Option<i64>) -> String {
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
    let revision = revision.map_or_else(|| LOOKED_UP.to_owned(), |revision| revision.to_string());
    format!(
        "type this{credentials}, or raise --quota-backend-bytes: \
         export ETCDCTL_API=3 ETCDCTL_ENDPOINTS={hosts}; \
         etcdctl compact {revision}; etcdctl defrag; etcdctl alarm disarm"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;

    #[test]
    fn what_to_type_names_all_members_and_no_password() {
        let StoreUrl::Etcd(at) = StoreUrl::parse("etcds://me:hunter2@a,b:1").unwrap() else {
            panic!("an etcd")
        };
        let typed = what_to_type(&at, Some(7));
        assert!(typed.contains("ETCDCTL_ENDPOINTS=https://a:2379,https://b:1; "), "{typed}");
        assert!(
            typed.contains("etcdctl compact 7; etcdctl defrag; etcdctl alarm disarm"),
            "{typed}"
        );
        assert!(typed.contains("--user") && !typed.contains("hunter2"), "{typed}");
        assert!(what_to_type(&at, None).contains("compact $(etcdctl endpoint status"));
    }
}
