--- The state of the daemon and of this editor's completions, for the status line and `:Localspec status`.

local M = {}

local context = require("localspec.context")

local settings = { enabled = true, exclude = {} }
local state = {
  thinking = false,
  server = nil,
  error = nil,
  progress = nil,
  model = nil,
  off_reason = nil,
  drafted = 0,
  accepted = 0,
  saved = nil,
  completions = 0,
}

local function changed()
  if vim.v.vim_did_enter == 1 then
    vim.schedule(function()
      vim.cmd("redrawstatus")
    end)
  end
end

local function setter(name)
  return function(value)
    if state[name] ~= value then
      state[name] = value
      changed()
    end
  end
end

M.set_thinking = setter("thinking")
M.set_server = setter("server")
M.set_error = setter("error")

local set_progress = setter("progress")

--- Set the progress of a model's load; nil: none is loaded, or no request waits for it.
---@param progress {fraction: number}?
function M.set_progress(progress)
  set_progress(progress and (progress.fraction or 0) < 1 and progress or nil)
end

function M.configure(new_settings)
  settings = new_settings
  changed()
end

--- Add a completion's statistics.
function M.count(result)
  local stats = result.stats or {}
  state.completions = state.completions + 1
  state.model = result.result and result.result.model or state.model
  state.off_reason = stats.speculation_off_reason
  state.drafted = state.drafted + (stats.drafted or 0)
  state.accepted = state.accepted + (stats.accepted or 0)
  if stats.time_saved_s then
    state.saved = (state.saved or 0) + stats.time_saved_s
  end
  changed()
end

--- `off`, `error`, `loading`, `thinking` or `idle`.
function M.state()
  if not settings.enabled or not context.allowed(vim.api.nvim_get_current_buf(), settings.exclude) then
    return "off"
  elseif state.error then
    return "error"
  elseif state.progress then
    return "loading"
  end
  return state.thinking and "thinking" or "idle"
end

local function percent(fraction)
  return ("%d %%"):format(math.floor(fraction * 100 + 0.5))
end

local function numbers()
  local parts = {}
  if state.drafted > 0 then
    parts[#parts + 1] = percent(state.accepted / state.drafted) .. " accepted"
  end
  if state.saved then
    parts[#parts + 1] = ("%.1f s saved"):format(state.saved)
  end
  return parts
end

--- A short text for a status line, with each `%` doubled for 'statusline'.
function M.line()
  local words = { off = "off", error = "error", thinking = "…" }
  local now = M.state()
  local parts = { words[now] and "localspec " .. words[now] or "localspec" }
  if now == "loading" then
    parts[1] = "localspec loading " .. percent(state.progress.fraction or 0)
  elseif now ~= "off" and now ~= "error" then
    vim.list_extend(parts, numbers())
  end
  return (table.concat(parts, " · "):gsub("%%", "%%%%"))
end

--- The lines of `:Localspec status`.
function M.lines()
  local daemon = state.server and "daemon: localspec " .. state.server.version or "daemon: not connected"
  local lines = { "localspec: " .. M.state(), daemon }
  if state.error then
    lines[#lines + 1] = vim.trim(("problem: %s %s"):format(state.error.message, state.error.remedy or ""))
  end
  lines[#lines + 1] = "model: " .. (state.model or settings.model or "as configured")
  if state.completions > 0 then
    local counted = { state.completions .. (state.completions == 1 and " completion" or " completions") }
    lines[#lines + 1] = table.concat(vim.list_extend(counted, numbers()), ", ")
  end
  if state.off_reason then
    lines[#lines + 1] = "speculation is off: " .. state.off_reason
  end
  return lines
end

function M.error()
  return state.error
end

return M
