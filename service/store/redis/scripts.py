"""Lua scripts of the run store in Redis. Each runs atomically.

A conversation has four keys, in one cluster slot: its fields, with a field `p:PART` for each post; its inbox, the
pending entries by sequence number; by id, how each entry was admitted and closed; and the ids by sequence number. Times
are the server's, in milliseconds since the epoch.

An owner's call has the process and a step number. A delayed call that a later call of the same process has overtaken
does nothing.
"""

from __future__ import annotations

from orchestrator_interactive.storage.redis import RedisScript

# Lua functions shared by the scripts. KEYS[1] to KEYS[4] are the keys of a conversation.
_PRELUDE = """
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- A fencing token higher than all earlier ones; time-based in case the conversation was deleted and recreated.
local function next_token()
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    return math.max(tonumber(redis.call('HGET', KEYS[1], 'token') or '0') + 1, now)
end

local function whole(number)
    return string.format('%.0f', number)
end

-- The owner with a valid lease, or false. If the remaining time exceeds the lease's length, the clock was set back: the
-- lease restarts, so that a live owner keeps it and a dead owner's lease still expires.
local function owner_at(now)
    local found = redis.call('HMGET', KEYS[1], 'owner', 'until', 'length')
    local length = tonumber(found[3] or '')
    if found[1] and length and tonumber(found[2]) - now > length then
        redis.call('HSET', KEYS[1], 'until', whole(now + length), 'due', whole(now + length))
        return found[1]
    end
    return found[1] and tonumber(found[2]) > now and found[1]
end

local function is_owned(token)
    local found = redis.call('HMGET', KEYS[1], 'owner', 'token')
    return found[1] and found[2] == token
end

-- Whether a later step of the same process has already run; otherwise record this step.
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
    local found = redis.call('HMGET', KEYS[1], 'run', 'held_seq')
    return found[1] and true or waits_behind(found[2] or '0')
end

-- Set the time to live of the conversation, ARGV[1]. If it is 0, only the ids of closed entries expire: ARGV[2] seconds
-- after the last change, if no entry is pending.
local function set_expiry()
    local are_pending = redis.call('EXISTS', KEYS[2]) == 1
    for i, key in ipairs(KEYS) do
        if ARGV[1] ~= '0' then
            redis.call('EXPIRE', key, ARGV[1])
        elseif i <= 2 or are_pending then
            redis.call('PERSIST', key)
        else
            redis.call('EXPIRE', key, ARGV[2])
        end
    end
end

-- Hold the lease for a duration from now; more fields of the conversation may be set.
local function hold(length, ...)
    local until_then = whole(clock() + tonumber(length))
    redis.call('HSET', KEYS[1], 'until', until_then, 'due', until_then, 'length', length, ...)
    set_expiry()
end

-- Store facts, whose names and values begin at ARGV[first]; of `person:…` the least value is kept, else the greatest.
local function learn(first)
    for i = first, #ARGV, 2 do
        local name, value = ARGV[i], ARGV[i + 1]
        local known = redis.call('HGET', KEYS[1], 'f:' .. name)
        local is_first = string.sub(name, 1, 7) == 'person:'
        if not known or (is_first and value < known) or (not is_first and value > known) then
            redis.call('HSET', KEYS[1], 'f:' .. name, value)
        end
    end
end

-- An inbox entry: sequence number, kind, length of the id, id and data.
local function parsed(entry)
    local place, kind, length, rest = string.match(entry, '^(%d+)\\n([%l_]+)\\n(%d+)\\n(.*)$')
    length = tonumber(length)
    return place, kind, string.sub(rest, 1, length), string.sub(rest, length + 1)
end

local function serialized(place, kind, id, data)
    return place .. '\\n' .. kind .. '\\n' .. #id .. '\\n' .. id .. data
end
"""


def script(text: str) -> RedisScript:
    return RedisScript(_PRELUDE + text)


# The first two ARGV of all scripts: time to live of the conversation, and of the ids of closed entries, in seconds;
# 0: no expiry.

