--- Keys: their action on a suggestion, and their earlier mapping if there is none.

local completion = require("localspec.completion")

local M = {}

--- Actions by name, for a visible suggestion; with `always`, also without one.
local ACTIONS = {
  accept = { call = 'take("all")', is_change = true },
  accept_word = { call = 'take("word")', is_change = true },
  accept_line = { call = 'take("line")', is_change = true },
  next = { call = "cycle(1)", always = true },
  previous = { call = "cycle(-1)", always = true },
  dismiss = { call = "dismiss()" },
  trigger = { call = "trigger()", always = true },
}

---@type table<string, table|false> earlier mappings by key; false: none
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

local function termcodes(keys)
  return vim.api.nvim_replace_termcodes(keys, true, true, true)
end

--- The mapping that a key has in every buffer, if it has one.
local function mapping_of(key)
  return vim.iter(vim.api.nvim_get_keymap("i")):find(function(mapping)
    return termcodes(mapping.lhs) == termcodes(key)
  end)
end

local function rhs_of(mapping)
  return (mapping.rhs or ""):gsub("<[Ss][Ii][Dd]>", ("<SNR>%d_"):format(mapping.sid))
end

--- Map a name to the same as a mapping.
local function define(name, mapping)
  local copy = vim.tbl_extend("force", mapping, { lhs = name, lhsraw = termcodes(name), mode = "i" })
  copy.lhsrawalt = nil
  vim.fn.mapset(copy)
end

--- The keys that a mapping gives now.
local function keys_of(mapping)
  if mapping.expr ~= 1 then
    return termcodes(rhs_of(mapping))
  end
  local keys = mapping.callback and mapping.callback() or vim.api.nvim_eval(termcodes(rhs_of(mapping)))
  return mapping.replace_keycodes == 1 and termcodes(keys or "") or tostring(keys or "")
end

--- Map `name` to the earlier meaning of `key`. If a mapping begins with its own key, Neovim does not map that again;
--- under another name it would, so `itself` stands for it.
local function keep(mapping, key, name, itself)
  vim.keymap.set("i", itself, key, { desc = "localspec: " .. key .. " itself" })
  local raw = termcodes(key)
  if not mapping then
    vim.keymap.set("i", name, key, { desc = "localspec: " .. key .. " as it was" })
  elseif mapping.noremap == 1 or (mapping.callback and mapping.expr ~= 1) then
    define(name, mapping)
  else
    local function keys()
      local now = keys_of(mapping)
      return vim.startswith(now, raw) and termcodes(itself) .. now:sub(#raw + 1) or now
    end
    local options = { expr = true, remap = true, silent = mapping.silent == 1, replace_keycodes = false }
    vim.keymap.set("i", name, keys, options)
  end
end

--- Map a key: it acts on a suggestion, and without one keeps its earlier meaning.
local function map(key, name)
  local plain, action = key:gsub("[<>]", ""), ACTIONS[name]
  local was, itself = "<Plug>(localspec-was-" .. plain .. ")", "<Plug>(localspec-itself-" .. plain .. ")"
  local before = mapping_of(key)
  keep(before, key, was, itself)
  mapped[key] = before or false
  vim.keymap.set("i", key, function()
    return (action.always or completion.is_visible()) and plug(name) or was
  end, { expr = true, remap = true, silent = true, replace_keycodes = true, desc = "localspec: " .. name:gsub("_", " ") })
end

local function is_own(mapping)
  return mapping and vim.startswith(mapping.desc or "", "localspec: ")
end

--- Restore the earlier mapping of every key, but of those that were mapped by others since.
local function unmap_all()
  for key, before in pairs(mapped) do
    if is_own(mapping_of(key)) then
      vim.keymap.del("i", key)
      if before then
        define(key, before)
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

--- Act as a key would, for the user's own mappings; returns true if there was something to act on.
function M.act(name)
  local action = ACTIONS[name]
  if not action.always and not completion.is_visible() then
    return false
  end
  vim.api.nvim_feedkeys(termcodes(plug(name)), "im", false)
  return true
end

return M
