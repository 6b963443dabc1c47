--- What a person is told beside the status: each thing once, and never so that a key is waited for.

local M = {}

local told = {}

local function shows_all()
  local source = debug.getinfo(vim.notify, "S").source
  return not source:find("vim/_", 1, true)
end

--- Neovim's own way to show what does not fit would stop whoever is typing.
local function fitting(text)
  local room = vim.o.columns * math.max(1, vim.o.cmdheight) - 30
  if shows_all() or vim.fn.strdisplaywidth(text) <= room then
    return text
  end
  local more = "… (:Localspec status)"
  return vim.fn.strcharpart(text, 0, room - vim.fn.strchars(more)) .. more
end

--- Tell it now.
function M.tell(text, level)
  text = ("localspec: " .. text):gsub("%s*\n%s*", " ")
  vim.schedule(function()
    vim.notify(fitting(text), level or vim.log.levels.INFO)
  end)
end

--- Tell it unless this was told since `forget`.
function M.once(key, text)
  if not told[key] then
    told[key] = true
    M.tell(text, vim.log.levels.WARN)
  end
end

--- Somebody has changed something, or asks for it: what is wrong still is told again.
function M.forget()
  told = {}
end

return M
