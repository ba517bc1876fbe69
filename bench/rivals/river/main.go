// River on Postgres, measured like the others: producers that keep a bounded number of jobs ahead, and a count of those that
// were completed. Cooldown, poll interval and number of workers are those of River's own benchmark (`river bench`); jobs are
// inserted by COPY, in batches.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type worker struct{ river.WorkerDefaults[nothing] }

func (*worker) Work(context.Context, *river.Job[nothing]) error { return nil }

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
	return value
}

func number(name string, otherwise int) int {
	if text := os.Getenv(name); text != "" {
		return must(strconv.Atoi(text))
	}
	return otherwise
}

// Processor time of Postgres: its processes as they are now. Connections of the pool stay, so none is lost.
func engineCPU() time.Duration {
	pids, _ := exec.Command("pgrep", "-P", os.Getenv("POSTGRES_PID")).Output()
	var ticks int
	for _, pid := range strings.Fields(string(pids)) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue // It has ended.
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		ticks += user + system
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func ownCPU() time.Duration {
	var used syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func report(fields map[string]any) {
	fmt.Println(string(must(json.Marshal(fields))))
}

func main() {
	ctx := context.Background()
	batch, producers := number("BATCH", 100), number("CLIENTS", 8)
	seconds := number("SECONDS_EACH", 10)
	ahead := int64(number("RIVER_AHEAD", batch*producers*4))
	config := must(pgxpool.ParseConfig(os.Getenv("DATABASE_URL")))
	config.MaxConns = int32(number("RIVER_CONNECTIONS", 20))
	config.MinConns = config.MaxConns
	pool := must(pgxpool.NewWithConfig(ctx, config))
	driver := riverpgxv5.New(pool)
	must(must(rivermigrate.New(driver, nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))

	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	client := must(river.NewClient(driver, &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: number("RIVER_WORKERS", 2_000)}},
		Workers:           workers,
	}))
	var submitted, done atomic.Int64
	// Told of when it is durable, unlike the return of `Work`.
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 1_000_000,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer unsubscribe()
	go func() {
		for range completed {
			done.Add(1)
		}
	}()
	must(0, client.Start(ctx))

	params := func(count int) []river.InsertManyParams {
		params := make([]river.InsertManyParams, count)
		for place := range params {
			params[place].Args = nothing{}
		}
		return params
	}
	var isOver atomic.Bool
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			jobs := params(batch)
			for !isOver.Load() {
				if submitted.Load()-done.Load()+int64(batch) > ahead {
					time.Sleep(time.Millisecond)
					continue
				}
				submitted.Add(int64(batch))
				must(client.InsertManyFast(ctx, jobs))
			}
		})
	}
	time.Sleep(2 * time.Second)
	from, begun, own, engine := done.Load(), time.Now(), ownCPU(), engineCPU()
	time.Sleep(time.Duration(seconds) * time.Second)
	runs := done.Load() - from
	took, own, engine := time.Since(begun), ownCPU()-own, engineCPU()-engine
	report(map[string]any{
		"name":                  "river",
		"batch":                 batch,
		"runs_per_s":            int64(float64(runs) / took.Seconds()),
		"cpu_us_per_run":        own.Microseconds() / max(runs, 1),
		"engine_cpu_us_per_run": engine.Microseconds() / max(runs, 1),
	})
	isOver.Store(true)
	all.Wait()
	must(0, client.Stop(ctx))

	// What 100,000 jobs that wait take of Postgres' disk.
	size := func() (bytes int64) {
		must(0, pool.QueryRow(ctx, "SELECT pg_total_relation_size('river_job')").Scan(&bytes))
		return bytes
	}
	must(pool.Exec(ctx, "TRUNCATE river_job"))
	before := size()
	// A client that works nothing.
	inserter := must(river.NewClient[pgx.Tx](driver, &river.Config{}))
	for range 100 {
		must(inserter.InsertManyFast(ctx, params(1_000)))
	}
	report(map[string]any{"name": "river", "bytes_per_waiting": (size() - before) / 100_000})
}
