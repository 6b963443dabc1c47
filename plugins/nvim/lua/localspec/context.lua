--- What of a buffer a completion is told: the lines around a place, as the file has them.

local secrets = require("localspec.secrets")

local M = {}

local BEFORE, AFTER, STEP = 256, 64, 64
--- Files of more bytes are not looked at, nor are blocks of more.
M.LARGEST, M.LARGEST_BLOCK = 1024 * 1024, 32 * 1024

--- What ends a line of this buffer's file. Inside Neovim no line has it.
function M.line_end(buf)
  return vim.bo[buf].fileformat == "dos" and "\r\n" or "\n"
end

--- Lines as text; each ends, but for the last one of a file that ends without.
local function text(buf, first, last)
  local lines = vim.api.nvim_buf_get_lines(buf, first, last, false)
  local line_end = M.line_end(buf)
  for number, line in ipairs(lines) do
    if line:find("\n", 1, true) then
      lines[number] = line:gsub("\n", "\0") -- how Neovim keeps a NUL
    end
  end
  local joined = table.concat(lines, line_end)
  local ends = last < vim.api.nvim_buf_line_count(buf) or vim.bo[buf].endofline or vim.bo[buf].fixendofline
  return (#lines > 0 and ends) and joined .. line_end or joined
end

--- The lines of 0-based `row` to be told: from `first` up to, but not with, `last`. The beginning does not
--- move with every new line, so that the model has read it already.
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

--- The text around a place; nil where the file is too large.
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

--- What has been typed at the place of `asked` if the cursor is at its end and all else is as it was; else nil.
---@param asked localspec.Context
function M.typed_since(asked, buf, row, col)
  if buf ~= asked.buf or row < asked.row then
    return nil
  end
  if row == asked.row and col == asked.col and vim.api.nvim_buf_get_changedtick(buf) == asked.tick then
    return ""
  end
  local now = around(buf, row, col, asked.first, asked.last + row - asked.row)
  if now and now.suffix == asked.suffix and vim.startswith(now.prefix, asked.prefix) then
    return now.prefix:sub(#asked.prefix + 1)
  end
end

--- Whether a person lets this buffer be told of. (Vim script may have 0 for false.)
function M.is_enabled(buf)
  local enabled = vim.b[buf].localspec_enabled
  return enabled ~= false and enabled ~= 0
end

--- Whether this buffer may be told of at all: a person's own text, neither secret nor excluded.
---@param exclude string[] filetypes
function M.allowed(buf, exclude)
  if not vim.api.nvim_buf_is_loaded(buf) then
    return false -- by the time that an answer comes
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

--- What the daemon calls the buffer's file.
function M.path(buf)
  local name = vim.api.nvim_buf_get_name(buf)
  return name ~= "" and name or "untitled:" .. buf
end

--- One block of a file's lines, for the ring; nil where there are none, or the file is too large.
function M.block(buf, number)
  local count = vim.api.nvim_buf_line_count(buf)
  if number * STEP >= count or is_too_large(buf) then
    return nil
  end
  local block = text(buf, number * STEP, math.min((number + 1) * STEP, count))
  return #block <= M.LARGEST_BLOCK and block or nil
end

--- The number of the block that a 0-based row is in.
function M.block_of(row)
  return math.floor(row / STEP)
end

return M
