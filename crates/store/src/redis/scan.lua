-- One page, of one moment.
--
-- KEYS   the entries (hash: key -> "VERSION VALUE"), their order (sorted set, all of score 0)
-- ARGV   the bounds as ZRANGEBYLEX takes them, the most entries, and the bytes at which a page ends
-- gives  {epoch, replicas, "page", 1 if there is more or 0, key, "VERSION VALUE", key, …}
--        {epoch, replicas, "lacking", key}: it has a place in the order and no entry
--        {"", "0", "replica"}
local info = redis.call('INFO', 'replication')
local replicas = string.match(info, 'role:master\r\nconnected_slaves:(%d+)')
if not replicas then
    return {'', '0', 'replica'}
end
local at = string.find(info, 'master_replid:', 1, true)
local epoch = string.sub(info, at + 14, at + 53)

local limit, bytes_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, limit + 1)
local reply, size, bytes = {epoch, replicas, 'page', 0}, 4, 0
-- Few at a time, so that a page of large values reads few that it leaves out.
for first = 1, #keys, 16 do
    local last = math.min(first + 15, #keys)
    local values = redis.call('HMGET', KEYS[1], unpack(keys, first, last))
    for place = first, last do
        local value = values[place - first + 1]
        if place > limit or bytes >= bytes_max then
            reply[4] = 1
            return reply
        end
        if not value then
            return {epoch, replicas, 'lacking', keys[place]}
        end
        -- A version has sixteen digits until the year 2286, and a space behind it.
        bytes = bytes + #keys[place] + #value - 17
        reply[size + 1], reply[size + 2] = keys[place], value
        size = size + 2
    end
end
return reply
