--- JSON-RPC 2.0 without a process: messages go out through a function, lines come in.

---@class localspec.Rpc
---@field private send fun(line: string)
---@field private waiting table<integer, fun(error: table?, result: any)>
local Rpc = {}
Rpc.__index = Rpc

local NULLS = { luanil = { object = true, array = true } }

--- `send` takes a message without its line end; `handlers` are called with a notification's params.
---@param send fun(line: string)
---@param handlers? table<string, fun(params: table)>
function Rpc.new(send, handlers)
  return setmetatable({ send = send, handlers = handlers or {}, waiting = {}, last = 0, rest = "" }, Rpc)
end

--- Send a request; `callback(error, result)` is called exactly once, at the latest by `close`.
---@return integer id
function Rpc:request(method, params, callback)
  self.last = self.last + 1
  self.waiting[self.last] = callback
  self.send(self:encode({ id = self.last, method = method, params = params }))
  return self.last
end

function Rpc:notify(method, params)
  self.send(self:encode({ method = method, params = params }))
end

--- Return true if any request waits for its response.
function Rpc:is_waiting()
  return next(self.waiting) ~= nil
end

--- Cancel a request; its callback is still called.
function Rpc:cancel(id)
  if self.waiting[id] then
    self:notify("$/cancelRequest", { id = id })
  end
end

---@private
function Rpc:encode(message)
  message.jsonrpc = "2.0"
  if type(message.params) ~= "table" or next(message.params) == nil then
    message.params = vim.empty_dict()
  end
  return vim.json.encode(message)
end

--- Take output as `jobstart` passes it: the first piece continues the last one of before.
---@param pieces string[]
function Rpc:feed(pieces)
  for number, piece in ipairs(pieces) do
    if number == 1 then
      self.rest = self.rest .. piece
    else
      local line = self.rest
      self.rest = piece
      self:receive(line)
    end
  end
end

--- Take one message; invalid ones are ignored.
---@param line string
function Rpc:receive(line)
  local is_json, message = pcall(vim.json.decode, line, NULLS)
  if not is_json or type(message) ~= "table" then
    return
  end
  if message.method ~= nil then
    local handler = self.handlers[message.method]
    if handler then
      handler(message.params or {})
    end
    return
  end
  local callback = message.id ~= nil and self.waiting[message.id]
  if callback then
    self.waiting[message.id] = nil
    callback(message.error, message.result)
  end
end

--- End all waiting requests with `error`.
function Rpc:close(error)
  local waiting = self.waiting
  self.waiting = {}
  for _, callback in pairs(waiting) do
    callback(error, nil)
  end
end

return Rpc
