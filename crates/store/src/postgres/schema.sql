-- What Watchbell keeps in a database, format 1. "watchbell" stands for the schema that the URL names.
-- Everything here is made in one transaction, by whoever comes first.

-- One row. `incarnation` is the one for which versions were last moved ahead: see arrive().
CREATE TABLE "watchbell".about (
    format integer NOT NULL,
    incarnation text NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO "watchbell".about (format, incarnation) VALUES (1, '');

-- Keys sort by their bytes. Room is left in each page, so that a row that only changes its value stays in it.
CREATE TABLE "watchbell".entry (
    key text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    value bytea NOT NULL
) WITH (fillfactor = 80);

CREATE SEQUENCE "watchbell".version;

-- Changes whenever what was acknowledged may have been lost without a new timeline: with the server's start, and where
-- commits do not wait for the disk also with a crash of one of its processes, which the server survives.
CREATE FUNCTION "watchbell".incarnation() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text
        || CASE current_setting('synchronous_commit') WHEN 'off'
           THEN '.' || coalesce((extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint::text, '')
           ELSE '' END
$$;

-- The first commit of an incarnation moves versions ahead to the clock, in microseconds: a server that lost its tail, or
-- a standby that had not received it, never gives a version twice.
CREATE FUNCTION "watchbell".arrive(present text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE "watchbell".about IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM "watchbell".about a WHERE a.incarnation = present) THEN
        RETURN;
    END IF;
    PERFORM setval('"watchbell".version', greatest(
        (SELECT s.last_value + 1 FROM "watchbell".version s),
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
    UPDATE "watchbell".about SET incarnation = present;
END $$;

-- Commits: locks, then checks, then writes. Each statement of a volatile function sees what was committed before it, so
-- what is checked is what is there under the locks; a single statement would look first and lock afterwards.
--
-- Several commits that have nothing to do with each other may come at once: `…_of` says to which of them a condition or a
-- write belongs, counted from 1. Each happens or does not on its own; all that happen become durable together.
--
-- `lock` are hashes of keys in the one order that all take them in; `alone` says of each whether nobody else may hold it.
-- A condition is a key and the version that it must have, or 0 for any, or -1 for none. `failed` is the first condition of
-- each commit that does not hold, and `seen` what was there; `version` is nothing then.
CREATE FUNCTION "watchbell".commit(
    count integer, lock bigint[], alone boolean[], when_of integer[], when_key text[], when_version bigint[],
    put_of integer[], put_key text[], put_value bytea[], gone_of integer[], gone text[],
    OUT version bigint[], OUT failed integer[], OUT seen bigint[], OUT incarnation text
) LANGUAGE plpgsql VOLATILE SET lock_timeout = '2s' AS $$
DECLARE
    there bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is %, and a commit needs read committed',
            current_setting('transaction_isolation') USING ERRCODE = '0A000';
    END IF;
    incarnation := "watchbell".incarnation();
    IF NOT EXISTS (SELECT FROM "watchbell".about a WHERE a.incarnation = commit.incarnation) THEN
        PERFORM "watchbell".arrive(incarnation);
    END IF;
    FOR i IN 1 .. cardinality(lock) LOOP
        IF alone[i] THEN
            PERFORM pg_advisory_xact_lock(lock[i]);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(lock[i]);
        END IF;
    END LOOP;
    version := array_fill(NULL::bigint, ARRAY[count]);
    failed := array_fill(NULL::integer, ARRAY[count]);
    seen := version;
    FOR i IN 1 .. cardinality(when_of) LOOP
        CONTINUE WHEN failed[when_of[i]] IS NOT NULL;
        SELECT e.version INTO there FROM "watchbell".entry e WHERE e.key = when_key[i];
        IF (CASE when_version[i] WHEN -1 THEN there IS NOT NULL WHEN 0 THEN there IS NULL
            ELSE there IS DISTINCT FROM when_version[i] END)
        THEN
            failed[when_of[i]] := i;
            seen[when_of[i]] := there;
        END IF;
    END LOOP;
    FOR i IN 1 .. count LOOP
        IF failed[i] IS NULL THEN
            version[i] := nextval('"watchbell".version');
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(gone_of) LOOP
        IF version[gone_of[i]] IS NOT NULL THEN
            DELETE FROM "watchbell".entry e WHERE e.key = gone[i];
        END IF;
    END LOOP;
    IF cardinality(put_of) > 0 THEN
        INSERT INTO "watchbell".entry AS e (key, version, value)
            SELECT p.key, commit.version[p.of], p.value FROM unnest(put_of, put_key, put_value) AS p (of, key, value)
            WHERE commit.version[p.of] IS NOT NULL
            ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value;
    END IF;
END $$;

-- A page: first a row that says which incarnation answers, none if this is a standby; then entries, until there are as
-- many as were asked for or their bytes reach the most that a page has; then, if there are more, the next one's key.
-- The planner would scan and sort a table that was small when it first looked, and go on so when it has grown.
CREATE FUNCTION "watchbell".scan(first text, behind text, most integer, most_bytes bigint)
RETURNS TABLE (key text, version bigint, value bytea)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    line record;
    count integer := 0;
    bytes bigint := 0;
BEGIN
    key := CASE WHEN pg_is_in_recovery() THEN NULL ELSE "watchbell".incarnation() END;
    RETURN NEXT;
    FOR line IN
        SELECT e.key, e.version, e.value FROM "watchbell".entry e
        WHERE e.key >= first COLLATE "C" AND e.key < behind COLLATE "C" ORDER BY e.key LIMIT most + 1
    LOOP
        key := line.key;
        IF count = most OR bytes >= most_bytes THEN
            version := NULL;
            value := NULL;
            RETURN NEXT;
            RETURN;
        END IF;
        version := line.version;
        value := line.value;
        RETURN NEXT;
        count := count + 1;
        bytes := bytes + octet_length(line.key) + octet_length(line.value);
    END LOOP;
END $$;
