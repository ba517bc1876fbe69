// What the rivals in Node share: workers in processes of their own, producers that keep a bounded number of jobs ahead, and a
// count of those that were done.
import { fork } from 'node:child_process'
import { readFileSync } from 'node:fs'

const batch = Number(process.env.BATCH ?? 100)
const producers = Number(process.env.CLIENTS ?? 8)
const seconds = Number(process.env.SECONDS_EACH ?? 10)
const processes = Number(process.env.PROCESSES ?? 2)
const ahead = batch * producers * 4

let done = 0

/** This process is one that works. */
export const isWorker = process.argv[2] === 'work'

/** A job was done, in a process that works. */
export const finished = () => { done += 1 }

/** Says that this process works from now on, and how many it has done, a hundred times a second. */
export function working() {
  let told = -1
  setInterval(() => {
    if (told !== done) process.send(told = done)
  }, 10)
}

// Processes that work, which have said so.
async function workers(script) {
  const done = Array(processes).fill(0)
  const children = done.map(() => fork(script, ['work']))
  for (const child of children) child.on('exit', (code) => { if (code) process.exit(1) })
  await Promise.all(children.map((child, place) => new Promise((isReady) => {
    child.on('message', (count) => { isReady(); done[place] = count })
  })))
  return { children, done: () => done.reduce((sum, count) => sum + count) }
}

// Microseconds of processor time that processes have used.
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

/**
 * Submits by `add(count)` for as long as is measured, and tells how many jobs were completed meanwhile. `left()` says how many are
 * in the engine, where a job is done before that is durable.
 */
export async function measure({ name, script, add, left, enginePids }) {
  const { children, done } = await workers(script)
  let [submitted, added, isOver] = [0, 0, false]
  const produce = async () => {
    while (!isOver) {
      if (submitted - done() + batch > ahead) {
        await new Promise((go) => setTimeout(go, 1))
        continue
      }
      submitted += batch
      await add(batch)
      added += batch
    }
  }
  const completed = async () => left ? added - await left() : done()
  const own = () => cpuOf([process.pid, ...children.map((child) => child.pid)])
  const all = Array.from({ length: producers }, produce)
  await new Promise((go) => setTimeout(go, 2_000))
  const [from, begun, cpu, engine] = [await completed(), performance.now(), own(), cpuOf(enginePids())]
  await new Promise((go) => setTimeout(go, seconds * 1_000))
  const runs = await completed() - from
  const report = {
    name,
    batch,
    runs_per_s: Math.round(runs / ((performance.now() - begun) / 1_000)),
    cpu_us_per_run: Math.round((own() - cpu) / runs),
    engine_cpu_us_per_run: Math.round((cpuOf(enginePids()) - engine) / runs),
  }
  isOver = true
  await Promise.all(all)
  for (const child of children) child.kill()
  await Promise.all(children.map((child) => new Promise((go) => child.on('exit', go))))
  console.log(JSON.stringify(report))
}
