"""What a run store in Redis does in one step: the server runs a script to its end, and nobody else meanwhile.

Of a conversation there are four keys, in one slot: its own fields, with a field `p:PART` for each post; its inbox, the
entries that wait by their place; how each entry that is known came and left, by id; and the ids by their place. Times
are the server's, in milliseconds since the epoch.

An owner's step names the process that asks for it, and the number of the step. One that was long on its way, and that
a later one of the same process has overtaken, does nothing: nobody waits for its answer any more.
"""

from __future__ import annotations

from orchestrator_interactive.interactions.stores.redis_client import Script

_COMMON = """
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- One that is higher than all that were given before, even where the conversation was forgotten meanwhile.
local function next_token()
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    return math.max(tonumber(redis.call('HGET', KEYS[1], 'token') or '0') + 1, now)
end

local function whole(number)
    return string.format('%.0f', number)
end

-- Whose lease is valid, if anybody's is.
local function owner_at(now)
    local found = redis.call('HMGET', KEYS[1], 'owner', 'until')
    return found[1] and tonumber(found[2]) > now and found[1]
end

local function is_owned(token)
    local found = redis.call('HMGET', KEYS[1], 'owner', 'token')
    return found[1] and found[2] == token
end

-- Whether this step of a process was overtaken; else it is the one that may not be.
local function is_late(process, number)
    local found = redis.call('HMGET', KEYS[1], 'process', 'step')
    if found[1] == process and tonumber(found[2]) > tonumber(number) then
        return true
    end
    redis.call('HSET', KEYS[1], 'process', process, 'step', number)
    return false
end

local function waits_behind(place)
    return #redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. place, '+inf', 'LIMIT', 0, 1) > 0
end

local function has_something_to_do()
    local found = redis.call('HMGET', KEYS[1], 'run', 'held')
    return found[1] and true or waits_behind(found[2] or '0')
end

-- A conversation lasts as long as it is told to. Where that is for ever, only the ids of what has left it go: `kept`
-- seconds after the last change, once nothing waits.
local function last(ttl, kept)
    if ttl ~= '0' then
        for _, key in ipairs(KEYS) do
            redis.call('EXPIRE', key, ttl)
        end
        return
    end
    redis.call('PERSIST', KEYS[1])
    local is_empty = redis.call('EXISTS', KEYS[2]) == 0
    for i = 3, 4 do
        if is_empty then
            redis.call('EXPIRE', KEYS[i], kept)
        else
            redis.call('PERSIST', KEYS[i])
        end
    end
end

-- An entry in the inbox: place, kind, length of its id, id and data.
local function parsed(entry)
    local place, kind, length, rest = string.match(entry, '^(%d+)\\n(%l+)\\n(%d+)\\n(.*)$')
    length = tonumber(length)
    return place, kind, string.sub(rest, 1, length), string.sub(rest, length + 1)
end

local function written(place, kind, id, data)
    return place .. '\\n' .. kind .. '\\n' .. #id .. '\\n' .. id .. data
end
"""

# Each begins with: for how many seconds the conversation lasts, 0: for ever; and ids of entries that have left it.

