// What both rivals share: producers that keep a bounded number of jobs ahead, and a count of those that were done.
import { readFileSync } from 'node:fs'

export const batch = Number(process.env.BATCH ?? 100)
export const producers = Number(process.env.CLIENTS ?? 8)
export const seconds = Number(process.env.SECONDS_EACH ?? 10)
const ahead = batch * producers * 4

let submitted = 0
let done = 0

/** A job was done. */
export const finished = () => { done += 1 }

// Microseconds of processor time that a process and its children of the same name have used.
function cpuOf(pids) {
  let ticks = 0
  for (const pid of pids) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')
      ticks += Number(fields[11]) + Number(fields[12])
    } catch { /* It has ended. */ }
  }
  return ticks * 10_000
}

/** Submits by `add(count)` for as long as is measured, and tells how many jobs were done meanwhile. */
export async function measure(name, add, enginePids) {
  let isOver = false
  const produce = async () => {
    while (!isOver) {
      if (submitted - done + batch > ahead) {
        await new Promise((go) => setTimeout(go, 1))
        continue
      }
      submitted += batch
      await add(batch)
    }
  }
  const all = Array.from({ length: producers }, produce)
  await new Promise((go) => setTimeout(go, 2_000))
  const [from, begun, cpu, engine] = [done, performance.now(), process.cpuUsage(), cpuOf(enginePids())]
  await new Promise((go) => setTimeout(go, seconds * 1_000))
  const runs = done - from
  const used = process.cpuUsage(cpu)
  const report = {
    name,
    batch,
    runs_per_s: Math.round(runs / ((performance.now() - begun) / 1_000)),
    cpu_us_per_run: Math.round((used.user + used.system) / runs),
    engine_cpu_us_per_run: Math.round((cpuOf(enginePids()) - engine) / runs),
  }
  isOver = true
  await Promise.all(all)
  console.log(JSON.stringify(report))
}
