--- Notices beside the status, which never wait for a key.

local M = {}

--- Return true if `vim.notify` is Neovim's own, which waits for a key if a text does not fit. From 0.12 on, the source
--- of Neovim's own functions is unknown.
local function may_wait()
  local source = debug.getinfo(vim.notify, "S").source
  return source:find("vim/_", 1, true) ~= nil or source:find("^=?%?$") ~= nil
end

--- `text`, cut to the room on the screen if a longer one would wait for a key.
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

--- Show a notice.
function M.tell(text, level)
  text = ("localspec: " .. text):gsub("%s*\n%s*", " ")
  vim.schedule(function()
    vim.notify(is_typing() and fitting(text) or text, level or vim.log.levels.INFO)
  end)
end

return M
