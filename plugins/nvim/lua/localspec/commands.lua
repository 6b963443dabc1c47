--- `:Localspec …`

local completion = require("localspec.completion")
local context = require("localspec.context")
local localspec = require("localspec")
local notice = require("localspec.notice")
local server = require("localspec.server")

local M = {}

local AUTO = "auto" -- as configured for localspec

---@type {request: integer?}? the running `prime`
local priming

--- Run a command of the server, which reports its outcome; `done()` is called at its end.
---@return {request: integer?} the request, once it was sent
local function run(command, arguments, done)
  local own = {}
  local function act()
    own.request = server.execute("localspec." .. command, arguments, done)
  end
  if server.is_ready(command, act, true) then
    act()
  end
  return own
end

--- The workspace: the git root of the file or of the current directory, or else the current directory.
local function workspace()
  local current = vim.fn.getcwd()
  local path = vim.fs.root(0, ".git") or vim.fs.root(current, ".git") or current
  return vim.uv.fs_realpath(path) or path
end

--- Switch completions everywhere, in this buffer, or for its filetype; `wanted` maps the old state to the new one.
local SCOPES = {
  all = function(wanted)
    localspec.set("enabled", wanted(localspec.settings().enabled))
  end,
  buffer = function(wanted)
    vim.b.localspec_enabled = wanted(context.is_enabled(vim.api.nvim_get_current_buf()))
  end,
  language = function(wanted)
    local exclude, filetype = vim.deepcopy(localspec.settings().exclude), vim.bo.filetype
    local is_excluded = vim.tbl_contains(exclude, filetype)
    exclude = vim.tbl_filter(function(each)
      return each ~= filetype
    end, exclude)
    if not wanted(not is_excluded) then
      exclude[#exclude + 1] = filetype
    end
    localspec.set("exclude", exclude)
  end,
}

local function switch(wanted)
  return function(scope)
    local change = SCOPES[scope or "all"]
    if not change then
      return notice.tell(("%q is none of: buffer, language"):format(scope), vim.log.levels.WARN)
    end
    change(wanted)
    completion.dismiss()
    notice.tell(server.state() == "off" and "off" or "on")
  end
end

local ACTIONS = {
  toggle = switch(function(is)
    return not is
  end),
  enable = switch(function()
    return true
  end),
  disable = switch(function()
    return false
  end),

  status = function()
    local _, message = server.state()
    vim.api.nvim_echo({ { "localspec: " .. message } }, true, {})
  end,

  trigger = completion.trigger,

  restart = function()
    run("restartDaemon")
  end,

  model = function(name)
    run("chooseModel", name and { name == AUTO and "" or name })
  end,

  prime = function(path)
    if priming and priming.request then
      server.cancel(priming.request)
      priming = nil
      return notice.tell("stopped; what was learnt so far is kept")
    end
    path = path and vim.fn.fnamemodify(path:gsub("\\ ", " "), ":p") or workspace()
    notice.tell(("learning %s; the same command stops it"):format(path))
    priming = run("primeWorkspace", { path }, function()
      priming = nil
    end)
  end,

  forget = function()
    run("forgetWorkspace", { workspace() })
  end,
}

--- Run a command, `status` by default. All text after the first word is one argument.
---@param words string
function M.run(words)
  local name, argument = vim.trim(words):match("^(%S*)%s*(.*)$")
  name = name ~= "" and name or "status"
  localspec.settings()
  if not ACTIONS[name] then
    local names = vim.tbl_keys(ACTIONS)
    table.sort(names)
    return notice.tell(("%q is none of: %s"):format(name, table.concat(names, ", ")), vim.log.levels.WARN)
  end
  ACTIONS[name](argument ~= "" and argument or nil)
end

local WHERE = { "buffer", "language" }
local ARGUMENTS = { toggle = WHERE, enable = WHERE, disable = WHERE, model = { AUTO } }

--- Completions of a path, whose last word `lead` is.
local function paths(lead, line)
  local path = line:match("prime%s+(.*)$") or lead
  return vim.tbl_map(function(found)
    return found:sub(#path - #lead + 1)
  end, vim.fn.getcompletion(path, "file"))
end

--- Completions of the command line.
function M.complete(lead, line)
  local words = vim.split(vim.trim(line), "%s+")
  local is_first = #words < 2 or (#words == 2 and lead ~= "")
  local offered = is_first and vim.tbl_keys(ACTIONS) or ARGUMENTS[words[2]] or {}
  if not is_first and words[2] == "prime" then
    offered = paths(lead, line)
  end
  local fitting = vim.tbl_filter(function(each)
    return vim.startswith(each, lead)
  end, offered)
  table.sort(fitting)
  return fitting
end

return M
