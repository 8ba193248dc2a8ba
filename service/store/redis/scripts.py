"""What a run store in Redis does in one step: the server runs a script to its end, and nobody else meanwhile.

Of a conversation there are four keys, in one slot: its own fields, with a field `p:PART` for each post; its inbox, the
entries that wait by their place; how each entry that is known came and left, by id; and the ids by their place. Times
are the server's, in milliseconds since the epoch.

An owner's step names the process that asks for it, and the number of the step. One that was long on its way, and that
a later one of the same process has overtaken, does nothing: nobody waits for its answer any more.
"""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript
from service.store.redis.keys import WORDS

# Each begins with: for how many seconds the conversation lasts, 0: for ever; and ids of entries that have left it.

# ARGV: the entry's id, kind and data; the id of this call; the agent, blank: as before; the time for which nobody else
# is told of a conversation without an owner. Gives whether it was new, and the owner or a blank.
ADMIT = RedisScript(
    WORDS
    + """
local now = clock()
local owner = owner_at(now)
local seen = redis.call('HGET', KEYS[3], ARGV[3])
if seen then
    return {string.sub(seen, 1, #ARGV[6]) == ARGV[6] and 1 or 0, owner or ''}
end
if not owner and not has_something_to_do() then
    redis.call('HSET', KEYS[1], 'due', whole(now + tonumber(ARGV[8])))
end
if redis.call('EXISTS', KEYS[4]) == 0 then
    redis.call('HSET', KEYS[1], 'gone', redis.call('HGET', KEYS[1], 'seq') or '0')
end
local place = whole(redis.call('HINCRBY', KEYS[1], 'seq', 1))
redis.call('ZADD', KEYS[2], place, written(place, ARGV[4], ARGV[3], ARGV[5]))
redis.call('HSET', KEYS[3], ARGV[3], ARGV[6])
redis.call('ZADD', KEYS[4], place, ARGV[3])
if ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'agent', ARGV[7])
end
last(ARGV[1], ARGV[2])
return {1, owner or ''}
"""
)

# ARGV: process and step; the owner; for how long. Gives nothing where somebody else's lease is valid, else the token,
# the conversation's fields and its inbox.
CLAIM = RedisScript(
    WORDS
    + """
local now = clock()
local owner = owner_at(now)
if (owner and owner ~= ARGV[5]) or is_late(ARGV[3], ARGV[4]) then
    return false
end
local until_then = whole(now + tonumber(ARGV[6]))
local token = whole(next_token())
local lease = {'until', until_then, 'due', until_then, 'length', ARGV[6]}
redis.call('HSET', KEYS[1], 'owner', ARGV[5], 'token', token, unpack(lease))
last(ARGV[1], ARGV[2])
return {token, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1)}
"""
)

# ARGV: the token; for how long. Gives the last place in the inbox, or -1 where the lease is another's.
RENEW = RedisScript(
    WORDS
    + """
if not is_owned(ARGV[3]) then
    return -1
end
local until_then = whole(clock() + tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'until', until_then, 'due', until_then, 'length', ARGV[4])
last(ARGV[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
"""
)

# ARGV: the token; the place behind which. Gives the entries, or nothing where the lease is another's.
FETCH = RedisScript(
    WORDS
    + """
if not is_owned(ARGV[3]) then
    return false
end
return redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[4], '+inf')
"""
)

