--- What a person is told beside the status: each thing once, and never so that a key is waited for.

local M = {}

local told = {}

--- Whether `vim.notify` is Neovim's own, which has what does not fit wait for a key.
local function may_wait()
  return debug.getinfo(vim.notify, "S").source:find("vim/_", 1, true) ~= nil
end

--- Whoever is typing is not stopped.
local function fitting(text)
  local room = vim.o.columns * math.max(1, vim.o.cmdheight) - 30
  local is_typing = vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
  if not is_typing or not may_wait() or vim.fn.strdisplaywidth(text) <= room then
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
