-- Views for people: what the records of a store say, in columns. No server reads them.

-- A value as JSON, or nothing if it is none.
CREATE FUNCTION "watchbell".json(value bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- An instant, or nothing if the text is none that Postgres knows.
CREATE FUNCTION "watchbell".instant(text text) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN text::timestamptz;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The number of the project in a trigger's id: four letters, of five bits each.
CREATE FUNCTION "watchbell".project_number(trigger_id text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT sum((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(trigger_id, 8 + place, 1)) - 1)::bigint << (5 * (3 - place)))
        ::bigint FROM generate_series(0, 3) AS place
$$;

-- Everything. A record is nothing where a value is not JSON.
CREATE VIEW "watchbell".entries AS
    SELECT e.key, e.version, octet_length(e.value) AS bytes, "watchbell".json(e.value) AS record FROM "watchbell".entry e;

CREATE VIEW "watchbell".projects AS
    SELECT 0::bigint AS number, 'default'::text AS name
    UNION
    SELECT (e.record ->> 'id')::bigint, substr(e.key, length('access/project/') + 1)
    FROM "watchbell".entries e WHERE e.key >= 'access/project/' AND e.key < 'access/project0';

-- What users wrote, and what has moved since. Its next slot is not stored: it is the first of the schedule after
-- decided_until.
CREATE VIEW "watchbell".triggers AS
    SELECT coalesce(p.name, "watchbell".project_number(t.record ->> 'id')::text) AS project,
        t.record -> 'draft' ->> 'name' AS name,
        t.record ->> 'id' AS id,
        t.record -> 'draft' -> 'schedule' AS schedule,
        t.record -> 'draft' -> 'webhook' ->> 'url' AS url,
        m.record ? 'paused' IS TRUE AS paused,
        m.record -> 'paused' ->> 'note' AS note,
        m.record ? 'cancelled' IS TRUE AS cancelled,
        coalesce((m.record ->> 'failures')::bigint, 0) AS failures,
        "watchbell".instant(coalesce(m.record ->> 'cursor', t.record ->> 'since')) AS decided_until,
        "watchbell".instant(t.record ->> 'created') AS created,
        t.record ->> 'author' AS author,
        (t.record ->> 'revision')::bigint AS revision
    FROM "watchbell".entries t
    LEFT JOIN "watchbell".entries m ON m.key = replace(t.key, '/trigger/', '/moved/') COLLATE "C"
    LEFT JOIN "watchbell".projects p ON p.number = "watchbell".project_number(t.record ->> 'id')
    WHERE t.key >= 'shard/' AND t.key < 'shard0' AND split_part(t.key, '/', 3) = 'trigger';

-- Runs that are under way or wait, those that have just left, and those that are over, as far back as the past is kept.
-- While the past is being merged a line may stand in two places: DISTINCT makes one of them.
CREATE VIEW "watchbell".runs AS
    WITH line AS (
        SELECT DISTINCT split_part(e.key, '/', 2) AS shard, l.line -> 'run' AS run
        FROM "watchbell".entries e, jsonb_array_elements(e.record -> 'lines') AS l (line)
        WHERE e.key >= 'shard/' AND e.key < 'shard0' AND split_part(e.key, '/', 3) IN ('past', 'page') AND l.line ? 'run'
    ), run AS (
        SELECT l.shard, l.run ->> 'trigger' AS trigger, l.run ->> 'end' AS state, l.run ->> 'slot' AS slot,
            l.run ->> 'at' AS ended, (l.run ->> 'attempt')::bigint AS attempts,
            l.run -> 'attempts' -> -1 ->> 'status' AS status, l.run -> 'attempts' -> -1 ->> 'error' AS error
        FROM line l
        UNION ALL
        SELECT split_part(e.key, '/', 2), e.record ->> 'trigger',
            CASE jsonb_typeof(e.record -> 'state') WHEN 'string' THEN e.record ->> 'state'
                ELSE (SELECT min(k.name) FROM jsonb_object_keys(e.record -> 'state') AS k (name)) END,
            e.record ->> 'slot', NULL, (e.record ->> 'attempt')::bigint,
            e.record -> 'attempts' -> -1 ->> 'status', e.record -> 'attempts' -> -1 ->> 'error'
        FROM "watchbell".entries e
        WHERE e.key >= 'shard/' AND e.key < 'shard0' AND split_part(e.key, '/', 3) = 'run'
        UNION ALL
        SELECT split_part(e.key, '/', 2), split_part(o.open, '@', 1), 'launched',
            to_timestamp(split_part(o.open, '@', 2)::numeric / 1000)::text, NULL, 1, NULL, NULL
        FROM "watchbell".entries e, jsonb_array_elements_text(e.record -> 'body' -> 'open') AS o (open)
        WHERE e.key >= 'shard/' AND e.key < 'shard0' AND split_part(e.key, '/', 3) = 'head'
    )
    SELECT coalesce(p.name, "watchbell".project_number(t.record ->> 'id')::text) AS project,
        t.record -> 'draft' ->> 'name' AS trigger,
        r.trigger AS trigger_unique,
        r.state,
        "watchbell".instant(r.slot) AS slot,
        "watchbell".instant(r.ended) AS ended,
        r.attempts,
        r.status::integer AS status,
        r.error
    FROM run r
    LEFT JOIN "watchbell".entries t ON t.key = ('shard/' || r.shard || '/trigger/' || r.trigger) COLLATE "C"
    LEFT JOIN "watchbell".projects p ON p.number = "watchbell".project_number(t.record ->> 'id');
