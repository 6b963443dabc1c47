--- What a person is told beside the status: each thing once, and never so that a key is waited for.

local M = {}

local told = {}

--- Whether `vim.notify` is Neovim's own, which has what does not fit wait for a key. From 0.12 on Neovim's own
--- functions do not tell where they are from.
local function may_wait()
  local source = debug.getinfo(vim.notify, "S").source
  return source:find("vim/_", 1, true) ~= nil or source:find("^=?%?$") ~= nil
end

--- As much as there is room for: nobody is stopped.
local function fitting(text)
  local room = vim.o.columns * math.max(1, vim.o.cmdheight) - 30
  if not may_wait() or vim.fn.strdisplaywidth(text) <= room then
    return text
  end
  local more = "… (:Localspec status)"
  return vim.fn.strcharpart(text, 0, room - vim.fn.strchars(more)) .. more
end

local function is_typing()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

local function show(text, level, is_asked)
  text = ("localspec: " .. text):gsub("%s*\n%s*", " ")
  vim.schedule(function()
    vim.notify(is_asked and not is_typing() and text or fitting(text), level)
  end)
end

--- Tell it now, to somebody who has asked.
function M.tell(text, level)
  show(text, level or vim.log.levels.INFO, true)
end

--- Tell it, unasked, unless this was told since `forget`.
function M.once(key, text)
  if not told[key] then
    told[key] = true
    show(text, vim.log.levels.WARN, false)
  end
end

--- Somebody has changed something, or asks for it: what is wrong still is told again.
function M.forget()
  told = {}
end

return M
