--- The language server `localspec lsp`, which has the daemon complete: started at a request, and again after it ended.

local context = require("localspec.context")
local notice = require("localspec.notice")

local M = {}

local INSTALL = 'Install localspec (README, "Install"), or set `command` to its path.'
local AS_METHODS = vim.fn.has("nvim-0.11") == 1

local settings = { command = { "localspec" }, enabled = true, exclude = {} }
---@type integer? of the client, from its start on
local id
---@type table? the client, once it is ready
local client
--- true after a start that failed: the next one needs a request of the user
local has_failed = false
---@type table<string, fun()> calls that wait for the server, by name: the newest of each
local waiting = {}
---@type table<table, fun()> what is called at the end of each command that the server runs
local running = {}
---@type {busy: boolean, message: string, kind: string} as the server reports it
local state

local function set_state(new)
  state = new
  if vim.v.vim_did_enter == 1 then
    vim.schedule(function()
      vim.cmd("redrawstatus")
    end)
  end
end

local function rest()
  local ends = running
  id, client, waiting, running = nil, nil, {}, {}
  for _, done in pairs(ends) do
    done()
  end
  set_state({ busy = false, message = "not running", kind = "Normal" })
end

rest()

local function call(name, ...)
  if AS_METHODS then
    return client[name](client, ...)
  end
  return client[name](...)
end

local function fail(message)
  rest()
  has_failed = true
  set_state({ busy = false, message = message, kind = "Error" })
  notice.tell(message, vim.log.levels.WARN)
end

local function ready(found)
  if found.id ~= id then
    return
  end
  client = found
  local acts = waiting
  waiting = {}
  for _, act in pairs(acts) do
    act()
  end
end

local function ended(code, _, exited)
  if exited ~= id then
    return
  elseif client then
    return rest()
  end
  fail(("`localspec lsp` ended with %d; its messages are in %s"):format(code, vim.lsp.get_log_path()))
end

--- The settings that the server has; all others are this plugin's.
local function shared()
  return { multiline = settings.multiline, maxMs = settings.max_ms, model = settings.model }
end

local HANDLERS = {
  ["didChangeStatus"] = function(_, params)
    set_state(params)
  end,
  ["window/showMessage"] = function(_, params)
    local level = params.type == vim.lsp.protocol.MessageType.Error and vim.log.levels.WARN or vim.log.levels.INFO
    notice.tell(params.message:gsub("^localspec: ", ""), level)
  end,
}

local function start()
  if vim.fn.executable(settings.command[1]) == 0 then
    return fail(("The command %s was not found. %s"):format(settings.command[1], INSTALL))
  end
  local config = {
    name = "localspec",
    cmd = vim.list_extend(vim.deepcopy(settings.command), { "lsp" }),
    root_dir = vim.fn.getcwd(),
    init_options = shared(),
    handlers = HANDLERS,
    on_init = vim.schedule_wrap(ready),
    on_exit = vim.schedule_wrap(ended),
  }
  local own = { attach = false, reuse_client = function() end }
  id = AS_METHODS and vim.lsp.start(config, own) or not AS_METHODS and vim.lsp.start_client(config) or nil
  if not id then
    fail(("The command %s cannot be started."):format(settings.command[1]))
  end
end

--- Return true if the server is ready; else start it, and call `act` once it is. `act` replaces an earlier one of this
--- name.
---@param is_asked boolean? true for a request of the user, which is tried again after a failure
function M.is_ready(name, act, is_asked)
  if client then
    return true
  end
  waiting[name] = act
  has_failed = has_failed and not is_asked
  if not id and not has_failed then
    start()
  end
  return false
end

local function may_send(buf)
  return settings.enabled and context.allowed(buf, settings.exclude)
end

--- Return true if text of this buffer may be sent; the server has its text only as long as that is so.
function M.follows(buf)
  local may = may_send(buf)
  if client then
    local is_attached = vim.lsp.buf_is_attached(buf, id)
    if may and not is_attached then
      vim.lsp.buf_attach_client(buf, id)
    elseif is_attached and not may then
      vim.lsp.buf_detach_client(buf, id)
    end
  end
  return may
end

--- Have the server know which text the user is in.
function M.focus()
  local buf = vim.api.nvim_get_current_buf()
  if client and M.follows(buf) then
    M.notify("textDocument/didFocus", { textDocument = { uri = vim.uri_from_bufnr(buf) } })
  end
end

--- Have the model read the text around a resting cursor, before a completion is requested there.
function M.rest()
  local buf = vim.api.nvim_get_current_buf()
  if client and M.follows(buf) then
    M.notify("localspec/didRest", vim.lsp.util.make_position_params(0, client.offset_encoding))
  end
end

--- Request completions at the cursor; `answered(items)` is called unless it fails. The server must be ready.
---@return integer? id of the request
function M.complete(trigger, answered)
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = trigger }
  -- With the buffer's own number: for 0, Neovim does not send the last changes first.
  local _, request = call("request", "textDocument/inlineCompletion", params, function(error, result)
    answered(not error and result and result.items or {})
  end, vim.api.nvim_get_current_buf())
  return request
end

--- Cancel a request.
function M.cancel(request)
  if client then
    call("cancel_request", request)
  end
end

--- Tell the server of an event, if it is ready.
function M.notify(method, params)
  if client then
    call("notify", method, params)
  end
end

--- Run a command of the server, which reports its failure, if the server is ready; `done()` is called at its end, or
--- that of the server.
---@return integer? id of the request
function M.execute(command, arguments, done)
  if not client then
    return
  end
  local params, own = { command = command, arguments = arguments }, {}
  running[own] = done
  local _, request = call("request", "workspace/executeCommand", params, function()
    local act = running[own]
    running[own] = nil
    if act then
      act()
    end
  end, 0)
  return request
end

--- `off`, `error` or `on`, and the server's words.
function M.state()
  if not may_send(vim.api.nvim_get_current_buf()) then
    return "off", "off"
  end
  return state.kind == "Error" and "error" or "on", state.message
end

--- A short text for a status line, with each `%` doubled for 'statusline'.
function M.line()
  local name, message = M.state()
  local words = name == "on" and (state.busy and "… " or "· ") .. message or name
  return (("localspec " .. words):gsub("%%", "%%%%"))
end

--- End the server; the daemon keeps running. The next request starts another one.
function M.stop()
  client = client or id and vim.lsp.get_client_by_id(id)
  if client then
    call("stop")
  end
  rest()
end

function M.configure(new_settings)
  local changed = not vim.deep_equal(settings.command, new_settings.command)
  settings, has_failed = new_settings, false
  if changed then
    return M.stop()
  end
  M.notify("workspace/didChangeConfiguration", { settings = { localspec = shared() } })
  for buf in pairs(client and client.attached_buffers or {}) do
    M.follows(buf)
  end
end

return M
