"""Lua scripts for the indexes of all conversations and of due conversations in Redis. Each runs atomically."""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript
from service.store.redis.keys import PRELUDE

# ARGV: the maximum delay until a conversation without an owner is due. Returns 1 and the time since when it is due; 0
# and the time of the next check; -1 if there is no pending work.
LOOK = RedisScript(
    PRELUDE
    + """
local now = clock()
if owner_at(now) then
    return {0, tonumber(redis.call('HGET', KEYS[1], 'until'))}
end
if not has_something_to_do() then
    return {-1, 0}
end
local due = tonumber(redis.call('HGET', KEYS[1], 'due') or '0')
if due - now > tonumber(ARGV[1]) then  -- written before the clock was set back
    return {1, now}
end
return {due <= now and 1 or 0, due}
"""
)

# KEYS: the index of due conversations, by time; the index of all conversations. ARGV: a conversation, and the delay
# until its next check. The score always changes, so that a concurrent check of the old score keeps the entry.
ENTER = RedisScript(
    PRELUDE
    + """
local now = clock()
redis.call('ZADD', KEYS[2], now, ARGV[1])
local at = now + tonumber(ARGV[2])
local found = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '')
redis.call('ZADD', KEYS[1], (found and found <= at) and found - 1 / 1024 or at, ARGV[1])
return 1
"""
)

# KEYS: the index of due conversations. ARGV: offset and count; the maximum delay of a check: entries beyond it were
# written before the clock was set back and are returned, too. Returns conversations and scores.
CANDIDATES = RedisScript(
    PRELUDE
    + """
local now = clock()
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
local room = tonumber(ARGV[2]) - #found / 2
if room > 0 then
    local far = '(' .. whole(now + tonumber(ARGV[3]))
    for _, part in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], far, '+inf', 'WITHSCORES', 'LIMIT', 0, room)) do
        table.insert(found, part)
    end
end
return found
"""
)

# KEYS: the index of due conversations. ARGV: for each conversation, its name, its score when it was read, and the time
# of the next check: "damaged" (unreadable) for a minute from now, or a blank if there is no pending work. An entry is
# removed only if two checks, a minute apart, found no pending work and its score did not change: an admission that
# entered the conversation before the first check has finished by then.
LATER = RedisScript(
    PRELUDE
    + """
local again = clock() + 60000 + 0.5
for i = 1, #ARGV, 3 do
    local found = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if found and tonumber(found) == tonumber(ARGV[i + 1]) then
        if ARGV[i + 2] == 'damaged' then
            redis.call('ZADD', KEYS[1], clock() + 60000, ARGV[i])
        elseif ARGV[i + 2] ~= '' then
            redis.call('ZADD', KEYS[1], ARGV[i + 2], ARGV[i])
        elseif tonumber(found) % 1 == 0.5 then
            redis.call('ZREM', KEYS[1], ARGV[i])
        else
            redis.call('ZADD', KEYS[1], again, ARGV[i])
        end
    end
end
return 1
"""
)

# KEYS: the index of all conversations. ARGV: the minimum age of an entry to be removed, and the conversations that no
# longer exist.
GONE = RedisScript(
    PRELUDE
    + """
local before = clock() - tonumber(ARGV[1])
for i = 2, #ARGV do
    local entered = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if entered and tonumber(entered) < before then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return 1
"""
)
