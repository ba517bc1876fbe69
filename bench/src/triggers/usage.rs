//! What processes use, by the operating system's account.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::report::float;
use super::wall_us;

/// The kernel counts processor time for programs in hundredths of a second, on every architecture we run on.
const TICK_US: u64 = 10_000;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// Resident now.
    pub(super) resident: u64,
    /// Most that ever was resident.
    pub(super) peak: u64,
    /// What of it is the process's own, not pages of files.
    pub(super) own: u64,
}

impl Memory {
    pub(super) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let bytes = |name| field(name).unwrap_or_default() * 1_024;
        Self { resident: bytes("VmRSS"), peak: bytes("VmHWM"), own: bytes("RssAnon") }
    }
}

/// What the processor had done at one moment.
pub(super) struct Look {
    at_us: u64,
    /// Of each process.
    processes: Vec<Processor>,
    /// Of the whole machine.
    busy_us: u64,
}

#[derive(Default)]
struct Processor {
    total_us: u64,
    threads: BTreeMap<String, u64>,
}

/// What the processor did between two moments.
pub(super) struct Spent {
    pub(super) elapsed: Duration,
    /// By each process, in the order in which they were named.
    pub(super) processes_us: Vec<u64>,
    /// By the threads of the first process, those that did most first.
    pub(super) threads_us: Vec<(String, u64)>,
    /// Cores that all others kept busy, this process included.
    pub(super) others: f64,
}

impl Look {
    /// Looks at these processes, and the machine.
    pub(super) fn at(pids: &[u32]) -> Self {
        let processes = pids.iter().map(|pid| Processor::of(*pid)).collect();
        Self { at_us: wall_us(), processes, busy_us: busy_us() }
    }

    /// What the first process had done since it was started.
    pub(super) fn total_us(&self) -> u64 {
        self.processes.first().map_or(0, |process| process.total_us)
    }

    /// What was done since.
    pub(super) fn since(self, before: &Self) -> Spent {
        let elapsed_us = self.at_us.saturating_sub(before.at_us).max(1);
        let pairs = || self.processes.iter().zip(&before.processes);
        let processes_us: Vec<u64> =
            pairs().map(|(now, then)| now.total_us.saturating_sub(then.total_us)).collect();
        let mut threads_us: Vec<(String, u64)> =
            pairs().next().map_or_else(Vec::new, |(now, then)| {
                let spent = now.threads.iter().map(|(name, us)| {
                    (name.clone(), us.saturating_sub(then.threads.get(name).copied().unwrap_or(0)))
                });
                spent.collect()
            });
        threads_us.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
        let busy_us = self.busy_us.saturating_sub(before.busy_us);
        let others_us = busy_us.saturating_sub(processes_us.iter().sum());
        Spent {
            elapsed: Duration::from_micros(elapsed_us),
            processes_us,
            threads_us,
            others: float(others_us) / float(elapsed_us),
        }
    }
}

impl Spent {
    /// The threads that did most, and how much of a core each had.
    pub(super) fn threads(&self) -> String {
        let elapsed_us = self.elapsed.as_secs_f64() * 1e6;
        let share = |us: u64| float(us) / elapsed_us * 100.0;
        let shown = self.threads_us.iter().take(8).filter(|(_, us)| share(*us) >= 0.05);
        let texts: Vec<String> =
            shown.map(|(name, us)| format!("{name} {:.1} %", share(*us))).collect();
        texts.join(", ")
    }
}

impl Processor {
    fn of(pid: u32) -> Self {
        let mut processor =
            Self { total_us: time_us(&format!("/proc/{pid}")), threads: BTreeMap::new() };
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return processor };
        let mut precise_us = 0;
        for task in tasks.flatten() {
            let task = task.path().display().to_string();
            let Ok(name) = fs::read_to_string(format!("{task}/comm")) else { continue };
            let us = precise(&task).unwrap_or_else(|| time_us(&task));
            precise_us += us;
            *processor.threads.entry(name.trim_end().to_owned()).or_default() += us;
        }
        // Threads that ended are in the total only, and what is less than a tick is in the threads only.
        processor.total_us = processor.total_us.max(precise_us);
        processor
    }
}

/// Time on a processor in nanoseconds, where the kernel keeps it.
fn precise(task: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{task}/schedstat")).ok()?;
    let nanos: u64 = text.split_whitespace().next()?.parse().ok()?;
    (nanos > 0).then_some(nanos / 1_000)
}

/// Time on a processor, for itself and in the kernel.
fn time_us(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
    // The name, in brackets, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * TICK_US
}

/// Time for which the processors of this machine were busy.
fn busy_us() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; what follows is counted in user already.
    let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|field| fields.get(field));
    busy.sum::<u64>() * TICK_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_thread() {
        let pid = std::process::id();
        let memory = Memory::of(pid);
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
        let spent = Look::at(&[pid]).since(&Look::at(&[pid]));
        assert_eq!(spent.processes_us.len(), 1);
        assert!(!spent.threads_us.is_empty());
    }
}
