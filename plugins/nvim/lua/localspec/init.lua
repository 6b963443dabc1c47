--- Completions from models on this machine, as ghost text. See `:help localspec`.

local M = {}

local settings

local function define_autocommands()
  local group = vim.api.nvim_create_augroup("localspec", { clear = true })
  local function on(events, act)
    vim.api.nvim_create_autocmd(events, {
      group = group,
      callback = function()
        act() -- without the event: arguments and return values of callbacks differ between versions
      end,
    })
  end
  local completion, server = require("localspec.completion"), require("localspec.server")
  on({ "TextChangedI", "TextChangedP", "CursorMovedI", "CompleteChanged" }, completion.update)
  on("CompleteDone", vim.schedule_wrap(completion.update))
  on("InsertEnter", completion.enter)
  on({ "InsertLeave", "BufLeave", "WinLeave" }, completion.dismiss)
  on("BufEnter", server.focus)
  on("CursorHold", server.rest)
  on("ColorScheme", require("localspec.ghost").define_highlights)
end

local function apply()
  require("localspec.server").configure(settings)
  require("localspec.completion").configure(settings)
end

--- Set up the plugin; may be called again with other settings. See `:help localspec-settings`.
---@param given table?
function M.setup(given)
  if vim.fn.has("nvim-0.10") == 0 then
    return vim.notify("localspec: Neovim 0.10 or newer is needed", vim.log.levels.ERROR)
  end
  settings = require("localspec.settings").checked(given or {})
  require("localspec.ghost").define_highlights()
  local keys = require("localspec.keys")
  keys.define_plugs()
  keys.map_all(settings.keys)
  apply()
  define_autocommands()
end

--- Return true if `setup` was called.
function M.is_set_up()
  return settings ~= nil
end

--- The current settings; calls `setup` with defaults if it was not called before.
function M.settings()
  if not settings then
    M.setup()
  end
  return settings
end

--- Change one setting while Neovim runs.
function M.set(name, value)
  M.settings()[name] = value
  apply()
end

--- A short text for a status line: state, model, acceptance, time saved.
function M.statusline()
  return require("localspec.server").line()
end

--- Return true if a suggestion is visible, and so can be accepted.
function M.is_visible()
  return require("localspec.completion").is_visible()
end

for _, name in ipairs({ "accept", "accept_word", "accept_line", "next", "previous", "dismiss", "trigger" }) do
  --- Act as its key would; returns true if there was something to act on.
  M[name] = function()
    return require("localspec.keys").act(name)
  end
end

return M
