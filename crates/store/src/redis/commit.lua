-- Commits, one after the other: each checks, then writes, and what one has done the next one finds. All of it is one
-- step that nothing else of this Redis comes between. Who answers, the time and the hint are had once for all of them.
--
-- KEYS   the entries (hash: key -> "VERSION VALUE", and " last" -> the last version), their order (sorted set, all of score 0)
-- ARGV   the channel of hints, then for each commit how many conditions, how many puts, how many deletes,
--        for each condition what it wants ("-" absent, "+" present, or a version), for each condition its key,
--        for each put its key and its value, and for each delete its key.
--        Those without a put come last: see below
-- gives  {epoch, replicas, "commits", and for each commit one of
--            {"done", version}
--            {"conflict", number of the condition, version found or "-"}: nothing was changed
--            {"refused", why}: nothing was changed}
--        {"", "0", "replica"}: nothing was changed
local info = redis.call('INFO', 'replication')
local replicas = string.match(info, 'role:master\r\nconnected_slaves:(%d+)')
if not replicas then
    return {'', '0', 'replica'}
end
local place = string.find(info, 'master_replid:', 1, true)
local epoch = string.sub(info, place + 14, place + 53)

-- Microseconds stay below 2^53 until the year 2255, so a double holds them exactly.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The keys that were changed. A star stands for those of a commit with so many that nobody wants to read them all.
local changed, changed_max = {}, 32

-- The commit whose conditions begin at this place.
local function commit(at, conditions, puts, deletes)
    local wanted = at
    at = at + conditions
    local held = redis.call('HMGET', KEYS[1], ' last', unpack(ARGV, at, at + conditions - 1))
    for number = 1, conditions do
        local value = held[number + 1]
        local want, found = ARGV[wanted + number - 1], value and (string.match(value, '^%d+') or '?') or '-'
        if want ~= found and not (want == '+' and found ~= '-') then
            return {'conflict', number, found}
        end
    end
    at = at + conditions

    local version = string.format('%.0f', math.max((held[1] or 0) + 1, now))
    local gone = at + 2 * puts
    local last = gone + deletes - 1
    local fields = {' last', version}
    for place = at, gone - 1, 2 do
        fields[place - at + 3], fields[place - at + 4] = ARGV[place], version .. ' ' .. ARGV[place + 1]
    end

    -- The first write that Redis takes decides for the whole step: until then it may refuse any (a full memory, a full
    -- disk, a replica), and from then on it refuses none. So nothing is half done, whichever commit that is in.
    -- One that frees memory goes first if its commit has no other, and is taken when memory is full; what follows would
    -- be taken too, so commits with puts are not behind such a one.
    if puts == 0 then
        local first = redis.pcall('HDEL', KEYS[1], unpack(ARGV, gone, last))
        if type(first) == 'table' then
            return {'refused', first.err}
        end
    end
    local new = redis.pcall('HSET', KEYS[1], unpack(fields))
    if type(new) == 'table' then
        return {'refused', new.err}
    end
    -- Whatever is there has its place in the order already.
    if puts > 0 and new > 0 then
        local members = {}
        for place = at, gone - 1, 2 do
            members[place - at + 1], members[place - at + 2] = 0, ARGV[place]
        end
        redis.call('ZADD', KEYS[2], unpack(members))
    end
    if deletes > 0 then
        if puts > 0 then
            redis.call('HDEL', KEYS[1], unpack(ARGV, gone, last))
        end
        redis.call('ZREM', KEYS[2], unpack(ARGV, gone, last))
    end
    if puts + deletes > changed_max then
        changed[#changed + 1] = '*'
        return {'done', version}
    end
    for place = at, gone - 1, 2 do
        changed[#changed + 1] = ARGV[place]
    end
    for place = gone, last do
        changed[#changed + 1] = ARGV[place]
    end
    return {'done', version}
end

local reply, at, size = {epoch, replicas, 'commits'}, 2, #ARGV
while at <= size do
    local conditions, puts, deletes = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    reply[#reply + 1] = commit(at + 3, conditions, puts, deletes)
    at = at + 3 + 2 * conditions + 2 * puts + deletes
end

-- A hint may be lost: whoever may not publish has committed all the same.
if #changed > 0 then
    redis.pcall('PUBLISH', ARGV[1], table.concat(changed, ' '))
end
return reply
