// BullMQ on Redis: bulk adds, workers in several processes with many jobs at a time each, jobs removed when they are done.
import { Queue, Worker } from 'bullmq'
import { execSync } from 'node:child_process'
import { finished, isWorker, measure, working } from './measure.mjs'

const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null }
if (isWorker) {
  const concurrency = Number(process.env.BULLMQ_CONCURRENCY ?? 200)
  await new Worker('bench', async () => finished(), { connection, concurrency }).waitUntilReady()
  working()
} else {
  const queue = new Queue('bench', { connection })
  const job = { name: 'nothing', data: {}, opts: { removeOnComplete: true, removeOnFail: true } }
  const add = (count) => queue.addBulk(Array(count).fill(job))
  await measure({ name: 'bullmq', script: import.meta.filename, add, enginePids: () => [process.env.REDIS_PID] })
  // What 100,000 jobs that wait take of Redis' memory.
  const memory = () => Number(/used_memory:(\d+)/.exec(execSync(`redis-cli -p ${connection.port} info memory`).toString())[1])
  await queue.obliterate({ force: true })
  const before = memory()
  for (let n = 0; n < 100; n++) await add(1_000)
  console.log(JSON.stringify({ name: 'bullmq', bytes_per_waiting: Math.round((memory() - before) / 100_000) }))
  process.exit(0)
}
