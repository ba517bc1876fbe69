//! Every bound of the system, in one place.
//!
//! A limit is part of the surface: it is checked before anything happens, the refusal names it, and
//! a test stands at it and one past it. Limits that depend on the engine behind a store are facts
//! that the adapter tells (`store::Limits`); these are the ones that hold everywhere.

use std::time::Duration;

/// Shortest lease. Below this a healthy store's answers take too much of it.
pub const LEASE_TTL_MIN: Duration = Duration::from_millis(500);

/// Longest lease: what it holds is stuck for 1.25 times as long after a crash.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(3_600);

/// Shortest time between two looks of a candidate at who leads, if no hint comes: shorter only loads the store.
pub const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Longest time that a hook of an election may be given: a hand-over waits for it.
pub const HOOK_TIME_MAX: Duration = Duration::from_secs(300);

/// Longest time that a candidate may be told to wait for its store at the start; without a word it waits for ever.
pub const ELECT_WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Connections at a time to a candidate's metrics.
pub const METRICS_CONNECTIONS_MAX: usize = 32;

/// Transitions that wait for whoever reads them; those beyond are left out.
pub const TRANSITIONS_WAITING_MAX: usize = 256;

/// Lines of its log for which the supervisor of a hold waits for no reader; those beyond are counted, and left out.
pub const LOG_LINES_WAITING_MAX: usize = 1_024;

/// Renewals that a holder remembers; it sends five in a lease, and a few more when answers are late.
pub const RENEWALS_REMEMBERED_MAX: usize = 64;

/// What a store of class B may forget: acknowledged writes of up to this long before it failed over,
/// and what a former primary still acknowledges for this long afterwards.
pub const FAILOVER_LAG: Duration = Duration::from_secs(2);

/// Longest id of a node: as long as a label of a host name.
pub const NODE_ID_BYTES_MAX: usize = 63;

/// Incarnations that a node draws in a row when the store does not say whether its session was made.
pub const INCARNATIONS_MAX: usize = 5;

/// Shards that a node lists in its session because it cannot run them; those beyond are not told.
pub const UNABLE_SHARDS_MAX: usize = 64;

/// A server whose wall clock is further than this from that of the others takes no shard.
pub const CLOCK_APART_MS_MAX: i64 = 2_000;

/// Renewals of a node by which its wall clock is judged.
pub const CLOCK_BEATS: usize = 5;

/// How long the servers of a cluster must have been the same before shards are handed over for balance.
pub const SETTLE: Duration = Duration::from_secs(2);

/// Longest key of a store, in bytes. Postgres indexes keys of up to about 2,700 bytes and etcd is
/// happiest well below a kilobyte.
pub const KEY_BYTES_MAX: usize = 512;

/// Most entries in one page of a scan.
pub const PAGE_ENTRIES_MAX: usize = 1_000;

/// A page ends early once its keys and values pass this many bytes, so that a page of large values
/// fits in memory and in one message.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The least number of writes that every store takes in one commit. What must be atomic, and the
/// pieces into which longer work is cut, are planned for this number.
pub const COMMIT_WRITES_MIN: usize = 8;

/// Longest cron expression, in bytes.
pub const CRON_BYTES_MAX: usize = 1_024;

/// Shortest interval of a schedule.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// Longest interval: a leap year.
pub const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most instants in an `at` schedule.
pub const AT_MAX: usize = 5_000;

/// Most specs in one schedule.
pub const SPECS_MAX: usize = 16;

/// Most dates that a calendar excludes.
pub const EXCLUDED_DATES_MAX: usize = 1_000;

/// Most quiet windows of a calendar.
pub const QUIET_WINDOWS_MAX: usize = 32;

/// Longest jitter of a schedule.
pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

/// Slots that are walked one by one where they cannot be computed: several specs at once, or a calendar.
pub const SLOTS_WALKED_MAX: u64 = 100_000;

/// Most shards of a cluster.
pub const SHARDS_MAX: u16 = 4_096;

/// Most triggers of a shard: with 32 shards ten million, and room for uneven ones.
pub const TRIGGERS_PER_SHARD_MAX: usize = 1_000_000;

/// Most unfinished runs of a shard that go to hosts. A shard that has as many decides nothing new until some have ended.
pub const RUNS_PER_SHARD_MAX: usize = 100_000;

/// Runs of a project that wait outside the queues of a shard, for others of their triggers or for room. Other bounds of runs leave
/// them out: they end when workers please.
pub const RUNS_BEFORE_QUEUES_MAX: usize = 10_000;

/// Runs that were launched and are not recorded, in a head: 16 KiB of them.
pub const OPEN_RUNS_MAX: usize = 1_024;

/// Runs that are launched before they are due: 8 KiB of them.
pub const OPEN_RUNS_AHEAD_MAX: usize = 512;

/// How long before it is due a slot may be launched in the store.
pub const LOOK_AHEAD_MS: i64 = 500;

/// A run that is open for longer than this gets a record of its own.
pub const OPEN_MS_MAX: u64 = 1_000;

/// A slot that is decided later than this because nobody was there is one that was missed.
pub const MISSED_AFTER_MS: i64 = 1_000;

/// A mark that is further ahead of the clock than this is set back.
pub const MARK_AHEAD_MS_MAX: i64 = 60_000;

/// How long a result may wait for others before it is written.
pub const RESULT_WAIT_MS: i64 = 50;

/// How long before it is due a slot that was launched ahead is to be in the store.
pub const LAUNCH_LEAD_MS: i64 = 100;

/// Decisions of a shard that wait to be written.
pub const UNITS_WAITING_MAX: usize = 8_192;

