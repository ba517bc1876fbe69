-- One commit: checks, then writes, as one step that nothing else of this Redis comes between.
--
-- KEYS   the entries (hash: key -> "VERSION VALUE", and " last" -> the last version), their order (sorted set, all of score 0)
-- ARGV   the channel of hints and the hint, how many conditions, how many puts, then
--        for each condition what it wants ("-" absent, "+" present, or a version), for each condition its key,
--        for each put its key and its value, and for each delete its key
-- gives  {epoch, replicas, "done", version}
--        {epoch, replicas, "conflict", number of the condition, version found or "-"}
--        {epoch, replicas, "refused", why}: nothing was changed
--        {"", "0", "replica"}: nothing was changed
local info = redis.call('INFO', 'replication')
local replicas = string.match(info, 'role:master\r\nconnected_slaves:(%d+)')
if not replicas then
    return {'', '0', 'replica'}
end
local place = string.find(info, 'master_replid:', 1, true)
local epoch = string.sub(info, place + 14, place + 53)

local conditions, puts = tonumber(ARGV[3]), tonumber(ARGV[4])
local at = 5 + conditions
local held = redis.call('HMGET', KEYS[1], ' last', unpack(ARGV, at, at + conditions - 1))
for number = 1, conditions do
    local wanted, value = ARGV[4 + number], held[number + 1]
    local found = value and (string.match(value, '^%d+') or '?') or '-'
    if wanted ~= found and not (wanted == '+' and found ~= '-') then
        return {epoch, replicas, 'conflict', number, found}
    end
end
at = at + conditions

-- Microseconds stay below 2^53 until the year 2255, so a double holds them exactly.
local time = redis.call('TIME')
local version = string.format('%.0f', math.max((held[1] or 0) + 1, time[1] * 1000000 + time[2]))

local fields, deletes = {' last', version}, at + 2 * puts
for place = at, deletes - 1, 2 do
    fields[place - at + 3], fields[place - at + 4] = ARGV[place], version .. ' ' .. ARGV[place + 1]
end

-- The first write decides for all: Redis refuses it (a full memory, a full disk, a replica), or refuses none of
-- those that follow. One that frees memory goes first if nothing else does, and is taken when memory is full.
if puts == 0 then
    local first = redis.pcall('HDEL', KEYS[1], unpack(ARGV, deletes))
    if type(first) == 'table' then
        return {epoch, replicas, 'refused', first.err}
    end
end
local new = redis.pcall('HSET', KEYS[1], unpack(fields))
if type(new) == 'table' then
    return {epoch, replicas, 'refused', new.err}
end
if puts > 0 then
    -- Whatever is there has its place in the order already.
    if new > 0 then
        local members = {}
        for place = at, deletes - 1, 2 do
            members[place - at + 1], members[place - at + 2] = 0, ARGV[place]
        end
        redis.call('ZADD', KEYS[2], unpack(members))
    end
    if deletes <= #ARGV then
        redis.call('HDEL', KEYS[1], unpack(ARGV, deletes))
    end
end
if deletes <= #ARGV then
    redis.call('ZREM', KEYS[2], unpack(ARGV, deletes))
end

-- A hint may be lost: whoever may not publish has committed all the same.
redis.pcall('PUBLISH', ARGV[1], ARGV[2])
return {epoch, replicas, 'done', version}
