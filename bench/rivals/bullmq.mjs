// BullMQ on Redis: bulk adds, one worker process with many jobs at a time, jobs removed when they are done.
import { Queue, Worker } from 'bullmq'
import { execSync } from 'node:child_process'
import { finished, measure } from './measure.mjs'

const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null }
const queue = new Queue('bench', { connection })
const worker = new Worker('bench', async () => finished(), { connection, concurrency: 200 })
await worker.waitUntilReady()
const pids = () => [process.env.REDIS_PID]
const job = { name: 'nothing', data: {}, opts: { removeOnComplete: true, removeOnFail: true } }
await measure('bullmq', (count) => queue.addBulk(Array(count).fill(job)), pids)
await worker.close(true)
// What 100,000 jobs that wait take of Redis' memory.
const memory = () => Number(/used_memory:(\d+)/.exec(execSync(`redis-cli -p ${connection.port} info memory`).toString())[1])
await queue.obliterate({ force: true })
const before = memory()
for (let n = 0; n < 100; n++) await queue.addBulk(Array(1_000).fill(job))
console.log(JSON.stringify({ name: 'bullmq', bytes_per_waiting: Math.round((memory() - before) / 100_000) }))
process.exit(0)
