--- Notices beside the status, which never wait for a key.

local M = {}

--- `text`, cut to the room on the screen: Neovim's own `vim.notify` waits for a key if a longer one is shown.
local function fitting(text)
  local room = vim.o.columns * math.max(1, vim.o.cmdheight) - 30
  if vim.fn.strdisplaywidth(text) <= room then
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
