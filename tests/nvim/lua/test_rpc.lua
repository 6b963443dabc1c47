local Rpc = require("localspec.rpc")

local NULLS = { luanil = { object = true, array = true } }

local function decode(line)
  return vim.json.decode(line, NULLS)
end

--- One golden conversation: what the client says is asked of an Rpc, what the server says is fed to it.
local function play(path)
  local sent, notified, ids = {}, {}, {}
  local answers, answered = {}, {}
  local handlers = setmetatable({}, {
    __index = function(_, method)
      return function(params)
        notified[#notified + 1] = { method = method, params = params }
      end
    end,
  })
  local rpc = Rpc.new(function(line)
    sent[#sent + 1] = decode(line)
  end, handlers)

  local function own(id)
    return id ~= nil and (ids[id] or id) or nil
  end

  local function client(frame)
    if type(frame) == "string" then
      return rpc:receive(frame) -- garbage, whoever says it
    end
    local params = frame.params and vim.deepcopy(frame.params) or {}
    if frame.id ~= nil then
      local said
      answered[frame.id] = false
      ids[frame.id] = rpc:request(frame.method, params, function(error, result)
        equal(nil, said, "a second answer")
        said, answered[frame.id] = true, true
        answers[#answers + 1] = { error = error, result = result }
      end)
      equal(ids[frame.id], sent[#sent].id)
    elseif frame.method == "$/cancelRequest" then
      local is_over = answered[params.id]
      params.id = own(params.id)
      if is_over then
        rpc:notify(frame.method, params)
      else
        rpc:cancel(params.id)
      end
    else
      rpc:notify(frame.method, params)
    end
    local last = sent[#sent]
    equal({ "2.0", frame.method, params }, { last.jsonrpc, last.method, last.params })
  end

  local function server(frame)
    frame = vim.deepcopy(frame)
    frame.id = own(frame.id)
    if frame.method ~= nil then
      frame.params.request = own(frame.params.request)
      rpc:receive(vim.json.encode(frame))
      equal({ method = frame.method, params = frame.params }, notified[#notified])
    elseif frame.id == nil then
      rpc:receive(vim.json.encode(frame)) -- about a message that nobody could read
    else
      local before = #answers
      rpc:receive(vim.json.encode(frame))
      equal(before + 1, #answers, "an answer to " .. vim.inspect(frame.id))
      equal({ error = frame.error, result = frame.result }, answers[#answers])
    end
  end

  for line in io.lines(path) do
    local step = decode(line)
    if step.client ~= nil then
      client(step.client)
    elseif step.server ~= nil then
      server(step.server)
    end
  end
end

local paths = vim.fn.glob(vim.env.TRANSCRIPTS .. "/*.jsonl", false, true)
test("there are transcripts", function()
  equal(true, #paths > 5)
end)
for _, path in ipairs(paths) do
  test(vim.fn.fnamemodify(path, ":t"), function()
    play(path)
  end)
end

test("a line that comes in pieces is one", function()
  local found
  local rpc = Rpc.new(function() end, {
    event = function(params)
      found = params.text
    end,
  })
  rpc:feed({ '{"method": "event", "par' })
  rpc:feed({ 'ams": {"text": "é' })
  equal(nil, found)
  rpc:feed({ '"}}', '{"method"' })
  equal("é", found)
  rpc:feed({ ': "event", "params": {"text": "2"}}', "" })
  equal("2", found)
end)

test("what is no message is passed over", function()
  local rpc = Rpc.new(function() end)
  for _, line in ipairs({ "", "null", "3", "[]", "{", '"x"', '{"id": 7}', '{"id": null}', '{"method": "event"}', "\255" }) do
    rpc:receive(line)
  end
end)

test("all that waits ends when the other side is gone, once", function()
  local rpc, ends = Rpc.new(function() end), {}
  for number = 1, 2 do
    rpc:request("x", {}, function(error)
      ends[#ends + 1] = { number, error }
      rpc:close("again")
    end)
  end
  rpc:close("gone")
  table.sort(ends, function(one, other)
    return one[1] < other[1]
  end)
  equal({ { 1, "gone" }, { 2, "gone" } }, ends)
end)

test("only what still runs is cancelled", function()
  local sent = {}
  local rpc = Rpc.new(function(line)
    sent[#sent + 1] = decode(line).method
  end)
  local id = rpc:request("x", {}, function() end)
  rpc:cancel(id)
  rpc:receive('{"id": ' .. id .. ', "result": {}}')
  rpc:cancel(id)
  equal({ "x", "$/cancelRequest" }, sent)
end)