/// Attempts for one host, under way and waiting, that it may always have; and the most of those that must not be in doubt.
pub const HOST_BUSY: usize = 512;

/// Most attempts for one host, under way and waiting; beyond that, slots and runs wait for it.
pub const HOST_FULL: usize = 8_192;
/// Bytes under way to a host from which on it counts as full: see [`HOST_FULL`].
pub const HOST_FULL_BYTES: usize = 32 * 1024 * 1024;

/// For how long a host is watched to know how many attempts it may have: as many as it answers in that time.
pub const HOST_LOOK_MS: u64 = 500;

/// A run that cannot even be tried is given up when its tries would have been over for this long.
pub const UNTRIED_MAX: Duration = Duration::from_secs(60);

/// Longest URL of a webhook, in bytes.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2_048;

/// Most headers that a webhook has of its own, its content type among them.
pub const WEBHOOK_HEADERS_MAX: usize = 30;

/// Most bytes that these headers have together, names and values. Receivers commonly refuse heads above
/// 8 to 16 KiB.
pub const WEBHOOK_HEADER_BYTES_MAX: usize = 8 * 1024;

/// Longest body of a webhook, in bytes.
pub const WEBHOOK_BODY_BYTES_MAX: usize = 100 * 1024;

/// Shortest time that an attempt may take.
pub const WEBHOOK_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Longest time that an attempt may take: what is slower belongs into a queue.
pub const WEBHOOK_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// Time that an attempt may take if nobody says otherwise.
pub const WEBHOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// What is kept of an answer's body; the rest is not read.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of an answer's head. A receiver that sends headers for ever is cut off there.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest pause that a receiver may ask for with `Retry-After`; a longer one counts as this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Attempts in a row that a host leaves unanswered before it is left alone for a while.
pub const BREAKER_FAILURES_MAX: u32 = 5;

/// The first pause of a host that does not answer.
pub const BREAKER_PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause of a host that does not answer: when it is back, this is how late we notice.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Addresses of one name that are tried for one connection.
pub const ADDRESSES_TRIED_MAX: usize = 4;

/// How long a pooled connection may rest before it is closed. Common servers close theirs after 5 s, and a
/// request that crosses such a close on the way is lost in doubt.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(4);

/// How long a connection is used at most: a name that has moved on is followed after this.
pub const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);

/// How long an answer of the resolver is used again.
pub const NAME_AGE_MAX: Duration = Duration::from_secs(5);

/// Attempts under way to a host that has yet to answer its first.
pub const HOST_WINDOW_MIN: usize = 8;

/// How long a host that nobody calls is remembered.
pub const HOST_IDLE_MAX: Duration = Duration::from_secs(60);

/// Longest name of a trigger, in characters.
pub const NAME_CHARS_MAX: usize = 100;

/// Most labels of a trigger.
pub const LABELS_MAX: usize = 16;

/// Longest key of a label, and longest value, in characters: as long as a label of a host name.
pub const LABEL_CHARS_MAX: usize = 63;

/// Longest note of a pause, in characters.
pub const NOTE_CHARS_MAX: usize = 500;

/// Most attempts of a run.
pub const RETRY_ATTEMPTS_MAX: u64 = 10;

/// Shortest pause between two attempts.
pub const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);

/// Longest first pause between two attempts.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(300);

/// How far a pause between two attempts may grow.
pub const RETRY_GROWN_DELAY_MAX: Duration = Duration::from_secs(3_600);

/// Most missed slots of a trigger that fire after all.
pub const CATCH_UP_CAP_MAX: u64 = 1_000;

/// Missed slots of a trigger that fire after all with `all`, if nobody says otherwise.
pub const CATCH_UP_CAP_DEFAULT: u16 = 100;

/// Shortest lateness at which a run is given up.
pub const MAX_LATENESS_MIN: Duration = Duration::from_secs(1);

/// Longest lateness at which a run is given up: a leap year.
pub const MAX_LATENESS_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most failures in a row after which a trigger pauses by itself.
pub const PAUSE_AFTER_MAX: u64 = 10_000;

/// Shortest time without a success after which somebody is told.
pub const ALERT_AFTER_MIN: Duration = Duration::from_secs(1);

/// Whoever reads the metrics waits no longer than this for what has to be counted.
pub const CENSUS_TIME_MAX: Duration = Duration::from_millis(500);

/// A queue that says how long its oldest run may wait is looked at no more often than this, ...
pub const QUEUE_LOOK_MIN: Duration = Duration::from_secs(1);

/// ...and at least so often.
pub const QUEUE_LOOK_MAX: Duration = Duration::from_secs(60);

/// A queue whose submitted runs fail is well again when one succeeds and none has failed for so long.
pub const QUEUE_WELL_AFTER: Duration = Duration::from_secs(300);

/// Longest time without a success after which somebody is told: a leap year.
pub const ALERT_AFTER_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most notices of a shard that are not sent yet. Further ones are given up, and recorded as expired: they must not
/// keep runs from being decided.
pub const NOTICES_PER_SHARD_MAX: usize = 1_000;

/// How long nobody may have a shard before somebody is notified: whoever dies leaves shards without an owner for less.
pub const ORPHANED_TIME_MAX: Duration = Duration::from_secs(10);

/// Notifications about the cluster that wait to be sent by a server. Further ones are dropped.
pub const CLUSTER_NOTIFICATIONS_MAX: usize = 64;

/// Rows of a list, if nobody says otherwise.
pub const LIST_ROWS_DEFAULT: usize = 50;

/// Most rows of a list.
pub const LIST_ROWS_MAX: usize = 500;

/// Names that one request for a list looks at.
pub const NAMES_READ_MAX: usize = 1_000;

