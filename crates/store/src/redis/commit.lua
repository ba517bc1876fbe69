-- One commit: checks, then writes, as one step that nothing else of this Redis comes between.
--
-- KEYS   the entries (hash: key -> "VERSION VALUE"), their order (sorted set, all of score 0), the last version
-- ARGV   the channel of hints, how many conditions, how many puts, then
--        for each condition what it wants ("-" absent, "+" present, or a version) and its key,
--        for each put its key and its value, and for each delete its key
-- gives  {epoch, replicas, "done", version}
--        {epoch, replicas, "conflict", number of the condition, version found or "-"}
--        {epoch, replicas, "refused", why}: nothing was changed
--        {epoch, replicas, "replica"}: nothing was changed
local role, replicas, epoch = string.match(redis.call('INFO', 'replication'),
    'role:(%a+).-connected_slaves:(%d+).-master_replid:(%x+)')
if role ~= 'master' then
    return {epoch or '', replicas or '0', 'replica'}
end

local conditions, puts, at = tonumber(ARGV[2]), tonumber(ARGV[3]), 4
for number = 1, conditions do
    local wanted, value = ARGV[at], redis.call('HGET', KEYS[1], ARGV[at + 1])
    local found = value and (string.match(value, '^%d+') or '?') or '-'
    if wanted ~= found and not (wanted == '+' and found ~= '-') then
        return {epoch, replicas, 'conflict', number, found}
    end
    at = at + 2
end

-- Microseconds stay below 2^53 until the year 2255, so a double holds them exactly.
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[3]) or 0)
local version = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))

local changed, fields, members = {}, {}, {}
for number = 1, puts do
    local key = ARGV[at]
    changed[number] = key
    fields[2 * number - 1], fields[2 * number] = key, version .. ' ' .. ARGV[at + 1]
    members[2 * number - 1], members[2 * number] = 0, key
    at = at + 2
end
local deleted = {}
for place = at, #ARGV do
    deleted[#deleted + 1] = ARGV[place]
    changed[#changed + 1] = ARGV[place]
end

-- The first write decides for all: Redis refuses it (a full memory, a full disk, a replica), or refuses none of
-- those that follow. One that frees memory goes first if nothing else does, and is taken when memory is full.
local first
if puts > 0 then
    first = redis.pcall('SET', KEYS[3], version)
else
    first = redis.pcall('HDEL', KEYS[1], unpack(deleted))
end
if type(first) == 'table' and first.err then
    return {epoch, replicas, 'refused', first.err}
end
if puts > 0 then
    -- Whatever is there has its place in the order already.
    if redis.call('HSET', KEYS[1], unpack(fields)) > 0 then
        redis.call('ZADD', KEYS[2], unpack(members))
    end
    if #deleted > 0 then
        redis.call('HDEL', KEYS[1], unpack(deleted))
    end
else
    redis.call('SET', KEYS[3], version)
end
if #deleted > 0 then
    redis.call('ZREM', KEYS[2], unpack(deleted))
end

-- A hint may be lost: whoever may not publish has committed all the same.
redis.pcall('PUBLISH', ARGV[1], #changed > 32 and '*' or table.concat(changed, ' '))
return {epoch, replicas, 'done', version}
