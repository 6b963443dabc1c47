--- The connection to the daemon, through `localspec bridge`: started at a request, and again after it was lost.

local Rpc = require("localspec.rpc")
local notice = require("localspec.notice")
local status = require("localspec.status")

local M = {}

local PROTOCOL = 1
--- Seconds before the next attempt, by the number of failures in a row.
local WAITS = { 0, 1, 2, 5, 10, 30 }
local INSTALL = "Install localspec (README, “Install”), or set `command` to its path."

---@class localspec.Request
---@field method string
---@field params table
---@field callback fun(error: table?, result: any)
---@field rpc localspec.Rpc? once it was sent, with `id`
---@field id integer?

local settings = { command = { "localspec" } }
local job, rpc, ready = nil, nil, false
local failures, next_attempt = 0, 0
---@type table<string, localspec.Request> requests made before there is a connection, by method: the newest of each
local held = {}

local function now()
  return vim.loop.hrtime() / 1e9
end

--- An error in the form of the daemon's errors.
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

--- End the held request of this method, if there is one.
local function drop(method)
  local request = held[method]
  held[method] = nil
  if request then
    request.callback(failure("lost", "not connected to the daemon"))
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

--- The error that the bridge has printed on stderr: a sentence and its remedy.
local function last_words(output, code)
  local text = vim.trim(table.concat(output, "\n"))
  text = text:match("localspec: (.*)$") or text
  return text ~= "" and text or ("`localspec bridge` ended with " .. code .. ".")
end

local function ended(code, output)
  local was_ready, old = ready, rpc
  job, rpc, ready = nil, nil, false
  status.set_server(nil)
  if not was_ready then
    failed(failure("lost", last_words(output, code)))
  elseif code ~= 0 then
    notice.once("ended", "lost the daemon; the next key connects")
  end
  drop_held()
  if old then
    old:close(failure("lost", "the connection to the daemon was lost"))
  end
end

local function start()
  local program = settings.command[1]
  if vim.fn.executable(program) == 0 then
    return failed(failure("missing", ("The command %s was not found."):format(program), INSTALL))
  end
  local errors = {}
  local command = vim.list_extend(vim.deepcopy(settings.command), { "bridge" })
  local own = Rpc.new(function(line)
    pcall(vim.fn.chansend, job, line .. "\n") -- it fails if the job has just ended: `on_exit` handles that
  end, { ["model/progress"] = status.set_progress })
  local started = vim.fn.jobstart(command, {
    on_stdout = function(_, pieces)
      own:feed(pieces)
    end,
    on_stderr = function(_, pieces)
      vim.list_extend(errors, pieces)
    end,
    on_exit = function(id, code)
      if id == job then
        ended(code, errors)
      end
    end,
  })
  if started <= 0 then
    return failed(failure("missing", ("The command %s cannot be started."):format(program), INSTALL))
  end
  job, rpc = started, own
  local client = { name = "localspec.nvim", version = tostring(vim.version().major) .. "." .. vim.version().minor }
  rpc:request("initialize", { protocol = PROTOCOL, client = client }, function(error, result)
    if rpc == own then
      welcomed(error, result)
    end
  end)
end

--- Send a request; without a connection, the bridge is started first. `callback(error, result)` is called once. While
--- there is no connection yet, a request replaces an earlier one of its method.
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

--- Cancel a request; its callback is still called.
---@param request localspec.Request
function M.cancel(request)
  if held[request.method] == request then
    drop(request.method)
  elseif request.id and request.rpc == rpc then
    rpc:cancel(request.id)
  end
end

--- Report an item's event to the daemon, if connected; the answer is ignored.
function M.feedback(item, event, chars)
  if ready then
    rpc:request("completion/feedback", { item = item, event = event, chars = chars }, function() end)
  end
end

function M.is_ready()
  return ready
end

--- Make the next attempt at once, and show errors again: at a request of the user, or a changed setting.
function M.try_at_once()
  failures, next_attempt = 0, 0
  notice.forget()
end

--- Disconnect from the daemon, which keeps running; the next request connects again.
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
