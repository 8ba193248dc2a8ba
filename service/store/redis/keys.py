"""Lua functions shared by the scripts of the run store in Redis.

KEYS[1] to KEYS[4] are the keys of a conversation; see `scripts`.
"""

from __future__ import annotations

PRELUDE = """
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

-- Set the time to live of the conversation. With a ttl of 0 only the ids of closed entries expire: `kept` seconds after
-- the last change, if no entry is pending.
local function set_expiry(ttl, kept)
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