# ARGV: the entry's id, kind and data; the id of this call; the agent, blank: unchanged; the delay until a conversation
# without an owner is due; name and value of each fact. Returns whether the entry is new, and the owner or a blank.
ADMIT = script("""
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
redis.call('ZADD', KEYS[2], place, serialized(place, ARGV[4], ARGV[3], ARGV[5]))
redis.call('HSET', KEYS[3], ARGV[3], ARGV[6])
redis.call('ZADD', KEYS[4], place, ARGV[3])
if ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'agent', ARGV[7])
end
learn(9)
set_expiry()
return {1, owner or ''}
""")

# ARGV: name and value of each fact.
LEARN = script("""
if redis.call('EXISTS', KEYS[1]) == 1 then
    learn(3)
end
""")

# Returns the agent and the facts: names and values of fields.
THREAD = script("""
local found = {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
    if fields[i] == 'agent' or string.sub(fields[i], 1, 2) == 'f:' then
        found[#found + 1] = fields[i]
        found[#found + 1] = fields[i + 1]
    end
end
return found
""")

# ARGV: process and step; the owner; the lease's duration. Returns nothing if another lease is valid, else the fencing
# token, the conversation's fields and its inbox.
CLAIM = script("""
local owner = owner_at(clock())
if (owner and owner ~= ARGV[5]) or is_late(ARGV[3], ARGV[4]) then
    return false
end
local token = whole(next_token())
hold(ARGV[6], 'owner', ARGV[5], 'token', token)
return {token, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1)}
""")

# ARGV: the token; the lease's duration. Returns the last sequence number in the inbox, or -1 if the lease is lost.
RENEW = script("""
if not is_owned(ARGV[3]) then
    return -1
end
hold(ARGV[4])
return tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
""")

# ARGV: an owner; milliseconds. End its lease if it was not renewed for so long. Returns 0 if it has none here, 1 if it
# ended, -1 if it still has it.
END_LEASE = script("""
local found, now = redis.call('HMGET', KEYS[1], 'owner', 'until', 'length'), clock()
if found[1] ~= ARGV[3] or owner_at(now) ~= ARGV[3] then
    return 0
end
if tonumber(found[3]) - (tonumber(found[2]) - now) < tonumber(ARGV[4]) then
    return -1
end
redis.call('HSET', KEYS[1], 'until', whole(now), 'due', whole(now))
return 1
""")

# KEYS: the counts of the heartbeats of all processes. ARGV: a process. Returns the counts.
BEAT = script("""
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
return redis.call('HGETALL', KEYS[1])
""")

# ARGV: the token; a sequence number. Returns the pending entries after it, or nothing if the lease is lost.
FETCH = script("""
if not is_owned(ARGV[3]) then
    return false
end
return redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[4], '+inf')
""")

# ARGV: process and step; the token; the number of ids to keep; run, blank: unchanged, {}: none; held_seq and stopped_s,
# blank: unchanged; 1: delete the posts; the number of posts, then part and content of each; the number of entries to
# replace, then sequence number and data of each; sequence number and end of each entry to close. Returns 1; -1: the
# lease is lost.
WRITE = script("""
if not is_owned(ARGV[5]) then
    return -1
end
if is_late(ARGV[3], ARGV[4]) then
    return 1
end

local function take_pending(place)
    local entry = redis.call('ZRANGEBYSCORE', KEYS[2], place, place)[1]
    if entry then
        redis.call('ZREM', KEYS[2], entry)
    end
    return entry
end

local at = 5

-- The next argument.
local function next_arg()
    at = at + 1
    return ARGV[at]
end

local kept, run, held_seq = tonumber(next_arg()), next_arg(), next_arg()
local stopped_s, deletes_posts = next_arg(), next_arg()
for _ = 1, tonumber(next_arg()) do
    local part, content = next_arg(), next_arg()
    redis.call('HSET', KEYS[1], 'p:' .. part, content)
end
if deletes_posts == '1' then
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
if held_seq ~= '' then
    redis.call('HSET', KEYS[1], 'held_seq', held_seq)
end
if stopped_s ~= '' then
    redis.call('HSET', KEYS[1], 'stopped_s', stopped_s)
end
for _ = 1, tonumber(next_arg()) do
    local entry, data = take_pending(next_arg()), next_arg()
    if entry then
        local place, kind, id = parsed(entry)
        redis.call('ZADD', KEYS[2], place, serialized(place, kind, id, data))
    end
end
while at < #ARGV do
    local entry, how = take_pending(next_arg()), next_arg()
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
set_expiry()
return 1
""")

