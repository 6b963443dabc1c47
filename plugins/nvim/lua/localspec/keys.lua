--- Keys: what they do with a suggestion, and what they did before where there is none.

local completion = require("localspec.completion")

local M = {}

--- By name: the keys that do it where a suggestion is visible; `always` where there is none, too.
local ACTIONS = {
  accept = { call = 'take("all")', is_change = true },
  accept_word = { call = 'take("word")', is_change = true },
  accept_line = { call = 'take("line")', is_change = true },
  next = { call = "cycle(1)", always = true },
  previous = { call = "cycle(-1)", always = true },
  dismiss = { call = "dismiss()" },
  trigger = { call = "trigger()", always = true },
}

---@type table<string, table> what was mapped before, by key
local mapped = {}

local function plug(name)
  return ("<Plug>(localspec-%s)"):format(name:gsub("_", "-"))
end

--- `<Plug>(localspec-…)` for every action; each accepted piece is one step of undo.
function M.define_plugs()
  for name, action in pairs(ACTIONS) do
    local keys = ('<Cmd>lua require("localspec.completion").%s<CR>'):format(action.call)
    if action.is_change then
      keys = "<C-g>u" .. keys .. "<C-g>u"
    end
    vim.keymap.set("i", plug(name), keys, { silent = true, desc = "localspec: " .. name:gsub("_", " ") })
  end
end

--- The mapping that a key has for everybody; empty: none.
local function mapping_of(key)
  local found = vim.fn.maparg(key, "i", false, true)
  return found.buffer == 1 and {} or found
end

local function is_own(mapping)
  return vim.startswith(mapping.desc or "", "localspec: ")
end

--- Have another name do what a key did.
local function keep(mapping, key, name)
  if vim.tbl_isempty(mapping) then
    return vim.keymap.set("i", name, key, { desc = "localspec: " .. key .. " itself" })
  end
  local raw = vim.api.nvim_replace_termcodes(name, true, true, true)
  local copy = vim.tbl_extend("force", mapping, { lhs = name, lhsraw = raw })
  copy.lhsrawalt = nil
  vim.fn.mapset("i", false, copy)
end

--- Map a key: with a suggestion it acts, without one it is what it was.
local function map(key, name)
  local was, action = "<Plug>(localspec-was-" .. key:gsub("[<>]", "") .. ")", ACTIONS[name]
  mapped[key] = mapping_of(key)
  keep(mapped[key], key, was)
  vim.keymap.set("i", key, function()
    return (action.always or completion.is_visible()) and plug(name) or was
  end, { expr = true, remap = true, silent = true, replace_keycodes = true, desc = "localspec: " .. name:gsub("_", " ") })
end

--- Give every key back to what it was, but for those that somebody has mapped since.
local function unmap_all()
  for key, before in pairs(mapped) do
    if is_own(mapping_of(key)) then
      vim.keymap.del("i", key)
      if not vim.tbl_isempty(before) then
        vim.fn.mapset("i", false, before)
      end
    end
  end
  mapped = {}
end

---@param keys table<string, string|false>
function M.map_all(keys)
  unmap_all()
  for name in pairs(ACTIONS) do
    if keys[name] then
      map(keys[name], name)
    end
  end
end

--- Act as a key would, for mappings of one's own; whether there was something to act on.
function M.act(name)
  local action = ACTIONS[name]
  if not action.always and not completion.is_visible() then
    return false
  end
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(plug(name), true, true, true), "im", false)
  return true
end

return M
