//! Islands: a network of its own for each machine, in which packets are lost as on a wire.
//!
//! The test runs again in a network namespace where nobody else is ([`run_apart`]), so that names and addresses need not
//! be unique, an ordinary user may do all this, and the kernel removes everything with the last process. There it makes a
//! hub, and islands around it, each a namespace more. Everybody has two addresses: one for each other and for receivers of
//! webhooks, and one for what goes between the store (at the hub) and its clients.
//!
//! A packet is lost because it is sent to a hardware address that nobody has: it leaves, it travels, and whoever gets it
//! drops it. Nothing is told to the sender, which is what a firewall that drops or a broken switch does; the
//! [`Road`](rig::Road) confirms what it does not pass on. No more is needed than `ip`.

use std::ffi::OsStr;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

/// Where the hub is for everybody, the test and its receivers among them.
pub(in crate::dev) const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Where the hub is for clients of the store.
pub(in crate::dev) const STORE: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);

/// What a Watchbell server on an island needs to be told.
pub(super) const FLAGS: &[&str] = &["--insecure", "--webhook-allow", "10.77.0.0/24"];

/// Set in the process that has a network of its own.
const APART: &str = "WATCHBELL_TEST_APART";

/// The hardware address of nobody.
const NOBODY: u8 = 255;

/// Which packets are lost between a machine and its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dev) enum Lost {
    Nothing,
    /// What the machine says.
    There,
    /// What the store says.
    Back,
    Both,
}

/// Whether this process has a network of its own.
pub(in crate::dev) fn is_apart() -> bool {
    std::env::var_os(APART).is_some()
}

/// Runs this test of this binary in a network of its own, and expects that it passes.
pub(in crate::dev) fn run_apart(test: &str) {
    let mut command = Command::new("unshare");
    if !rig::is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--net").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(APART, "");
    let done = command.output().unwrap_or_else(|why| missing("unshare", &why));
    let said = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    print!("{said}");
    assert!(done.status.success() && said.contains("1 passed"), "{errors}");
}

/// Makes the hub, to which all islands are tied.
pub(in crate::dev) fn make_hub() {
    assert!(is_apart(), "nothing is changed in a network that others use");
    ip("link set lo up");
    ip(&format!("link add hub address {} type bridge", hardware(1)));
    ip("link set hub up");
    ip(&format!("address add {HUB}/24 dev hub"));
    ip(&format!("address add {STORE}/24 dev hub"));
}

/// A network with one wire, to the hub. Gone when dropped, with the processes in it.
pub(in crate::dev) struct Island {
    number: u8,
    /// Keeps it: ends with the test, even when that is killed, since nothing can be read any more then.
    keeper: Child,
}

impl Island {
    /// Makes one; the hub is number 1.
    pub(in crate::dev) fn make(number: u8) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo && exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().unwrap_or_else(|why| missing("unshare", &why));
        let said = keeper.stdout.as_mut().unwrap().read_exact(&mut [0]);
        let island = Self { number, keeper };
        said.expect("it says that it is there");
        let (address, keeper) = (hardware(number), island.keeper.id());
        let there = format!("name eth0 address {address} netns {keeper}");
        ip(&format!("link add wire-{number} type veth peer {there}"));
        ip(&format!("link set wire-{number} master hub up"));
        island.ip("link set lo up");
        island.ip("link set eth0 up");
        for address in [island.address(), island.store_address()] {
            island.ip(&format!("address add {address}/24 dev eth0"));
        }
        island.lose(Lost::Nothing);
        island
    }

    /// Where others reach whoever is there.
    pub(in crate::dev) fn address(&self) -> Ipv4Addr {
        let [a, b, c, _] = HUB.octets();
        [a, b, c, self.number].into()
    }

    /// What it is for the store.
    fn store_address(&self) -> Ipv4Addr {
        let [a, b, c, _] = STORE.octets();
        [a, b, c, self.number].into()
    }

    /// A command that becomes this program, there.
    pub(in crate::dev) fn enter(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id())).arg(program);
        command
    }

    /// Which packets are lost between this island and the store from now on; all others arrive.
    pub(in crate::dev) fn lose(&self, lost: Lost) {
        let (there, back) = match lost {
            Lost::Nothing => (1, self.number),
            Lost::There => (NOBODY, self.number),
            Lost::Back => (1, NOBODY),
            Lost::Both => (NOBODY, NOBODY),
        };
        self.ip(&format!("neighbour replace {STORE} dev eth0 {}", bound_to(there)));
        ip(&format!("neighbour replace {} dev hub {}", self.store_address(), bound_to(back)));
    }

    fn ip(&self, words: &str) {
        run(self.enter("ip"), words);
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// The hardware address of this number.
fn hardware(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

fn bound_to(number: u8) -> String {
    format!("lladdr {} nud permanent", hardware(number))
}

fn ip(words: &str) {
    run(Command::new("ip"), words);
}

fn run(mut command: Command, words: &str) {
    let done = command.args(words.split(' ')).output();
    let done = done.unwrap_or_else(|why| missing("ip", &why));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn missing(tool: &str, why: &std::io::Error) -> ! {
    panic!("{tool} does not start ({why}): install it with scripts/need test")
}
