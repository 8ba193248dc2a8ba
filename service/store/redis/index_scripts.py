"""What is done in one step in the indexes of conversations in Redis: which there are, and which of them may be due."""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript
from service.store.redis.keys import WORDS

# ARGV: the longest time for which a conversation without an owner may rest. Gives 1 and since when others may be told
# that there is something to do; 0 and when to look again; -1 where there is nothing to do.
LOOK = RedisScript(
    WORDS
    + """
local now = clock()
if owner_at(now) then
    return {0, tonumber(redis.call('HGET', KEYS[1], 'until'))}
end
if not has_something_to_do() then
    return {-1, 0}
end
local due = tonumber(redis.call('HGET', KEYS[1], 'due') or '0')
if due - now > tonumber(ARGV[1]) then  -- before the clock was set back
    return {1, now}
end
return {due <= now and 1 or 0, due}
"""
)

# KEYS: the index of what may be due, by time; that of all conversations. ARGV: a conversation, and how long nobody need
# look at it. Its entry is another one afterwards in any case, so that nobody who looked at it before takes it out.
ENTER = RedisScript(
    WORDS
    + """
local now = clock()
redis.call('ZADD', KEYS[2], now, ARGV[1])
local at = now + tonumber(ARGV[2])
local found = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '')
redis.call('ZADD', KEYS[1], (found and found <= at) and found - 1 / 1024 or at, ARGV[1])
return 1
"""
)

# KEYS: the index of what may be due. ARGV: how many to leave out, and how many to give; the longest time for which none
# is looked at: those with more before them were entered before the clock was set back. Gives conversations and times.
CANDIDATES = RedisScript(
    WORDS
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

# KEYS: the index of what may be due. ARGV: of each conversation, its time as it was found; and when to look again,
# "damaged" for a minute from now where it cannot be read, or a blank where there is nothing to do. It is taken out only
# where that was found twice, a minute apart, and nobody has entered it meanwhile: by then nobody is between entering it
# and admitting something to it.
LATER = RedisScript(
    WORDS
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

# KEYS: the index of all conversations. ARGV: how long ago each of these must have been entered to be taken out, and
# those that are not there.
GONE = RedisScript(
    WORDS
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