/// Batches of the past that one request reads.
pub const SEGMENTS_READ_MAX: usize = 2_000;

/// Pages of the past that one request reads, after the batches that are not in pages yet.
pub const PAGES_READ_MAX: usize = 200;

/// Groups of a shard's triggers that share pages of the past. Every page's key depends on it.
pub const HISTORY_BUCKETS: u16 = 1_024;

/// Bytes of a page of the past, unless one line alone has more.
pub const HISTORY_PAGE_BYTES_MAX: usize = 256 * 1024;

/// Writes of background work that go to a shard at a time; what is due waits behind no more than these.
pub const HISTORY_PIECE_WRITES_MAX: usize = 128;

/// Writes of background work that belong together: with the head and a segment they fit every store.
pub const HISTORY_UNIT_WRITES_MAX: usize = COMMIT_WRITES_MIN - 3;

/// How long lines of the past are kept.
pub const HISTORY_AGE: Duration = Duration::from_secs(30 * 86_400);

/// Lines of the past that are kept of a trigger.
pub const HISTORY_LINES: usize = 1_000;

/// Exceptions that are kept of a project in a shard.
pub const HISTORY_EXCEPTION_LINES: usize = 10_000;

/// Bytes that the past may have in a store.
pub const HISTORY_BYTES: u64 = 10 * 1024 * 1024 * 1024;

/// The part of an engine's room that the past may have: one in so many.
pub const HISTORY_PART: u64 = 4;

/// Floors of single triggers that a bucket has; with more, the lowest hold for all of its triggers.
pub const HISTORY_FLOORS_MAX: usize = 4_000;

/// How long triggers are kept that have expired or were cancelled.
pub const TRIGGER_ENDED_AGE: Duration = Duration::from_secs(30 * 86_400);

/// Triggers that one look for those looks at, and how many of them it deletes.
pub const PRUNE_LOOKED_AT_MAX: usize = 1_000;
/// Ended triggers that a step deletes at the most: see [`PRUNE_LOOKED_AT_MAX`].
pub const PRUNE_DELETED_MAX: usize = 16;

/// Unfinished runs of a shard that one request reads.
pub const RUNS_READ_MAX: usize = 1_000;

/// Longest file of triggers, or crontab, that the command line reads.
pub const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Triggers in files that are applied at a time.
pub const FILE_TRIGGERS_MAX: usize = 10_000;

/// Slots of the past that one request runs again.
pub const BACKFILL_SLOTS_MAX: usize = 1_000;

/// Backfills of a trigger of which is remembered how far they have come.
pub const BACKFILLS_REMEMBERED_MAX: usize = 8;

/// Coming slots that one request shows.
pub const NEXT_SLOTS_MAX: usize = 1_000;

/// Longest request body of the API, in bytes: a trigger with its largest body, escaped, fits.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Longest wait for the end of a run that was started by hand.
pub const RUN_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a request may take, its body and its answer included.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(75);

/// Connections of the API that are open at a time; further ones wait to be accepted. Fewer, if the process may have
/// fewer open files.
pub const API_CONNECTIONS_MAX: usize = 12_288;

/// Of these, the last ones are kept by nobody: a worker that comes by one of them is not let wait.
pub const API_CONNECTIONS_FOR_PEOPLE: usize = 256;

/// What `retry-after` says to a worker when no connection is left on which it could wait.
pub const CROWDED_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Open files of a server that are no connections of the API: webhooks under way, and the store.
pub const OPEN_FILES_ELSEWHERE: usize = 1_024;

/// Longest span of time that one account of a trigger covers: a leap year.
pub const ACCOUNT_SPAN_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most rows of an account of a trigger.
pub const ACCOUNT_ROWS_MAX: usize = 1_000;

/// A wall clock that was set by less than this was merely corrected.
pub const JUMP_NOTICED_MS_MIN: i64 = 1_000;

/// A wall clock that was set forward by more than this holds firing until a person confirms it.
pub const JUMP_HELD_MS_MIN: i64 = 5 * 60_000;

/// What a receiver answered is kept up to this length, in bytes, if the run succeeded.
pub const RESPONSE_KEPT_BYTES_MAX: usize = 1_024;

/// How long a backup may quiesce one shard: what is due in it leaves so much later at worst.
pub const BACKUP_QUIESCE_MAX: Duration = Duration::from_secs(3);

/// Bytes of one shard in a backup that a server takes: it reads the whole shard into memory while it is
/// quiesced, since whoever asked may be slow.
pub const BACKUP_SHARD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Longest line of a backup, its end included: a value of any store fits, in whichever way it is written.
pub const BACKUP_LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Times that a restore sends the same commit, a second apart, before it gives up.
pub const RESTORE_TRIES_MAX: usize = 30;

/// Shards of a new cluster, if nobody says otherwise.
pub const SHARDS_DEFAULT: u16 = 32;

/// Most projects of a cluster: each node has all of them in memory.
pub const PROJECTS_MAX: usize = 10_000;

/// Most keys of a cluster: each node has all of them in memory.
pub const KEYS_MAX: usize = 10_000;

/// Longest name of a key, in characters.
pub const KEY_NAME_CHARS_MAX: usize = 100;

/// Secrets that a project's webhooks are signed with at a time.
pub const SECRETS_MAX: usize = 2;

/// How long a key or a secret that was replaced goes on being good, unless it is said otherwise.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(86_400);
/// How long a replaced key or secret goes on being good at most.
pub const GRACE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How long a request is remembered under its idempotency key.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(86_400);

/// Longest idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// How long the audit is kept.
pub const AUDIT_KEPT: Duration = Duration::from_secs(400 * 86_400);

