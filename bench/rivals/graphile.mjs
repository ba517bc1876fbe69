// graphile-worker on Postgres: bulk adds, and the settings that its documents recommend for throughput: 24 jobs at a time, a local
// queue of 500, completions in batches, and several processes.
import { execSync } from 'node:child_process'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { finished, isWorker, measure, working } from './measure.mjs'

const connectionString = process.env.DATABASE_URL
if (isWorker) {
  const worker = {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  }
  const logger = new Logger(() => () => {})
  await run({ preset: { worker }, connectionString, logger, taskList: { nothing: async () => finished() } })
  working()
} else {
  const pool = new pg.Pool({ connectionString, max: 20 })
  const utils = await makeWorkerUtils({ pgPool: pool })
  await utils.migrate()
  const pids = () => execSync(`pgrep -P ${process.env.POSTGRES_PID} || true`).toString().split('\n').filter(Boolean)
  const job = { identifier: 'nothing', payload: {} }
  const add = (count) => utils.addJobs(Array(count).fill(job))
  const number = async (sql) => Number((await pool.query(sql)).rows[0].number)
  const left = () => number('SELECT count(*) AS number FROM graphile_worker._private_jobs')
  await measure({ name: 'graphile-worker', script: import.meta.filename, add, left, enginePids: pids })
  const size = () => number(
    "SELECT sum(pg_total_relation_size(c.oid)) AS number FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'graphile_worker' AND c.relkind = 'r'"
  )
  await pool.query('TRUNCATE graphile_worker._private_jobs')
  const before = await size()
  for (let n = 0; n < 100; n++) await add(1_000)
  console.log(JSON.stringify({ name: 'graphile-worker', bytes_per_waiting: Math.round((await size() - before) / 100_000) }))
  process.exit(0)
}
