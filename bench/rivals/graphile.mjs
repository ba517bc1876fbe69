// graphile-worker on Postgres: bulk adds, and the settings that its documents recommend for throughput: a local queue of 500,
// and completions in batches.
import { execSync } from 'node:child_process'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { finished, measure } from './measure.mjs'

const connectionString = process.env.DATABASE_URL
const pool = new pg.Pool({ connectionString, max: 20 })
const utils = await makeWorkerUtils({ pgPool: pool })
await utils.migrate()
const runner = await run({
  preset: {
    worker: {
      concurrentJobs: 24,
      maxPoolSize: 20,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  connectionString,
  noHandleSignals: true,
  logger: new Logger(() => () => {}),
  taskList: { nothing: async () => finished() },
})
const pids = () => execSync(`pgrep -P ${process.env.POSTGRES_PID} || true`).toString().split('\n').filter(Boolean)
const job = { identifier: 'nothing', payload: {} }
await measure('graphile-worker', (count) => utils.addJobs(Array(count).fill(job)), pids)
await runner.stop()
const size = async () => Number((await pool.query(
  "SELECT sum(pg_total_relation_size(c.oid)) AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'graphile_worker' AND c.relkind = 'r'"
)).rows[0].bytes)
await pool.query('TRUNCATE graphile_worker._private_jobs')
const before = await size()
for (let n = 0; n < 100; n++) await utils.addJobs(Array(1_000).fill(job))
console.log(JSON.stringify({ name: 'graphile-worker', bytes_per_waiting: Math.round((await size() - before) / 100_000) }))
process.exit(0)