/// Those who watch events of a server at a time: each keeps a connection.
pub const WATCHERS_MAX: usize = 256;
/// Those who watch events of a server at a time with one key.
pub const WATCHERS_OF_KEY_MAX: usize = 32;

/// Events that a server remembers for those who come back.
pub const EVENTS_KEPT_MAX: usize = 10_000;

/// Longest URL of a store, in bytes.
pub const URL_BYTES_MAX: usize = 4_096;

/// Hosts that a store's URL may name.
pub const STORE_HOSTS_MAX: usize = 32;

/// How long a connection to a store's engine may take to come about.
pub const STORE_CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long an engine on the network may take to answer one scan or commit before the answer is called off.
pub const STORE_ANSWER_MAX: Duration = Duration::from_secs(3);

/// Longest T of a session that came through a server: after a fail-over everybody waits for the longest there was.
pub const GUEST_TTL_MAX: Duration = Duration::from_secs(60);

/// Sessions that a project has through servers.
pub const GUEST_SESSIONS_MAX: usize = 1_000;

/// Elections that a project begins through servers. They are never forgotten: a token only grows.
pub const GUEST_ELECTIONS_MAX: usize = 10_000;

/// Longest body of a claim's head that is written through a server.
pub const GUEST_BODY_BYTES_MAX: usize = 4 * 1024;

/// Roles of a session that came through a server, and the bytes of each.
pub const GUEST_ROLES_MAX: usize = 16;

/// Longest text that a session that came through a server says of itself: where it is reached, or what it does.
pub const GUEST_TEXT_BYTES_MAX: usize = 512;

/// Elections that a session which came through a server says it campaigns for.
pub const GUEST_CANDIDACIES_MAX: usize = 16;

/// How far ahead of a server's clock a token that comes through it may be.
pub const GUEST_TOKEN_AHEAD_MAX: Duration = Duration::from_secs(86_400);

/// Writes of a commit that comes through a server, and its conditions.
pub const GUEST_WRITES_MAX: usize = 64;

/// Bytes of all keys and values of a commit that comes through a server: as JSON it is a request like others.
pub const GUEST_COMMIT_BYTES_MAX: usize = 96 * 1024;

/// Longest value that comes through a server.
pub const GUEST_VALUE_BYTES_MAX: usize = 32 * 1024;

/// Who watches a server's store, at a time.
pub const GUEST_WATCHERS_MAX: usize = 512;

/// Who watches a server's store with one key.
pub const GUEST_WATCHERS_OF_KEY_MAX: usize = 256;

/// Longest wait for an election to be free, in one request.
pub const CAMPAIGN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest prefix of keys in an etcd, its slash included: with it the largest commit fits in a request.
pub const ETCD_PREFIX_BYTES_MAX: usize = 128;

/// How long an etcd keeps former values, unless its URL says otherwise.
pub const ETCD_HISTORY_AGE: Duration = Duration::from_secs(3_600);

/// Shortest and longest time that a URL may ask for instead.
pub const ETCD_HISTORY_AGE_MIN: Duration = Duration::from_secs(1);
/// The longest age of history in etcd that can be asked for: see [`ETCD_HISTORY_AGE_MIN`].
pub const ETCD_HISTORY_AGE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How long a connection from one server to another may take to come about.
pub const FORWARD_CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long another server may take to answer a request that was passed on to it: less than a request may take, so
/// that whoever asked is told what is known.
pub const FORWARD_ANSWER_MAX: Duration = Duration::from_secs(70);

/// How long a server looks for whoever has a shard that changes hands, and passes a request on anew, before it says
/// that nothing was done.
pub const FORWARD_TRIES_MAX: Duration = Duration::from_secs(2);

/// Longest answer of another server to a request that was passed on, in bytes.
pub const FORWARD_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a name stays reserved for a trigger of another shard, at least: longer than it takes to make that trigger.
pub const NAME_RESERVED_MIN: Duration = Duration::from_secs(60);

/// Names of one project that a shard keeps for triggers of others.
pub const NAMES_RESERVED_PER_PROJECT_MAX: usize = 100_000;

/// A trigger whose name was reserved longer ago than this is not made any more.
pub const NAME_RESERVED_USABLE: Duration = Duration::from_secs(20);

/// How long other servers may take to answer when all of them are asked something.
pub const FORWARD_ROUND_MAX: Duration = Duration::from_secs(3);

/// Servers whose events are merged for somebody who watches, beside those of the server that is asked; of further ones it
/// is told that events are missing.
pub const EVENT_SERVERS_MAX: usize = 63;

/// Longest host name of a webhook, as the name system has it.
pub const HOST_NAME_BYTES_MAX: usize = 253;

/// Longest part of a host name between two dots, as the name system has it.
pub const HOST_LABEL_BYTES_MAX: usize = 63;

/// Longest name of a schema in a Postgres: the name of its channel of hints has to fit too.
pub const POSTGRES_SCHEMA_BYTES_MAX: usize = 48;

/// Connections to a Postgres, unless its URL says otherwise: as many commits are under way at a time.
pub const POSTGRES_CONNECTIONS_DEFAULT: usize = 16;

/// Most connections to a Postgres that a URL may ask for.
pub const POSTGRES_CONNECTIONS_MAX: usize = 256;

/// How long the head of a request may take to come, and how long a connection may rest between two requests.
pub const REQUEST_HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long requests that are under way when a server stops may still take: it stops within five seconds.
pub const REQUEST_DRAIN_MAX: Duration = Duration::from_secs(4);

/// How long a caller may read nothing of its answer before the connection is closed.
pub const ANSWER_READ_STALL_MAX: Duration = Duration::from_secs(30);

