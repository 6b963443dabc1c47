--- The settings, with their defaults and checks.

local M = {}

local DEFAULTS = {
  enabled = true, -- false: no completions until `:Localspec enable`
  automatic = true, -- false: only on the key or command
  command = "localspec", -- or a list: the program and its arguments
  model = nil, -- nil: as configured for localspec
  exclude = {}, -- filetypes that are never sent
  max_ms = 5000, -- longest time of a completion
  multiline = true, -- false: never more than one line
  popup_menu = false, -- true: show suggestions beside Neovim's own completion menu, too
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-Down>",
    next = "<M-]>",
    previous = "<M-[>",
    dismiss = "<C-]>",
    trigger = false, -- `next` requests a completion if none is shown
  },
}

--- Settings with a plain type, by name.
local CHECKS = {
  enabled = "boolean",
  automatic = "boolean",
  multiline = "boolean",
  popup_menu = "boolean",
  model = "string",
}

local function is_strings(value)
  return vim.islist(value) and vim.iter(value):all(function(each)
    return type(each) == "string"
  end)
end

local function refuse(message)
  error("localspec: " .. message .. " (:help localspec-settings)", 0)
end

local function unknown(key, names, place)
  table.sort(names)
  refuse(("there is no setting %q%s, only: %s"):format(tostring(key), place, table.concat(names, ", ")))
end

local NAMES = vim.list_extend({ "model" }, vim.tbl_keys(DEFAULTS))

local function checked_keys(keys)
  if type(keys) == "boolean" then
    return keys and vim.deepcopy(DEFAULTS.keys) or {}
  end
  if type(keys) ~= "table" then
    refuse("keys must be true, false or a table")
  end
  for name, key in pairs(keys) do
    if DEFAULTS.keys[name] == nil then
      unknown(tostring(name), vim.tbl_keys(DEFAULTS.keys), " in keys")
    end
    if key ~= false and (type(key) ~= "string" or key == "") then
      refuse(("keys.%s must be a key such as %q, or false"):format(name, "<Tab>"))
    end
  end
  return vim.tbl_extend("force", DEFAULTS.keys, keys)
end

local function check(name, value)
  if CHECKS[name] and type(value) ~= CHECKS[name] then
    refuse(("%s must be a %s, not a %s"):format(name, CHECKS[name], type(value)))
  elseif name == "command" and not ((type(value) == "string" and value ~= "") or (is_strings(value) and #value > 0)) then
    refuse("command must be a program, or a list of it and its arguments")
  elseif name == "exclude" and not is_strings(value) then
    refuse('exclude must be a list of filetypes, such as { "markdown" }')
  elseif name == "max_ms" and not (type(value) == "number" and value % 1 == 0 and value >= 1 and value <= 600000) then
    refuse("max_ms must be a whole number from 1 to 600000")
  end
end

--- All settings, with defaults for those missing in `given`. Raises an error with a sentence for the user.
function M.checked(given)
  if type(given) ~= "table" then
    refuse("setup takes a table")
  end
  local settings = vim.deepcopy(DEFAULTS)
  for name, value in pairs(given) do
    if not vim.tbl_contains(NAMES, name) then
      unknown(tostring(name), vim.deepcopy(NAMES), "")
    end
    check(name, value)
    settings[name] = value
  end
  settings.keys = checked_keys(settings.keys)
  if type(settings.command) == "string" then
    settings.command = { settings.command }
  end
  settings.command[1] = vim.fn.expand(settings.command[1])
  return settings
end

return M
