//! What keeps the processes of a tree together, so that none gets away.

use std::fmt;

/// How a tree is kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// A PID namespace, made with the privileges of the supervisor (`CAP_SYS_ADMIN`).
    Namespace,
    /// A PID namespace within a user namespace: needs no privileges, only that they are permitted. The program has no
    /// other user or group than its own there.
    UserNamespace,
    /// A cgroup (version 2) that is killed as a whole. Only a process that may write to other cgroups gets out of it.
    Cgroup,
    /// A process group, and whatever a walk of `/proc` finds to descend from the shim: the weak kill.
    Group,
}

impl Isolation {
    /// All of them, the strongest first: the order in which they are tried.
    pub const LADDER: [Self; 4] = [Self::Namespace, Self::UserNamespace, Self::Cgroup, Self::Group];

    /// Whether a tree is ended by looking for its processes, instead of by the kernel.
    pub fn is_weak(self) -> bool {
        self == Self::Group
    }

    /// Whether the kernel ends the tree with its first process.
    pub(crate) fn is_namespace(self) -> bool {
        matches!(self, Self::Namespace | Self::UserNamespace)
    }

    /// The word for it: in settings, messages and between our own processes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::UserNamespace => "user-namespace",
            Self::Cgroup => "cgroup",
            Self::Group => "group",
        }
    }

    /// The one of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::LADDER.into_iter().find(|isolation| isolation.word() == word)
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group => out.write_str("group (weak kill)"),
            other => out.write_str(other.word()),
        }
    }
}

/// Which isolation is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The strongest that is permitted here.
    Auto,
    /// The stronger of the two namespaces that is permitted here, or the program is not started.
    Namespace,
    /// This one, or the program is not started.
    Exactly(Isolation),
}

impl Wanted {
    /// The one of a word that people type: `auto`, `namespace`, `cgroup` or `group`.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "auto" => Self::Auto,
            "namespace" => Self::Namespace,
            "cgroup" => Self::Exactly(Isolation::Cgroup),
            "group" => Self::Exactly(Isolation::Group),
            _ => return None,
        })
    }

    /// Whether this isolation would do.
    pub(crate) fn admits(self, isolation: Isolation) -> bool {
        match self {
            Self::Auto => true,
            Self::Namespace => isolation.is_namespace(),
            Self::Exactly(one) => isolation == one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_either_of_two_and_everything_else_is_what_it_says() {
        for (word, admitted) in [
            ("auto", &Isolation::LADDER[..]),
            ("namespace", &[Isolation::Namespace, Isolation::UserNamespace]),
            ("cgroup", &[Isolation::Cgroup]),
            ("group", &[Isolation::Group]),
        ] {
            let wanted = Wanted::of_word(word).unwrap();
            let all = Isolation::LADDER.into_iter().filter(|it| wanted.admits(*it));
            assert_eq!(all.collect::<Vec<_>>(), admitted, "{word}");
        }
        assert_eq!(Wanted::of_word("user-namespace"), None);
    }
}