/// Longest id that a caller may give its request; one that is longer is replaced.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// What `retry-after` says when a store does not answer, a server stops, or the like.
pub const UNAVAILABLE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What `retry-after` says when there is too much of something.
pub const LIMIT_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long a request waits for a shard that is being taken or handed over.
pub const OWNER_WAIT_MAX: Duration = Duration::from_secs(1);

/// What `retry-after` says when a shard has no owner.
pub const OWNER_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long trouble with the store may last before requests that wait for it are answered with an error.
pub const STORE_TROUBLE_MAX: Duration = Duration::from_secs(5);

/// How long an answer waits for all shards to do as a switch of a project or the scheduler says; then it is 202.
pub const SETTLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Lines of the audit that one request looks at; its answer has a cursor to go on from.
pub const AUDIT_LINES_READ_MAX: usize = 5_000;

/// Candidates of an election that are shown.
pub const ELECTION_CANDIDATES_SHOWN_MAX: usize = 50;

/// Elections whose changes a server tells of; of further ones it tells nothing.
pub const ELECTIONS_MONITORED_MAX: usize = 2_000;

/// Events of elections that are told at a time: what else changed is told a moment later.
pub const ELECTION_EVENTS_AT_ONCE_MAX: usize = 256;

/// Somebody is notified again that a hold is at risk for the same reason, after this time.
pub const HOLD_RISK_NOTICE_PAUSE: Duration = Duration::from_secs(3_600);

/// Entries of the store that are looked at for one page of elections.
pub const ELECTION_ENTRIES_READ_MAX: usize = 2_000;

/// How often a stream of events or hints sends something if nothing happens.
pub const STREAM_HEARTBEAT: Duration = Duration::from_secs(15);

/// How far back an account of a trigger goes if nobody says otherwise, in milliseconds.
pub const EXPLAIN_SPAN_MS: i64 = 3_600_000;

/// Coming slots that an account of a trigger tells.
pub const EXPLAIN_NEXT_LEN: usize = 3;

/// Coming slots that a trigger tells.
pub const TRIGGER_NEXT_LEN: usize = 5;

/// A run that leaves later than this is told as late, in milliseconds.
pub const TOLD_LATE_MS: u64 = 1_000;

/// Shards without an owner that one event names.
pub const EVENT_SHARDS_NAMED_MAX: usize = 64;

/// Shards without an owner that the sentence of a notification names.
pub const NOTICE_SHARDS_NAMED_MAX: usize = 8;

/// How often a change of projects or keys is decided anew when others change something at the same time.
pub const ACCESS_CHANGE_TRIES_MAX: usize = 20;

/// A key's last use is written at most this often.
pub const KEY_USED_EVERY: Duration = Duration::from_secs(3_600);

/// How long a server that is drained waits for the next of its shards to be handed over.
pub const DRAIN_HAND_OVER_MAX: Duration = Duration::from_secs(10);

/// How long it waits for attempts of shards that it handed over: longer than any takes.
pub const DRAIN_ATTEMPTS_MAX: Duration = Duration::from_secs(35);

/// How long attempts that are under way when a node stops may take.
pub const STOP_ATTEMPTS_MAX: Duration = Duration::from_millis(3_500);

/// How long after it was told to stop a node may take to write what is decided.
pub const STOP_WRITES_MAX: Duration = Duration::from_millis(4_500);

/// How long a connection to a candidate's metrics may take for a request, its answer and the rest before it.
pub const METRICS_CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// How long the store may take for each of the last two words of a candidate that stops.
pub const ELECT_STOP_MAX: Duration = Duration::from_secs(3);

/// How long a hook that is told to end has to do so.
pub const HOOK_END_MAX: Duration = Duration::from_millis(100);

/// How long the last word to the key beside a Redis store may take.
pub const ELECT_MIRROR_STOP_MAX: Duration = Duration::from_millis(500);

/// Slots of one `watchbell trigger backfill`, which asks for them in several requests.
pub const BACKFILL_COMMAND_SLOTS_MAX: usize = 100_000;

/// Slots that are filled without asking whether so many are meant.
pub const BACKFILL_UNASKED_MAX: usize = 100;

/// Longest file of settings.
pub const SETTINGS_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Longest file with a key: a key and a line break, and then some.
pub const KEY_FILE_BYTES_MAX: u64 = 4_096;

/// How long `watchbell cluster drain` waits until a server has handed its shards over.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest measurement of a store, in seconds.
pub const MEASURE_SECONDS_MAX: i64 = 3_600;

/// Most slots that `watchbell cron next` shows.
pub const CRON_COUNT_MAX: i64 = 10_000;

/// Most webhooks per second that `watchbell bench fires` asks for.
pub const BENCH_RATE_MAX: i64 = 1_000_000;

/// Most runs that a backfill starts in a second, a minute or an hour.
pub const APPLY_RATE_MAX: u32 = 1_000;

/// How deep lists and objects may lie in each other in a file of triggers.
pub const APPLY_DEPTH_MAX: usize = 32;

/// How much that is wrong with files of triggers is told; one sentence tells how much more there is.
pub const APPLY_FAULTS_TOLD_MAX: usize = 20;

/// Elections that `watchbell election` follows at a time.
pub const ELECTIONS_WATCHED_MAX: usize = 10_000;

/// Prefixes that a check of a store tries before it gives up.
pub const CHECK_PREFIXES_MAX: usize = 1_000;

/// Workers that may die under a run of a queue before it is given to nobody any more.
pub const WORKER_DEATHS_MAX: u32 = 3;

/// Attempts of a run of a queue of which is kept what came of them; of the last ones, if there were more.
pub const RUN_ATTEMPTS_KEPT_MAX: usize = 10;

