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

---@type table<string, string> what was mapped, by key
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

--- Keep what a key did under another name, and return that.
local function kept(key)
  local name = "<Plug>(localspec-was-" .. key:gsub("[<>]", "") .. ")"
  local before = vim.fn.maparg(key, "i", false, true)
  if vim.tbl_isempty(before) or before.buffer == 1 then
    vim.keymap.set("i", name, key, { desc = "localspec: " .. key .. " itself" })
  else
    before.lhs, before.lhsraw, before.lhsrawalt = name, vim.api.nvim_replace_termcodes(name, true, true, true), nil
    vim.fn.mapset("i", false, before)
  end
  return name
end

--- Map a key: with a suggestion it acts, without one it is what it was.
local function map(key, name)
  local was, action = kept(key), ACTIONS[name]
  vim.keymap.set("i", key, function()
    return (action.always or completion.is_visible()) and plug(name) or was
  end, { expr = true, remap = true, silent = true, replace_keycodes = true, desc = "localspec: " .. name:gsub("_", " ") })
  mapped[key] = was
end

--- Give every key back to what it was.
local function unmap_all()
  for key, was in pairs(mapped) do
    local mapping = vim.fn.maparg(was, "i", false, true)
    pcall(vim.keymap.del, "i", key)
    if not vim.startswith(mapping.desc or "", "localspec: ") then
      mapping.lhs, mapping.lhsraw = key, vim.api.nvim_replace_termcodes(key, true, true, true)
      vim.fn.mapset("i", false, mapping)
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
