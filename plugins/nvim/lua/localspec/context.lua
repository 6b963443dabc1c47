--- The text around a place in a buffer, and whether a buffer's text may be sent.

local M = {}

local BEFORE, AFTER = 256, 64
--- Largest file in bytes; larger ones are not sent.
local LARGEST = 1024 * 1024

---@class localspec.Context
---@field buf integer
---@field tick integer
---@field row integer 0-based
---@field first integer the first line
---@field last integer the line after the last one
---@field prefix string
---@field suffix string

---@return localspec.Context
local function around(buf, row, col, first, last)
  local bottom = math.min(last, vim.api.nvim_buf_line_count(buf)) - 1
  return {
    buf = buf,
    tick = vim.api.nvim_buf_get_changedtick(buf),
    row = row,
    first = first,
    last = last,
    prefix = table.concat(vim.api.nvim_buf_get_text(buf, first, 0, row, col, {}), "\n"),
    suffix = table.concat(vim.api.nvim_buf_get_text(buf, row, col, bottom, -1, {}), "\n"),
  }
end

--- The text around a place.
---@return localspec.Context
function M.at(buf, row, col)
  return around(buf, row, col, math.max(0, row - BEFORE), row + 1 + AFTER)
end

--- The text typed since `origin`, if the cursor is at its end and all else is unchanged; else nil.
---@param origin localspec.Context
function M.typed_since(origin, buf, row, col)
  if buf ~= origin.buf or row < origin.row then
    return nil
  end
  local now = around(buf, row, col, origin.first, origin.last + row - origin.row)
  if now.suffix == origin.suffix and vim.startswith(now.prefix, origin.prefix) then
    return now.prefix:sub(#origin.prefix + 1)
  end
end

--- Return true unless `b:localspec_enabled` is false, or 0, which Vim script may have for it.
function M.is_enabled(buf)
  local enabled = vim.b[buf].localspec_enabled
  return enabled ~= false and enabled ~= 0
end

--- Return true if a buffer is shown in diff mode.
local function is_compared(buf)
  return vim.iter(vim.fn.win_findbuf(buf)):any(function(window)
    return vim.wo[window].diff
  end)
end

--- Return true if text of this buffer may be sent: a loaded, modifiable file that is neither large nor excluded. The
--- server knows which names mark secrets.
---@param exclude string[] filetypes
function M.allowed(buf, exclude)
  if not vim.api.nvim_buf_is_loaded(buf) then
    return false -- it may be unloaded before an answer comes
  end
  local options = vim.bo[buf]
  local is_file = (options.buftype == "" or options.buftype == "acwrite") and options.modifiable and not options.readonly
  return is_file
    and M.is_enabled(buf)
    and not vim.tbl_contains(exclude, options.filetype)
    and not is_compared(buf)
    and vim.api.nvim_buf_get_offset(buf, vim.api.nvim_buf_line_count(buf)) <= LARGEST
end

return M