/// Workers of a project that the owner of a shard knows at a time.
pub const WORKERS_PER_PROJECT_MAX: usize = 10_000;

/// Workers of all projects that the owner of a shard knows at a time.
pub const WORKERS_PER_SHARD_MAX: usize = 20_000;

/// A worker without runs that was not heard of for so long is forgotten, in milliseconds.
pub const WORKER_FORGOTTEN_MS: u64 = 600_000;

/// How long the wish that a worker drains is kept, if nobody undoes it.
pub const WORKER_DRAIN_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Workers of a project that are asked to drain, at a time.
pub const WORKER_DRAINS_PER_PROJECT_MAX: usize = 1_000;

/// Workers of all projects that are asked to drain, at a time: each node has all of them in memory.
pub const WORKER_DRAINS_MAX: usize = 10_000;

/// A claim of a worker that is asked to drain waits no longer than this, so that it is told soon.
pub const DRAINED_CLAIM_WAIT_MAX: Duration = Duration::from_secs(1);

/// Runs of one worker that are told when it is shown.
pub const WORKER_RUNS_SHOWN_MAX: usize = 1_000;

/// Runs of a shard that one worker has at a time.
pub const WORKER_RUNS_MAX: usize = 1_000;

/// Most workers that one run is for, if it is for the next in turn.
pub const PICK_COUNT_MAX: u8 = 64;

/// Most workers of a queue that may be chosen, and so the most parts of a run that is for all of them.
pub const PICK_WORKERS_MAX: usize = 1_000;

/// A part of a run that its worker could have for so long, and has not taken, is anybody's, in milliseconds.
pub const PART_PASSES_AFTER_MS: i64 = 10_000;

/// Parts that are chosen anew before others of the shard have their turn: each run that has such is a record.
pub const PARTS_PASSED_AT_ONCE: usize = 64;

/// What a run of a queue is about is kept beside its place in the order up to this length, in bytes; longer ones have a
/// record of their own, which nobody reads before they are claimed.
pub const ACTION_INLINE_BYTES_MAX: usize = 1_024;

/// Longest payload of a run, or stdin of a command, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 100 * 1024;

/// How deep lists and objects may lie in each other in a payload: common readers of JSON go no deeper than about this.
pub const PAYLOAD_DEPTH_MAX: usize = 100;

/// Most queues of a project that live in one shard.
pub const QUEUES_PER_SHARD_MAX: usize = 256;

/// Runs of one queue that may wait, where the store has the room of a disk.
pub const QUEUE_WAITING_MAX: usize = 2_000_000;

/// Bytes of an engine's room for each run that may wait, where that is less than a disk.
pub const QUEUE_WAITING_BYTES: u64 = 16 * 1024;

/// Of so many runs that may wait in a queue, one may be long, which is to say longer than what is kept beside its place. So all of
/// them together take less than half of the room that a store is taken to have for them.
pub const WAITING_PER_LONG_RUN: usize = 20;

/// Bytes of what runs are about that a shard keeps in memory for those who claim them.
pub const ACTIONS_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Runs that one request submits.
pub const SUBMIT_RUNS_MAX: usize = 1_000;

/// Runs that one request claims, and that it says something about.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// Changes of runs of queues, and runs that are given, that time brings before others of the shard have their turn.
pub const QUEUE_CHANGES_AT_ONCE: usize = 2_048;

/// Longest concurrency key or unique key of a run, in characters.
pub const RUN_KEY_CHARS_MAX: usize = 200;

/// Longest time that a run may be delayed, may wait before it expires, or its unique key may count: a leap year.
pub const RUN_DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Longest time that an attempt of a run of a queue may be given.
pub const RUN_TIMEOUT_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Priority of a run, if nobody says otherwise, and the last one.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The priority that is claimed last: see [`PRIORITY_DEFAULT`].
pub const PRIORITY_LAST: u8 = 9;

/// Most arguments of a command, the program among them, and most variables of its environment.
pub const COMMAND_PARTS_MAX: usize = 1_000;

/// Most runs of a queue that may execute at a time, if there is a limit.
pub const CONCURRENCY_MAX: u64 = 100_000;

/// Most runs of a rate.
pub const RATE_RUNS_MAX: u64 = 1_000_000;

/// Shortest and longest period of a rate.
pub const RATE_PERIOD_MIN: Duration = Duration::from_secs(1);
/// The longest period of a rate: see [`RATE_PERIOD_MIN`].
pub const RATE_PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Queues that one claim names.
pub const CLAIM_QUEUES_MAX: usize = 32;

/// Longest wait of a claim for runs.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a worker may be silent, if it does not say otherwise; at least, and at most.
pub const WORKER_LEASE_DEFAULT: Duration = Duration::from_secs(15);
/// The shortest lease of a worker: see [`WORKER_LEASE_DEFAULT`].
pub const WORKER_LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease of a worker: see [`WORKER_LEASE_DEFAULT`].
pub const WORKER_LEASE_MAX: Duration = Duration::from_secs(86_400);

/// What a worker says went wrong is kept up to this length, in characters.
pub const RUN_ERROR_CHARS_MAX: usize = 1_000;

/// Bytes of what runs are about after which an answer to a claim gives no more: less than servers pass on to each other.
pub const CLAIM_ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What is kept of what a run prints, in bytes: the last of it.
pub const OUTPUT_KEPT_BYTES_MAX: usize = 64 * 1024;

/// Pieces in which that is kept: a new one begins when the program prints to its other stream, or a second later.
pub const OUTPUT_PIECES_KEPT_MAX: usize = 1_024;

/// Bytes of output that a shard keeps in memory of runs that execute. Of the run that printed nothing for the longest time
/// it goes first.
pub const OUTPUT_SHARD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of output of runs that are over, in a store; each shard may have an equal part.
pub const OUTPUT_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The part of an engine's room that output may have: one in so many.
pub const OUTPUT_PART: u64 = 16;