# ARGV: process and step; the token; the sequence number after which no entry may be pending, blank: no condition; the
# delay until the conversation is due. Returns -1 if the lease is lost, 0 if an entry is pending, 1 if the lease was
# released, 2 if it was released with pending work.
RELEASE = script("""
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
    set_expiry()
end
return has_something_to_do() and 2 or 1
""")

# Returns the conversation's fields, its inbox, how the entries were admitted and closed, their ids in order, the number
# of ids up to the field `gone`, and whether a lease is valid.
RECORD = script("""
local found = redis.call('HMGET', KEYS[1], 'owner', 'until', 'gone')
return {
    redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1),
    redis.call('HGETALL', KEYS[3]), redis.call('ZRANGE', KEYS[4], 0, -1),
    redis.call('ZCOUNT', KEYS[4], '-inf', found[3] or '0'), found[1] and tonumber(found[2]) > clock() and 1 or 0,
}
""")

# ARGV: the id of this call, stored in KEYS[5] for a minute. Returns whether a conversation was deleted.
FORGET = script("""
if redis.call('GET', KEYS[5]) == ARGV[3] then
    return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 or owner_at(clock()) or has_something_to_do() then
    return 0
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('SET', KEYS[5], ARGV[3], 'EX', 60)
return 1
""")

_APPEND = """
-- Make a name the latest one, and delete the oldest documents if there are more than `most`.
local function append(name, most)
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
    redis.call('ZADD', KEYS[2], tonumber(last[2] or '0') + 1, name)
    local over = redis.call('ZCARD', KEYS[2]) - (tonumber(most) or math.huge)
    if over > 0 then
        for _, oldest in ipairs(redis.call('ZRANGE', KEYS[2], 0, over - 1)) do
            redis.call('HDEL', KEYS[1], oldest)
        end
        redis.call('ZREMRANGEBYRANK', KEYS[2], 0, over - 1)
    end
end
"""

# KEYS: the documents of a collection by name, and their names in the order of writing. ARGV: name and data of a
# document; the greatest number of documents.
PUT_DOCUMENT = RedisScript(
    _APPEND
    + """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
append(ARGV[1], ARGV[3])
return 1
"""
)

# KEYS: as before. ARGV: name of a document, its known data, the new ones, and the greatest number of documents or a
# blank. Returns 1 if it has the new ones now.
REPLACE_DOCUMENT = RedisScript(
    _APPEND
    + """
local data = redis.call('HGET', KEYS[1], ARGV[1])
if not data and ARGV[2] == '{}' then
    append(ARGV[1], ARGV[4])
    data = ARGV[2]
end
if data == ARGV[2] then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return (data == ARGV[2] or data == ARGV[3]) and 1 or 0
"""
)

# KEYS: as before. ARGV: a name; none: all. Returns names and data, the latest first.
DOCUMENTS = RedisScript("""
local found = {}
for _, name in ipairs(ARGV[1] and {ARGV[1]} or redis.call('ZREVRANGE', KEYS[2], 0, -1)) do
    found[#found + 1] = name
    found[#found + 1] = redis.call('HGET', KEYS[1], name) or ''
end
return found
""")

# KEYS: as before. ARGV: a name, and perhaps the known data of the document. Returns the number of deleted documents.
DELETE_DOCUMENT = RedisScript("""
if ARGV[2] and redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
    return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
""")

# KEYS: an owner's notification list. ARGV: a conversation; the list's maximum length and time to live in seconds.
WAKE = RedisScript("""
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
""")
