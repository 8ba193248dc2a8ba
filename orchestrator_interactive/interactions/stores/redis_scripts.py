"""Lua scripts of the Redis store; the server runs each one atomically.

A script that is retried after a lost connection finds its id from the first attempt and has no second effect.
"""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript

# KEYS: the log. ARGV: expected version; id of this change; end; written; tree, blank if unchanged; seconds to keep the
# log, 0 for ever; fencing token of the writer, blank for no check; number of states, then field and value of each;
# segment, start and stop of each cut. Returns 1, or 0 if the log has another version, or -1 if its fencing token is
# higher.
COMMIT = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'version', 'ids', 'fence')
local ids = found[2] or ''
if (found[1] or '0') ~= ARGV[1] or tonumber(found[3] or '0') > (tonumber(ARGV[7]) or math.huge) then
    if string.find(ids, ARGV[2], 1, true) then
        return 1
    end
    return tonumber(found[3] or '0') > (tonumber(ARGV[7]) or math.huge) and -1 or 0
end
local cuts = 9 + 2 * tonumber(ARGV[8])
for i = 9, cuts - 1, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
-- If no states are added, this runs first: a server whose memory is full allows writes after a deletion.
for i = cuts, #ARGV, 3 do
    for index = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]) - 1 do
        redis.call('HDEL', KEYS[1], ARGV[i] .. '/' .. index)
    end
end
if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[1], 'tree', ARGV[5])
end
ids = string.sub(ARGV[2] .. ids, 1, 8 * #ARGV[2])
redis.call('HSET', KEYS[1], 'end', ARGV[3], 'written', ARGV[4], 'ids', ids)
redis.call('HINCRBY', KEYS[1], 'version', 1)
if ARGV[6] ~= '0' then
    redis.call('EXPIRE', KEYS[1], ARGV[6])
else
    redis.call('PERSIST', KEYS[1])
end
return 1
""")

# KEYS: the log. ARGV: the token; seconds to keep the fence of a log that does not exist. Returns 2 if the log exists, 1
# if it does not, or 0 if its fencing token is higher.
FENCE = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'fence', 'version')
if tonumber(found[1] or '0') > tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if not found[2] then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
    return 1
end
return 2
""")

# KEYS: the log; a key that stores the id of the removal for a minute. ARGV: expected version; id; seconds to keep the
# fence. Returns 1, or 0 if the log has another version.
REMOVE = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'version', 'fence')
if (found[1] or '0') ~= ARGV[1] then
    return redis.call('GET', KEYS[2]) == ARGV[2] and 1 or 0
end
redis.call('UNLINK', KEYS[1])
if found[2] then
    redis.call('HSET', KEYS[1], 'fence', found[2])
    redis.call('EXPIRE', KEYS[1], ARGV[3])
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', 60)
return 1
""")

# KEYS: the index. ARGV: key and time of each entry to remove; entries with a newer time are kept.
TIDY = RedisScript("""
for i = 1, #ARGV, 2 do
    if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '') == tonumber(ARGV[i + 1]) then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return 1
""")
