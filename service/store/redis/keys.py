"""What the scripts of a run store in Redis have in common: words of which they are made.

KEYS[1] to KEYS[4] are those of a conversation, in each of them: see `redis_scripts`.
"""

from __future__ import annotations

WORDS = """
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

-- Whose lease is valid, if anybody's is. One that has more than its length before it began before the clock was set
-- back: it begins anew, so that an owner that lives keeps it, and that of a dead one runs out all the same.
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

-- Have it counted how many entries leave the inbox, in a field `n:END` for each end, from the first one on. Of an older
-- version's time, those whose ids are known are counted; `n:?` are the rest, and there is no telling which they were.
local function count_ends()
    if redis.call('HEXISTS', KEYS[1], 'n:?') == 1 then
        return
    end
    local seq = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
    local rest = seq - redis.call('ZCARD', KEYS[2])
    for _, how in ipairs(redis.call('HVALS', KEYS[3])) do
        local ended = string.match(how, '=(.*)$')
        if ended then
            redis.call('HINCRBY', KEYS[1], 'n:' .. ended, 1)
            rest = rest - 1
        end
    end
    redis.call('HSET', KEYS[1], 'n:?', whole(rest))
    if rest > 0 then
        redis.call('HSET', KEYS[1], 'gone', whole(seq))
    end
end

-- An entry in the inbox: place, kind, length of its id, id and data.
local function parsed(entry)
    local place, kind, length, rest = string.match(entry, '^(%d+)\\n([%l_]+)\\n(%d+)\\n(.*)$')
    length = tonumber(length)
    return place, kind, string.sub(rest, 1, length), string.sub(rest, length + 1)
end

local function written(place, kind, id, data)
    return place .. '\\n' .. kind .. '\\n' .. #id .. '\\n' .. id .. data
end
"""