/// Bytes of output in one request of a worker.
pub const OUTPUT_REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Chunks of output in one request of a worker.
pub const OUTPUT_CHUNKS_MAX: usize = 256;

/// Greatest offset of a chunk: what every reader of JSON takes for a whole number.
pub const OUTPUT_OFFSET_MAX: u64 = 1 << 53;

/// Longest text about how far a run has come, in characters.
pub const PROGRESS_CHARS_MAX: usize = 200;

/// Those who follow what runs of a server print, at a time: each keeps a connection, and up to 1 MiB.
pub const FOLLOWERS_MAX: usize = 128;
/// Those who follow what runs of a server print, at a time with one key.
pub const FOLLOWERS_OF_KEY_MAX: usize = 32;

/// Requests of workers that wait for one who follows a run; what comes then is left out for this one.
pub const FOLLOWER_CHUNKS_MAX: usize = 16;

/// Between two events about how far the same run has come there is so much time at least, in milliseconds.
pub const PROGRESS_EVENT_MS: u64 = 1_000;

/// Events about how far runs of a shard have come, in one second.
pub const PROGRESS_EVENTS_MAX: usize = 20;
/// Dead runs of a queue that are kept to be redriven.
pub const DEAD_RUNS_PER_QUEUE_MAX: usize = 10_000;

/// Dead runs of a queue among these whose payload is long: see [`ACTION_INLINE_BYTES_MAX`].
pub const DEAD_BODIES_PER_QUEUE_MAX: usize = 1_000;

/// Dead runs of all queues of a project in one shard that are kept.
pub const DEAD_RUNS_PER_PROJECT_MAX: usize = 20_000;

/// Dead runs of a project in one shard among these whose payload is long.
pub const DEAD_BODIES_PER_PROJECT_MAX: usize = 2_000;

/// Dead runs of all projects in one shard that are kept.
pub const DEAD_RUNS_PER_SHARD_MAX: usize = 50_000;

/// Dead runs of all projects in one shard among these whose payload is long.
pub const DEAD_BODIES_PER_SHARD_MAX: usize = 5_000;

/// How long a dead run is kept to be redriven.
pub const DEAD_RUNS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Dead runs that go before others of the shard have their turn.
pub const DEAD_RUNS_FORGOTTEN_AT_ONCE: usize = 32;

/// Dead runs that go when another one dies, if there are more than may be kept.
pub const DEAD_RUNS_FORGOTTEN_FOR_ONE: usize = 2;

/// Dead runs that one request redrives, where the store takes so many writes in a commit.
pub const REDRIVE_RUNS_MAX: usize = 150;

/// Bytes of what runs are about after which a request redrives no more of them.
pub const REDRIVE_BYTES_MAX: usize = 1024 * 1024;

/// Runs that are cancelled by a filter before others of the shard have their turn.
pub const CANCEL_RUNS_MAX: usize = 1_000;

/// Unfinished runs of a shard that are looked at by a filter before others have their turn.
pub const FILTER_LOOKED_AT_MAX: usize = 20_000;

/// Runs that one request cancels by a filter, in pieces of [`CANCEL_RUNS_MAX`].
pub const CANCEL_REQUEST_RUNS_MAX: usize = 10_000;

/// Pieces of [`FILTER_LOOKED_AT_MAX`] runs that one request looks through to cancel some, or to list some.
pub const CANCEL_PIECES_MAX: usize = 25;
/// The same, of a request that only counts: it gets through the fullest queue.
pub const COUNT_PIECES_MAX: usize = 125;

/// Dead runs that one request looks at: all that a queue may have, and those that are about to go.
pub const DEAD_LOOKED_AT_MAX: usize = 12_000;

/// Ends of a hold's program that its record keeps.
pub const HOLD_EXITS_KEPT_MAX: usize = 5;

/// Hand-overs of a hold that its record keeps.
pub const HOLD_HAND_OVERS_KEPT_MAX: usize = 6;

/// Shortest interval of a ring's subscription.
pub const RING_EVERY_MIN: Duration = Duration::from_millis(20);

/// Most members that take one turn.
pub const RING_COUNT_MAX: u64 = 64;

/// Most members of a ring.
pub const RING_MEMBERS_MAX: usize = 10_000;

/// Most subscriptions of a ring.
pub const RING_SUBSCRIPTIONS_MAX: usize = 16;

/// Most rings of a project, where the store has the room of a disk.
pub const RINGS_PER_PROJECT_MAX: usize = 10_000;

/// Bytes of an engine's room for each ring of a project, where that is less than a disk.
pub const RING_ROOM_BYTES: u64 = 512 * 1024;

/// Shortest and longest time that a member may be given to accept its part of a turn.
pub const RING_ACCEPT_MIN: Duration = Duration::from_millis(200);
/// The longest of these: see [`RING_ACCEPT_MIN`].
pub const RING_ACCEPT_MAX: Duration = Duration::from_secs(3_600);

/// Most of an interval, in percent, over which the parts of a turn are spread.
pub const RING_SPLAY_PERCENT_MAX: u64 = 100;

/// Parts of turns of a subscription that wait to be accepted. With more, the oldest end unaccepted.
pub const RING_OPEN_PARTS_MAX: usize = 256;

/// Members to which one part of a turn is offered, one after the other.
pub const RING_TRIES_MAX: usize = 16;

/// Accepted parts that a subscription remembers, for those who ask again.
pub const RING_ACCEPTED_KEPT_MAX: usize = 64;