# ARGV: the entry's id, kind and data; the id of this call; the agent, blank: as before; the time for which nobody else
# is told of a conversation without an owner. Gives whether it was new, and the owner or a blank.
ADMIT = Script(
    _COMMON
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
CLAIM = Script(
    _COMMON
    + """
local now = clock()
local owner = owner_at(now)
if (owner and owner ~= ARGV[5]) or is_late(ARGV[3], ARGV[4]) then
    return false
end
local until_then = whole(now + tonumber(ARGV[6]))
local token = whole(next_token())
redis.call('HSET', KEYS[1], 'owner', ARGV[5], 'token', token, 'until', until_then, 'due', until_then)
last(ARGV[1], ARGV[2])
return {token, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1)}
"""
)

# ARGV: the token; for how long. Gives the last place in the inbox, or -1 where the lease is another's.
RENEW = Script(
    _COMMON
    + """
if not is_owned(ARGV[3]) then
    return -1
end
local until_then = whole(clock() + tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'until', until_then, 'due', until_then)
last(ARGV[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
"""
)

# ARGV: the token; the place behind which. Gives the entries, or nothing where the lease is another's.
FETCH = Script(
    _COMMON
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
WRITE = Script(
    _COMMON
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

local at = 10
for i = at + 1, at + 2 * tonumber(ARGV[at]), 2 do
    redis.call('HSET', KEYS[1], 'p:' .. ARGV[i], ARGV[i + 1])
end
at = at + 2 * tonumber(ARGV[at]) + 1
if ARGV[9] == '1' then
    for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
        if string.sub(name, 1, 2) == 'p:' then
            redis.call('HDEL', KEYS[1], name)
        end
    end
end
if ARGV[7] == '{}' then
    redis.call('HDEL', KEYS[1], 'run')
elseif ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'run', ARGV[7])
end
if ARGV[8] ~= '' then
    redis.call('HSET', KEYS[1], 'held', ARGV[8])
end
for i = at + 1, at + 2 * tonumber(ARGV[at]), 2 do
    local entry = waiting(ARGV[i])
    if entry then
        local place, kind, id = parsed(entry)
        redis.call('ZADD', KEYS[2], place, written(place, kind, id, ARGV[i + 1]))
    end
end
for i = at + 2 * tonumber(ARGV[at]) + 1, #ARGV, 2 do
    local entry = waiting(ARGV[i])
    if entry then
        local _, _, id = parsed(entry)
        local came = string.match(redis.call('HGET', KEYS[3], id) or '', '^[^=]*')
        redis.call('HSET', KEYS[3], id, came .. '=' .. ARGV[i + 1])
    end
end
local oldest = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0') - tonumber(ARGV[6])
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

# ARGV: process and step; the token; the place behind which nothing may wait, blank: anything may. Gives -1 where the
# lease is another's, 0 where something waits; 1 where the lease was given back, 2 where there is something to do still.
RELEASE = Script(
    _COMMON
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
    redis.call('HSET', KEYS[1], 'back', ARGV[5], 'due', whole(clock()))
    last(ARGV[1], ARGV[2])
end
return has_something_to_do() and 2 or 1
"""
)

# Gives 1 and since when others may be told that there is something to do; 0 and when to look again; -1 where there is
# nothing to do.
LOOK = Script(
    _COMMON
    + """
local now = clock()
local found = redis.call('HMGET', KEYS[1], 'until', 'due')
local due = tonumber(found[2] or '0')
if owner_at(now) then
    return {0, tonumber(found[1])}
end
if not has_something_to_do() then
    return {-1, 0}
end
return {due <= now and 1 or 0, due}
"""
)

# Gives the conversation's fields, its inbox, how the entries came and left, and their ids in order.
KNOWN = Script("""
return {
    redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1),
    redis.call('HGETALL', KEYS[3]), redis.call('ZRANGE', KEYS[4], 0, -1),
}
""")

# ARGV: the id of this call. KEYS[5] keeps it for a minute. Gives whether a conversation was forgotten.
FORGET = Script(
    _COMMON
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

# KEYS: the index of what may be due, by time; that of all conversations. ARGV: a conversation, and how long nobody need
# look at it. Its entry is another one afterwards in any case, so that nobody who looked at it before takes it out.
ENTER = Script(
    _COMMON
    + """
local now = clock()
redis.call('ZADD', KEYS[2], now, ARGV[1])
local at = now + tonumber(ARGV[2])
local found = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '')
redis.call('ZADD', KEYS[1], (found and found <= at) and found - 1 / 1024 or at, ARGV[1])
return 1
"""
)

# KEYS: the index of what may be due. ARGV: how many to leave out, and how many to give. Gives conversations and times.
CANDIDATES = Script(
    _COMMON
    + """
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', clock(), 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
"""
)

# KEYS: the index of what may be due. ARGV: of each conversation, its time as it was found; and when to look again, or a
# blank where there is nothing to do. It is taken out only where that was found twice, a minute apart, and nobody has
# entered it meanwhile: by then nobody is between entering it and admitting something to it.
LATER = Script(
    _COMMON
    + """
local again = clock() + 60000 + 0.5
for i = 1, #ARGV, 3 do
    local found = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if found and tonumber(found) == tonumber(ARGV[i + 1]) then
        if ARGV[i + 2] ~= '' then
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

# KEYS: the news of an owner. ARGV: a conversation; how many news are kept, and for how many seconds.
WAKE = Script("""
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
""")
