--- The daemon, through `localspec bridge`: started when it is needed, and again when it was lost.

local Rpc = require("localspec.rpc")
local notice = require("localspec.notice")
local status = require("localspec.status")

local M = {}

local PROTOCOL = 1
--- Seconds before the next attempt, after so many that failed.
local WAITS = { 0, 1, 2, 5, 10, 30 }
local INSTALL = "Install localspec (README, “Install”), or set `command` to where it is."

---@class localspec.Request
---@field method string
---@field params table
---@field callback fun(error: table?, result: any)
---@field rpc localspec.Rpc? once it was sent, and by its
---@field id integer?

local settings = { command = { "localspec" } }
local job, rpc, ready = nil, nil, false
local failures, next_attempt = 0, 0
---@type table<string, localspec.Request> what was asked while there was no daemon yet, by method: the newest of each
local held = {}

local function now()
  return vim.loop.hrtime() / 1e9
end

--- What went wrong, as the daemon's errors have it.
local function failure(code, message, remedy)
  return { message = message, data = { code = code, message = message, remedy = remedy or "" } }
end

local function failed(error)
  failures = failures + 1
  next_attempt = now() + WAITS[math.min(failures + 1, #WAITS)]
  status.set_error(error.data)
  notice.once(error.data.code, vim.trim(error.data.message .. " " .. error.data.remedy))
end

---@param request localspec.Request
local function send(request)
  local own = rpc
  request.rpc = own
  request.id = own:request(request.method, request.params, function(error, result)
    if not own:is_waiting() then
      status.set_progress(nil)
    end
    request.callback(error, result)
  end)
end

--- End what is held for this method, if anything is.
local function drop(method)
  local request = held[method]
  held[method] = nil
  if request then
    request.callback(failure("lost", "there is no daemon"))
  end
end

local function drop_held()
  for _, method in ipairs(vim.tbl_keys(held)) do
    drop(method)
  end
end

local function welcomed(error, result)
  if error then
    failed({ data = error.data or failure("internal", error.message).data })
    return M.stop()
  end
  ready, failures, next_attempt = true, 0, 0
  status.set_server(result.server)
  status.set_error(nil)
  local waiting = held
  held = {}
  for _, request in pairs(waiting) do
    send(request)
  end
end

--- What `localspec` says on stderr is a sentence with its remedy.
local function last_words(said, code)
  local text = vim.trim(table.concat(said, "\n"))
  text = text:match("localspec: (.*)$") or text
  return text ~= "" and text or ("`localspec bridge` ended with " .. code .. ".")
end

local function ended(code, said)
  local was_ready, old = ready, rpc
  job, rpc, ready = nil, nil, false
  status.set_server(nil)
  if not was_ready then
    failed(failure("lost", last_words(said, code)))
  elseif code ~= 0 then
    notice.once("ended", "lost the daemon; the next key finds one")
  end
  drop_held()
  if old then
    old:close(failure("lost", "the daemon is gone"))
  end
end

local function start()
  local program = settings.command[1]
  if vim.fn.executable(program) == 0 then
    return failed(failure("missing", ("%s is not there."):format(program), INSTALL))
  end
  local said = {}
  local command = vim.list_extend(vim.deepcopy(settings.command), { "bridge" })
  local own = Rpc.new(function(line)
    pcall(vim.fn.chansend, job, line .. "\n") -- one that has just ended tells so itself
  end, { ["model/progress"] = status.set_progress })
  local started = vim.fn.jobstart(command, {
    on_stdout = function(_, pieces)
      own:feed(pieces)
    end,
    on_stderr = function(_, pieces)
      vim.list_extend(said, pieces)
    end,
    on_exit = function(id, code)
      if id == job then
        ended(code, said)
      end
    end,
  })
  if started <= 0 then
    return failed(failure("missing", ("%s cannot be started."):format(program), INSTALL))
  end
  job, rpc = started, own
  local client = { name = "localspec.nvim", version = tostring(vim.version().major) .. "." .. vim.version().minor }
  rpc:request("initialize", { protocol = PROTOCOL, client = client }, function(error, result)
    if rpc == own then
      welcomed(error, result)
    end
  end)
end

--- Ask the daemon; without one, it is started first. `callback(error, result)` is called once. A method that is
--- asked again while there is no daemon yet takes the earlier one's place.
---@return localspec.Request
function M.request(method, params, callback)
  local request = { method = method, params = params, callback = callback }
  if ready then
    send(request)
    return request
  end
  drop(method)
  held[method] = request
  if not job then
    if now() >= next_attempt then
      start()
    end
    if not job then
      drop_held()
    end
  end
  return request
end

--- Nobody wants the answer any more.
---@param request localspec.Request
function M.cancel(request)
  if held[request.method] == request then
    drop(request.method)
  elseif request.id and request.rpc == rpc then
    rpc:cancel(request.id)
  end
end

--- Tell the daemon what became of an item; nobody waits for that.
function M.feedback(item, event, chars)
  if ready then
    rpc:request("completion/feedback", { item = item, event = event, chars = chars }, function() end)
  end
end

function M.is_ready()
  return ready
end

--- Somebody asks, or has changed something: the next attempt is not put off.
function M.try_at_once()
  failures, next_attempt = 0, 0
  notice.forget()
end

--- Part from the daemon, which goes on; the next request finds one.
function M.stop()
  local running, old = job, rpc
  job, rpc, ready = nil, nil, false
  drop_held()
  if old then
    old:close(failure("lost", "disconnected"))
  end
  if running then
    vim.fn.jobstop(running)
  end
  status.set_server(nil)
end

function M.configure(new_settings)
  local changed = not vim.deep_equal(settings.command, new_settings.command)
  settings = new_settings
  M.try_at_once()
  if changed then
    M.stop()
  end
end

return M
