--- The excerpt of a buffer that is sent with a completion: the lines around a place, as the file has them.

local secrets = require("localspec.secrets")

local M = {}

local BEFORE, AFTER, STEP = 256, 64, 64
--- Largest file and block in bytes; larger ones are not sent.
M.LARGEST, M.LARGEST_BLOCK = 1024 * 1024, 32 * 1024

--- The line end of this buffer's file; lines inside Neovim are without it.
function M.line_end(buf)
  return vim.bo[buf].fileformat == "dos" and "\r\n" or "\n"
end

--- Lines as text, each with its line end, but for the last one of a file without a final line end.
local function text(buf, first, last)
  local lines = vim.api.nvim_buf_get_lines(buf, first, last, false)
  local line_end = M.line_end(buf)
  for number, line in ipairs(lines) do
    if line:find("\n", 1, true) then
      lines[number] = line:gsub("\n", "\0") -- Neovim stores a NUL as \n
    end
  end
  local joined = table.concat(lines, line_end)
  local ends = last < vim.api.nvim_buf_line_count(buf) or vim.bo[buf].endofline or vim.bo[buf].fixendofline
  return (#lines > 0 and ends) and joined .. line_end or joined
end

--- The lines to send for a 0-based `row`: from `first` to before `last`. The beginning does not move with every new
--- line, so that the model has read it already.
function M.window(row)
  local first = math.max(0, math.floor((row - BEFORE) / STEP) * STEP)
  return first, row + 1 + AFTER
end

---@class localspec.Context
---@field buf integer
---@field tick integer
---@field row integer 0-based
---@field col integer 0-based, in bytes
---@field first integer
---@field last integer
---@field prefix string
---@field suffix string

local function is_too_large(buf)
  return vim.api.nvim_buf_get_offset(buf, vim.api.nvim_buf_line_count(buf)) > M.LARGEST
end

--- The text around a place; nil if the file is too large.
---@return localspec.Context?
local function around(buf, row, col, first, last)
  if is_too_large(buf) then
    return nil
  end
  last = math.min(last, vim.api.nvim_buf_line_count(buf))
  local before, behind = text(buf, first, row), text(buf, row, last)
  return {
    buf = buf,
    tick = vim.api.nvim_buf_get_changedtick(buf),
    row = row,
    col = col,
    first = first,
    last = last,
    prefix = before .. behind:sub(1, col),
    suffix = behind:sub(col + 1),
  }
end

---@return localspec.Context?
function M.at(buf, row, col)
  local first, last = M.window(row)
  return around(buf, row, col, first, last)
end

--- The text typed since `origin`, if the cursor is at its end and all else is unchanged; else nil.
---@param origin localspec.Context
function M.typed_since(origin, buf, row, col)
  if buf ~= origin.buf or row < origin.row then
    return nil
  end
  if row == origin.row and col == origin.col and vim.api.nvim_buf_get_changedtick(buf) == origin.tick then
    return ""
  end
  local now = around(buf, row, col, origin.first, origin.last + row - origin.row)
  if now and now.suffix == origin.suffix and vim.startswith(now.prefix, origin.prefix) then
    return now.prefix:sub(#origin.prefix + 1)
  end
end

--- Return true unless `b:localspec_enabled` is false, or 0, which Vim script may have for it.
function M.is_enabled(buf)
  local enabled = vim.b[buf].localspec_enabled
  return enabled ~= false and enabled ~= 0
end

--- Return true if text of this buffer may be sent: a loaded, modifiable file, neither secret nor excluded.
---@param exclude string[] filetypes
function M.allowed(buf, exclude)
  if not vim.api.nvim_buf_is_loaded(buf) then
    return false -- it may be unloaded before an answer comes
  end
  local options = vim.bo[buf]
  if options.buftype ~= "" and options.buftype ~= "acwrite" then
    return false
  end
  if not options.modifiable or options.readonly or not M.is_enabled(buf) then
    return false
  end
  local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ":t")
  return not secrets.is_secret(name) and not vim.tbl_contains(exclude, options.filetype)
end

--- The path sent to the daemon.
function M.path(buf)
  local name = vim.api.nvim_buf_get_name(buf)
  return name ~= "" and name or "untitled:" .. buf
end

--- One block of a file's lines, for the ring; nil if there are none, or the file or block is too large.
function M.block(buf, number)
  local count = vim.api.nvim_buf_line_count(buf)
  if number * STEP >= count or is_too_large(buf) then
    return nil
  end
  local block = text(buf, number * STEP, math.min((number + 1) * STEP, count))
  return #block <= M.LARGEST_BLOCK and block or nil
end

--- The number of a 0-based row's block.
function M.block_of(row)
  return math.floor(row / STEP)
end

return M