/// Entries of a page of a subscription; a page with as many leaves the record.
pub const RING_PAGE_ENTRIES: usize = 64;

/// Bytes of names from which on a page leaves the record, however few its entries are.
pub const RING_PAGE_BYTES: usize = 16 * 1024;

/// How long a page is kept after it left the record, if there are more than [`RING_PAGES_KEPT_MIN`].
pub const RING_PAGE_AGE: Duration = Duration::from_secs(60);

/// Pages that are kept in any case.
pub const RING_PAGES_KEPT_MIN: usize = 8;

/// Slots that one commit decides, ...
pub const RING_SLOTS_AT_ONCE_MAX: usize = 64;

/// ...as long as they have no more parts than this together; one slot is decided in any case.
pub const RING_PARTS_AT_ONCE_MAX: usize = 256;

/// A slot that is late by more than this follows the catch-up policy.
pub const RING_LATE_MAX: Duration = Duration::from_secs(5);

/// What was decided further ahead of the clock than this is set back: a clock had run far ahead.
pub const RING_AHEAD_MAX: Duration = Duration::from_secs(5);

/// How long a member may be silent before its sponsor takes it out, and how long members have to find another server when their
/// sponsor is gone.
pub const RING_SILENCE_MAX: Duration = Duration::from_secs(5);

/// How often a member is to say that it is there.
pub const RING_BEAT: Duration = Duration::from_secs(1);

/// How long it is remembered that a member is gone, so that nothing late brings it back.
pub const RING_MARK_KEPT: Duration = Duration::from_secs(60);

/// How much later than the one before it each server in line stands in for the last writer of a subscription.
pub const RING_STAND_IN: Duration = Duration::from_millis(150);

/// The longest part of an interval for which the others let the last writer be the only one.
pub const RING_STILL_MAX: Duration = Duration::from_secs(2);

/// How long a part of a member that is gone waits before it passes on.
pub const RING_GONE_PART_WAIT: Duration = Duration::from_millis(300);

/// Events that wait for one follower of a ring. One that has more of them waiting is cut off.
pub const RING_FOLLOWER_EVENTS_MAX: usize = 1_024;

/// Followers of rings at one server.
pub const RING_FOLLOWERS_MAX: usize = 4_096;

/// Members that are taken in or out in one commit, where the store takes as many writes.
pub const RING_ROLL_BATCH_MAX: usize = 64;

/// What a server is asked about rings that waits to be begun.
pub const RING_CALLS_MAX: usize = 8_192;

/// How long a server waits for the store in one step about a ring.
pub const RING_ANSWER_MAX: Duration = Duration::from_secs(1);

/// How much of the path of a hold's program its record shows.
pub const HOLD_PROGRAM_CHARS_MAX: usize = 200;

/// Shortest lease of a hold: below it, there is not enough time between the two deadlines to end a tree in.
pub const HOLD_TTL_MIN: Duration = Duration::from_secs(1);

/// How long it may take until a tree is empty that the kernel keeps together.
pub const HOLD_KILL_TIME_MAX: Duration = Duration::from_millis(100);

/// How long it may take until a tree is empty whose processes have to be looked for.
pub const HOLD_WEAK_KILL_TIME_MAX: Duration = Duration::from_millis(400);

/// The first pause after the program of a hold has ended, ...
pub const HOLD_PAUSE_MIN: Duration = Duration::from_millis(250);

/// ...and the longest: each is twice the one before.
pub const HOLD_PAUSE_MAX: Duration = Duration::from_secs(10);

/// After a program ran for so long, its pauses begin anew.
pub const HOLD_STEADY: Duration = Duration::from_secs(60);

/// Ends of a program after which another node shall try, ...
pub const HOLD_EXITS_MAX: usize = 5;

/// ...if they came within this time.
pub const HOLD_EXITS_TIME: Duration = Duration::from_secs(60);

/// How far the two clocks of a machine may be apart, in parts of a hundred, before that is told.
pub const HOLD_CLOCKS_APART_PERCENT: u32 = 1;

/// How far they may look apart because they are not read at the same moment.
pub const HOLD_CLOCKS_APART_MIN: Duration = Duration::from_millis(50);

/// For how long they are compared with the same moment.
pub const HOLD_CLOCKS_SPAN: Duration = Duration::from_secs(60);

/// Shortest time between two writes of what is shown of a hold, but for the last one.
pub const HOLD_RECORD_PAUSE: Duration = Duration::from_millis(500);

/// Longest time that the program of a hold may be given to end by itself.
pub const HOLD_STOP_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Shortest time between two health commands of a hold.
pub const HOLD_HEALTH_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Longest time between two health commands, and longest time after the start without one.
pub const HOLD_HEALTH_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// Most health commands in a row that may fail.
pub const HOLD_HEALTH_FAILURES_MAX: u32 = 100;

/// Smallest file of a hold's output.
pub const HOLD_OUTPUT_BYTES_MIN: u64 = 4 * 1024;

/// Most files of a hold's output.
pub const HOLD_OUTPUT_FILES_MAX: u32 = 1_000;

/// Projects whose rings are measured by name; those of the others are one.
pub const RING_PROJECTS_MEASURED_MAX: usize = 100;

/// Followers of rings at one server with one key.
pub const RING_FOLLOWERS_OF_KEY_MAX: usize = 1_024;

/// How long a member may wait for its turns in one request: if its machine is gone it is noticed so much later.
pub const RING_MEMBER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Bytes in which a member says how far it has heard of each subscription.
pub const RING_CURSORS_BYTES_MAX: usize = 4_096;

/// Turns that wait at `watchbell ring join` while its program runs; those beyond are left out.
pub const RING_TURNS_WAITING_MAX: usize = 64;