# ARGV: process and step; the token; how many entries' ids are kept; run, blank: as before, {}: none; held, blank: as
# before; 1: the posts are forgotten; the number of posts, then part and content of each; the number of entries to
# replace, then place and data of each; place and end of each entry to close. Gives 1, or -1: the lease is another's.
WRITE = RedisScript(
    WORDS
    + """
if not is_owned(ARGV[5]) then
    return -1
end
if is_late(ARGV[3], ARGV[4]) then
    return 1
end

local function waiting(place)
    local entry = redis.call('ZRANGEBYSCORE', KEYS[2], place, place)[1]
    if entry then
        redis.call('ZREM', KEYS[2], entry)
    end
    return entry
end

local at = 5

-- What was given next, one after the other.
local function given()
    at = at + 1
    return ARGV[at]
end

local kept, run, held, forgets_posts = tonumber(given()), given(), given(), given()
for _ = 1, tonumber(given()) do
    local part, content = given(), given()
    redis.call('HSET', KEYS[1], 'p:' .. part, content)
end
if forgets_posts == '1' then
    for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
        if string.sub(name, 1, 2) == 'p:' then
            redis.call('HDEL', KEYS[1], name)
        end
    end
end
if run == '{}' then
    redis.call('HDEL', KEYS[1], 'run')
elseif run ~= '' then
    redis.call('HSET', KEYS[1], 'run', run)
end
if held ~= '' then
    redis.call('HSET', KEYS[1], 'held', held)
end
for _ = 1, tonumber(given()) do
    local entry, data = waiting(given()), given()
    if entry then
        local place, kind, id = parsed(entry)
        redis.call('ZADD', KEYS[2], place, written(place, kind, id, data))
    end
end
count_ends()
while at < #ARGV do
    local entry, how = waiting(given()), given()
    if entry then
        local _, _, id = parsed(entry)
        redis.call('HINCRBY', KEYS[1], 'n:' .. how, 1)
        local came = string.match(redis.call('HGET', KEYS[3], id) or '', '^[^=]*')
        redis.call('HSET', KEYS[3], id, came .. '=' .. how)
    end
end
local oldest = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0') - kept
if oldest > tonumber(redis.call('HGET', KEYS[1], 'gone') or '0') then
    redis.call('HSET', KEYS[1], 'gone', whole(oldest))
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', oldest, 'LIMIT', 0, 100)) do
    if string.find(redis.call('HGET', KEYS[3], id) or '=', '=', 1, true) then
        redis.call('HDEL', KEYS[3], id)
        redis.call('ZREM', KEYS[4], id)
    end
end
last(ARGV[1], ARGV[2])
return 1
"""
)

# ARGV: process and step; the token; the place behind which nothing may wait, blank: anything may; after how
# many milliseconds it is due. Gives -1 where the lease is another's, 0 where something waits; 1 where the lease was
# given back, 2 where there is something to do still.
RELEASE = RedisScript(
    WORDS
    + """
if redis.call('HGET', KEYS[1], 'back') ~= ARGV[5] then
    if not is_owned(ARGV[5]) then
        return -1
    end
    if ARGV[6] ~= '' and waits_behind(ARGV[6]) then
        return 0
    end
    if is_late(ARGV[3], ARGV[4]) then
        return 1
    end
    redis.call('HDEL', KEYS[1], 'owner')
    redis.call('HSET', KEYS[1], 'back', ARGV[5], 'due', whole(clock() + tonumber(ARGV[7])))
    last(ARGV[1], ARGV[2])
end
return has_something_to_do() and 2 or 1
"""
)

# Gives the conversation's fields, its inbox, how the entries came and left, their ids in order, how many of these are
# not younger than those that may have been forgotten, and whether somebody's lease is valid.
KNOWN = RedisScript(
    WORDS
    + """
local found = redis.call('HMGET', KEYS[1], 'owner', 'until', 'gone')
return {
    redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1),
    redis.call('HGETALL', KEYS[3]), redis.call('ZRANGE', KEYS[4], 0, -1),
    redis.call('ZCOUNT', KEYS[4], '-inf', found[3] or '0'), found[1] and tonumber(found[2]) > clock() and 1 or 0,
}
"""
)

# ARGV: the id of this call. KEYS[5] keeps it for a minute. Gives whether a conversation was forgotten.
FORGET = RedisScript(
    WORDS
    + """
if redis.call('GET', KEYS[5]) == ARGV[3] then
    return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 or owner_at(clock()) or has_something_to_do() then
    return 0
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('SET', KEYS[5], ARGV[3], 'EX', 60)
return 1
"""
)

# KEYS: the news of an owner. ARGV: a conversation; how many news are kept, and for how many seconds.
WAKE = RedisScript("""
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
""")
