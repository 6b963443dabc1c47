--- `:Localspec …`

local bridge = require("localspec.bridge")
local completion = require("localspec.completion")
local context = require("localspec.context")
local localspec = require("localspec")
local notice = require("localspec.notice")
local status = require("localspec.status")

local M = {}

local AUTO = "auto" -- as configured for localspec
local PATIENCE_MS = 1000

---@type {request: localspec.Request?}? the running `prime`
local priming

--- Send a request of the user; calls `answered(result)`, or shows the error; calls `ended` in both cases.
local function ask(method, params, answered, ended)
  bridge.try_at_once()
  return bridge.request(method, params, function(error, result)
    if ended then
      ended()
    end
    local data = error and (error.data or { message = error.message })
    if result then
      answered(result)
    elseif data.code ~= "lost" then
      notice.tell(vim.trim(data.message .. " " .. (data.remedy or "")), vim.log.levels.WARN)
    end
  end)
end

--- The nearest directory around this one that has a `.git`, which in worktrees and submodules is a file.
local function root_of(directory)
  local place, below = vim.loop.fs_realpath(directory) or directory, nil
  while place ~= below do
    if vim.loop.fs_stat(place .. "/.git") then
      return place
    end
    place, below = vim.fn.fnamemodify(place, ":h"), place
  end
end

--- The workspace: the git root of the file or of the current directory, or else the current directory.
local function workspace()
  local name, current = vim.api.nvim_buf_get_name(0), vim.fn.getcwd()
  local is_file = name ~= "" and vim.bo.buftype == ""
  return is_file and root_of(vim.fn.fnamemodify(name, ":h")) or root_of(current) or current
end

local function show_enabled()
  notice.tell(status.state() == "off" and "off" or "on")
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
    bridge.try_at_once()
    change(wanted)
    completion.dismiss()
    show_enabled()
  end
end

--- Names of the fill-in-the-middle models, each once: two formats of a model share a name.
local function names_of(models)
  local names = {}
  for _, model in ipairs(models) do
    local name = (model.names or {})[1] or model.id
    if model.fim and not model.problem and not vim.tbl_contains(names, name) then
      names[#names + 1] = name
    end
  end
  return names
end

local function choose(name)
  localspec.set("model", name ~= AUTO and name or nil)
  notice.tell("completions now come from " .. (name == AUTO and "the configured model" or name))
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
    vim.api.nvim_echo({ { table.concat(status.lines(), "\n") } }, true, {})
  end,

  trigger = function()
    completion.trigger()
  end,

  restart = function()
    local command = vim.list_extend(vim.deepcopy(localspec.settings().command), { "daemon", "restart" })
    if vim.fn.executable(command[1]) == 0 then
      return notice.tell(("the command %s was not found"):format(command[1]), vim.log.levels.WARN)
    end
    local errors = {}
    bridge.stop()
    vim.fn.jobstart(command, {
      on_stderr = function(_, pieces)
        vim.list_extend(errors, pieces)
      end,
      on_exit = function(_, code)
        bridge.try_at_once()
        status.set_error(nil)
        notice.tell(code == 0 and "the daemon was restarted" or vim.trim(table.concat(errors, " ")))
      end,
    })
  end,

  model = function(name)
    if name then
      return choose(name)
    end
    ask("models/list", {}, function(result)
      local names = vim.list_extend({ AUTO }, names_of(result.models))
      vim.ui.select(names, { prompt = "Complete with:" }, function(chosen)
        return chosen and choose(chosen)
      end)
    end)
  end,

  prime = function(path)
    if priming then
      bridge.cancel(priming.request)
      return notice.tell("stopped; what was learnt so far is kept")
    end
    path = path and vim.fn.fnamemodify(path:gsub("\\ ", " "), ":p") or workspace()
    notice.tell(("learning %s; the same command stops it"):format(path))
    local own = {}
    priming = own
    own.request = ask("memory/prime", { paths = { path } }, function(result)
      notice.tell(("learnt %d files, %d tokens"):format(result.files, result.tokens))
    end, function()
      priming = nil
    end)
  end,

  forget = function()
    local root = workspace()
    if vim.fn.confirm(("Forget what was learnt in %s?"):format(root), "&Yes\n&No", 2) == 1 then
      ask("memory/forget", { workspace = root }, function(result)
        notice.tell(("forgot %d %s"):format(result.forgotten, result.unit))
      end)
    end
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

--- Names of models; only AUTO if the daemon does not answer within PATIENCE_MS.
local function models()
  localspec.settings()
  local names = {}
  local is_answered = false
  bridge.request("models/list", {}, function(_, result)
    names, is_answered = result and names_of(result.models) or {}, true
  end)
  vim.wait(PATIENCE_MS, function()
    return is_answered
  end, 10)
  return vim.list_extend({ AUTO }, names)
end

local ARGUMENTS = {
  toggle = { "buffer", "language" },
  enable = { "buffer", "language" },
  disable = { "buffer", "language" },
  model = models,
  prime = function(lead, line)
    local path = line:match("prime%s+(.*)$") or lead -- `lead` begins at its last space
    return vim.tbl_map(function(found)
      return found:sub(#path - #lead + 1)
    end, vim.fn.getcompletion(path, "file"))
  end,
}

--- Completions of the command line.
function M.complete(lead, line)
  local words = vim.split(vim.trim(line), "%s+")
  local is_first = #words < 2 or (#words == 2 and lead ~= "")
  local offered = is_first and vim.tbl_keys(ACTIONS) or ARGUMENTS[words[2]] or {}
  if type(offered) == "function" then
    offered = offered(lead, line)
  end
  local fitting = vim.tbl_filter(function(each)
    return vim.startswith(each, lead)
  end, offered)
  table.sort(fitting)
  return fitting
end

return M
