"""What a Redis store does in one step: the server runs a script to its end, and nobody else meanwhile.

A script that was sent again after a lost connection finds what it did the first time by its id, and does it once.
"""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript

# KEYS: the log. ARGV: the version that it has; the id of this change; end; written; tree, blank: as before; for how
# many seconds the log is kept, 0: for ever; the token of whoever writes, blank: not asked; the number of states, then
# field and value of each; segment, start and stop of each cut. Gives 1, or 0 where the log has another version, or -1
# where its fence is higher.
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
-- Where nothing is added, this comes first: a server whose memory is full lets a script write that has made room.
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

# KEYS: the log. ARGV: the token; for how many seconds the fence of a log that is not there is kept. Gives 2, 1 where
# there is no log yet, or 0 where its fence is higher.
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

# KEYS: the log; where the id of its removal is kept for a minute. ARGV: the version that the log has; the id; for how
# many seconds its fence is kept. Gives 1, or 0 where the log has another version.
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

# KEYS: the index. ARGV: key and time of each entry that is to go, unless it was renewed.
TIDY = RedisScript("""
for i = 1, #ARGV, 2 do
    if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '') == tonumber(ARGV[i + 1]) then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return 1
""")
